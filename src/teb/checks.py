"""Range checks for configuration fields: every message names the field, what would be accepted, and the value."""

from __future__ import annotations

import math
from typing import Literal, get_args, get_origin, get_type_hints


def positive(name: str, value: float) -> None:
    """Refuse anything but a finite number above zero."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name}: must be above 0, got {value}")


def in_range(name: str, value: float, low: float, high: float, *, high_open: bool = False) -> None:
    """Refuse numbers outside [low, high], or [low, high) if `high_open`."""
    if not (low <= value <= high) or (high_open and value == high):
        raise ValueError(f"{name}: must lie in [{low:g}, {high:g}{')' if high_open else ']'}, got {value}")


def one_of_the_choices(config: object) -> None:
    """Refuse words that a dataclass's `Literal` fields do not list."""
    for name, kind in get_type_hints(type(config)).items():
        choices = get_args(kind)
        value = getattr(config, name)
        if get_origin(kind) is Literal and value not in choices:
            raise ValueError(f"{name}: must be one of {', '.join(map(str, choices))}, got {value!r}")
