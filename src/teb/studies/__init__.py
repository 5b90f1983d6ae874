"""Tables and figures as data: which runs each needs, and how it is drawn."""

from __future__ import annotations

from teb.studies import maze2d, metaworld, shaping, sweeps
from teb.studies.plan import Computation, Study

STUDIES: dict[str, Study] = {
    "maze2d": maze2d.MAZE2D,
    "learns": metaworld.LEARNS,
    "metaworld": metaworld.METAWORLD,
    "components": metaworld.COMPONENTS,
    "anchors": metaworld.ANCHORS,
    "reward-differential": metaworld.REWARD_DIFFERENTIAL,
    "distractors": metaworld.DISTRACTORS,
    "sigma-min": sweeps.SIGMA_MIN,
    "eta": sweeps.ETA,
    "probe": metaworld.PROBE,
    "shaping": shaping.GRID_STUDY,
    "shaping-long": shaping.LONG,
    "particles": shaping.PARTICLES,
    "shaping-paper-size": shaping.PAPER_SIZE,
    "readings": shaping.READINGS,
    "precision": shaping.PRECISION,
}
"""Studies of training runs."""

COMPUTED: dict[str, Computation] = {
    "theory": Computation(
        "The paper's statements, computed exactly (lemmas 3.1 and 3.2, theorems 3.3 to 3.5)",
        "teb theory",
        "docs/theory.md",
    )
}
"""Studies that need no training."""
