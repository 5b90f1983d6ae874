"""One HTML file with everything in it: page, style, scripts and data; it asks the network for nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from teb.report.packing import pack

SCRIPTS = ("dom.js", "data.js", "table.js", "chart.js", "maps.js", "study.js", "runs.js", "main.js")
"""In the order in which they stand in the page."""


def write_page(data: Mapping[str, Any], maps: bytes, path: Path) -> Path:
    """Write the page; a folder that is not there is made."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(data, maps), encoding="utf-8", newline="\n")
    return path


def page(data: Mapping[str, Any], maps: bytes) -> str:
    """The text of the page.

    Its policy names its own style and script by their hashes, so nothing else can run in it or be fetched by it.
    """
    style = _part("style.css")
    script = '"use strict";\n' + "\n".join(_part(name) for name in SCRIPTS)
    own = f"style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    policy = f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"
    text = _part("index.html")
    for name, value in {"policy": policy, "style": style, "script": script, "data": pack(data, maps)}.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return text


def _part(name: str) -> str:
    return (files("teb.report") / "page" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
