"""Tables and figures as data: which runs each needs, and how it is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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


def _theory(folder: Path, docs: Sequence[Path]) -> int:
    from teb.theory import command  # with all that draws: only when it is asked for

    return command.run(command.TheoryOptions(out=folder, docs=tuple(docs)))


def _frames(folder: Path, docs: Sequence[Path]) -> int:
    from teb.studies import frames

    return frames.make(folder)


COMPUTED: dict[str, Computation] = {
    "theory": Computation(
        "The paper's statements, computed exactly (lemmas 3.1 and 3.2, theorems 3.3 to 3.5)",
        "teb theory",
        "docs/theory.md",
        _theory,
        "theory.md",
    ),
    "frames": Computation(
        "What agents see of four Meta-World tasks (figure 6)",
        "teb study run frames",
        "docs/environments.md",
        _frames,
        "frames.png",
        kept=True,
    ),
}
"""Studies that need no training."""
