"""What agents see of four tasks: figure 6 of the paper, drawn by this package's own camera."""

from __future__ import annotations

from pathlib import Path

from teb.envs.metaworld import MetaWorldConfig, make_metaworld_task
from teb.envs.pixels import Frame
from teb.report import style
from teb.report.scenes import scenes_figure

TASKS = ("box-close", "stick-pull", "pick-out-of-hole", "coffee-push")
"""Those of the paper's figure."""


def first_frame(task: str, seed: int = 0) -> Frame:
    """The first observation of a task's first episode, as an agent gets it: bytes [3, 84, 84] at full quality."""
    env = make_metaworld_task(task, MetaWorldConfig(render_quality="full")).env
    try:
        return env.reset(seed=seed)[0]
    finally:
        env.close()


def make(folder: Path) -> int:
    """Write frames.png and frames.svg into a folder."""
    for path in style.save(scenes_figure({task: first_frame(task) for task in TASKS}), folder / "frames"):
        print(f"written: {path}")
    return 0
