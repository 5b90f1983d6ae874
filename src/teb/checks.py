"""Range checks for configuration fields: every message names the field, what would be accepted, and the value."""

from __future__ import annotations

import math


def positive(name: str, value: float) -> None:
    """Refuse anything but a finite number above zero."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name}: must be above 0, got {value}")


def in_range(name: str, value: float, low: float, high: float, *, high_open: bool = False) -> None:
    """Refuse numbers outside [low, high], or [low, high) if `high_open`."""
    if not (low <= value <= high) or (high_open and value == high):
        raise ValueError(f"{name}: must lie in [{low:g}, {high:g}{')' if high_open else ']'}, got {value}")
