"""The explorers by name. Adding one takes its own file and one entry here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from teb.explorers.none import NoBonus, NoBonusConfig
from teb.explorers.teb import CONTROL, LITERAL, PARTICLES, THEOREM_FAITHFUL, Teb, TebConfig


@dataclass(frozen=True)
class Entry:
    """One explorer as the command line offers it."""

    summary: str
    citation: str
    config: Any
    """Default configuration; its type is the explorer's `Config`."""
    build: Callable[..., Any]
    """(config, shapes, gamma=..., n_step=...) -> the explorer."""
    cpu: Mapping[str, Any] = field(default_factory=dict)
    """Fields that the `cpu` preset changes: smaller networks, larger learning rates."""
    readings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Named sets of fields: ways to read a paper that leaves a choice."""


_TEB = "Liang et al. 2026, arXiv 2602.18724"
_TEB_CPU = {"pred_hidden": 256, "model_lr": 4e-4}
_TEB_READINGS = {"theorem-faithful": THEOREM_FAITHFUL, "literal": LITERAL}

REGISTRY: dict[str, Entry] = {
    "teb": Entry(
        "potential-based bonus from the predictive bisimulation metric",
        _TEB,
        TebConfig(),
        Teb,
        _TEB_CPU,
        _TEB_READINGS,
    ),
    "teb-p": Entry(
        "TEB with a particle anchor",
        "ours, after Liang et al. 2026",
        TebConfig(**PARTICLES),
        Teb,
        _TEB_CPU | {"particles": 1024},
    ),
    "centroid": Entry(
        "control: distance to the batch centroid, no learned metric", "ours", TebConfig(**CONTROL), Teb
    ),
    "eta0": Entry(
        "the backbone without any bonus", "Laskin et al. 2021, arXiv 2110.15191", NoBonusConfig(), NoBonus
    ),
}
