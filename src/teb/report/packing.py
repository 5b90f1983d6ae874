"""What a page carries of records: thinner curves, rounder numbers, maps a byte per bin, all of it compressed."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from teb.report.records import decode_first_visit
from teb.report.statistics import Floats

POINTS = 101
"""Most points of a curve; a screen hardly shows more."""

LEVELS = 200
"""Steps of the time of a first visit, over the length of the run: 500 environment steps of 100K."""

UNVISITED = 255


def pack(document: Mapping[str, Any], maps: bytes) -> str:
    """Base64 of a zlib stream of: length of the JSON (4 bytes, little-endian), the JSON, the maps."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
    return base64.b64encode(zlib.compress(len(text).to_bytes(4, "little") + text + maps, 9)).decode()


def visit_levels(map: Mapping[str, Any]) -> NDArray[np.uint8]:
    """First visits in 200ths of the run, rounded up so that no bin is shown before it was visited; `[nx, ny]`."""
    visits = decode_first_visit(map) / (float(map["env_steps"]) / LEVELS)
    seen = np.isfinite(visits)
    levels = np.full(visits.shape, UNVISITED, dtype=np.uint8)
    # Stored times are thousandths; what they lose on the way through floats must not push them up a level.
    levels[seen] = np.ceil(np.round(visits[seen], 6)).astype(np.uint8)
    return levels


def thinned(length: int) -> NDArray[np.intp]:
    """Places of at most `POINTS` of so many points, evenly spaced, with the first and the last."""
    return np.unique(np.linspace(0, length - 1, min(length, POINTS)).round().astype(np.intp))


def rounded(values: Floats, digits: int = 4) -> list[float | int | None]:
    """Numbers with so many significant digits; what is not finite is None."""
    return [short(float(value), digits) for value in values]


def short(value: float, digits: int = 4) -> float | int | None:
    """One number with so many significant digits, whole ones as such; None if it is not finite."""
    if not math.isfinite(value):
        return None
    near = float(f"{value:.{digits}g}")
    return int(near) if near.is_integer() and abs(near) < 1e15 else near
