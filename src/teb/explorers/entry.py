"""What the command line needs to know of an explorer; every explorer's file ends with its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Entry:
    """One explorer as the command line offers it."""

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
