"""The one line that remains of a run: what it was, where it ran, how it went. Tables and pictures read only this."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from teb.run.logging import Row

SCHEMA = 1
_PACKAGES = ("teb", "torch", "numpy", "gymnasium")


def curves(rows: Sequence[Row]) -> dict[str, list[float | int | None]]:
    """Rows of metrics as columns; a value that a row lacks is None. Times are left to `time_split`."""
    names = {name: None for row in rows for name in row if not name.startswith("seconds_")}
    return {name: [_short(row.get(name)) for row in rows] for name in names}


def _short(value: float | int | None) -> float | int | None:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def surroundings() -> dict[str, Any]:
    """Commit, versions and hardware."""
    stands_at, dirty = commit()
    return {"commit": stands_at, "dirty": dirty, "versions": versions(), "hardware": hardware()}


def commit() -> tuple[str, bool]:
    """The commit that the code stands at and whether it was changed since.

    Outside a checkout, in a container say, the variable TEB_COMMIT may name it; else it is empty.
    """
    here = Path(__file__).parent
    if named := os.environ.get("TEB_COMMIT"):
        return named, False

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        return git("rev-parse", "--short=12", "HEAD"), bool(git("status", "--porcelain", "--", str(here)))
    except FileNotFoundError:
        return "", False


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide a run."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def hardware() -> dict[str, Any]:
    """Processor, threads and accelerator."""
    return {
        "machine": platform.machine(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": sys.platform,
    }


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Replace a record file at once."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(record, allow_nan=False))
    temporary.replace(path)


def append_once(registry: Path, record: Mapping[str, Any]) -> bool:
    """Append a record to a registry unless the same run at the same length stands there; true if it was appended.

    Safe against other processes that append at the same time, and against being killed and called again.
    """
    key = record["run_id"], record["env_steps"]
    registry.parent.mkdir(parents=True, exist_ok=True)
    with registry.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        content = file.read()
        if any((old.get("run_id"), old.get("env_steps")) == key for old in _readable(content)):
            return False
        torn = b"" if not content or content.endswith(b"\n") else b"\n"
        file.write(torn + json.dumps(record, allow_nan=False).encode() + b"\n")
    return True


def _readable(content: bytes) -> Iterator[dict[str, Any]]:
    """The records of a registry; a line that was torn in writing is passed over."""
    for line in content.splitlines():
        with contextlib.suppress(ValueError):
            data = json.loads(line)
            if isinstance(data, dict):
                yield data
