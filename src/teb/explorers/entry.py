"""What the command line needs to know of an explorer or a representation; each one's file ends with its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Entry:
    """One explorer, or one representation, as the command line offers it."""

    summary: str
    citation: str
    config: Any
    """Default configuration; its type is the explorer's `Config`."""
    build: Callable[..., Any]
    """(config, shapes, gamma=..., n_step=..., compute=...) -> the explorer."""
    cpu: Mapping[str, Any] = field(default_factory=dict)
    """Fields that the `cpu` preset changes: smaller networks, larger learning rates."""
    readings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Named sets of fields: ways to read a paper that leaves a choice."""
    pixels: Any = None
    """Configuration where pictures are seen; None if it is the same."""
    calibrate_updates: int = 0
    """From pixels, over how many first updates the bonus is brought to a size; 0 for a bonus that keeps its own."""
    own_metric: bool = False
    """Whether it learns a metric of its own that it neither lends nor borrows; it then stands beside no other."""
    borrowing: Any = None
    """Configuration beside a representation whose metric the explorer borrows; None if it never does."""
    borrowing_cpu: Mapping[str, Any] = field(default_factory=dict)
    """Fields of that which the `cpu` preset changes."""
    borrowing_readings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Named sets of its fields."""
