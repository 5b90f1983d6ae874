"""Which frames a trained agent takes for alike, and which for most unlike: a strip of pictures per frame."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from teb.report import style
from teb.report.frames import Frames, chosen_frames, neighbours
from teb.report.records import Record
from teb.report.words import short_steps

ROWS = 5
"""Frames whose neighbours are shown."""
COUNT = 3
"""Neighbours of each kind."""
_PICTURE = 0.98
_LETTERS = 105
"""In a line of the title."""
_GAP = 0.35
"""Inches between the frame, its nearest and its farthest neighbours, relative to a picture."""


def neighbours_figure(record: Record, frames: Frames) -> Figure:
    """A row for each of some frames: itself, its nearest and its farthest frames, each with its distance below."""
    chosen = chosen_frames(frames.episode, ROWS)
    distances = frames.distances
    abroad = frames.episode[:, None] != frames.episode[None]
    if not abroad.any():
        raise ValueError("frames: all are of one episode, neighbours are looked for in others")
    median = float(np.median(distances[abroad]))
    widths = [1.0, _GAP, *[1.0] * COUNT, _GAP, *[1.0] * COUNT]
    height, width = frames.pictures.shape[2:]
    tall = _PICTURE * height / width + 0.24
    with style.applied():
        figure = style.new_figure(_PICTURE * sum(widths) + 0.9, len(chosen) * tall + 1.0)
        axes = figure.subplots(len(chosen), len(widths), squeeze=False, width_ratios=widths)
        for line, frame in zip(axes, chosen, strict=True):
            found = neighbours(distances, frames.episode, frame, COUNT)
            shown: list[int | None] = [frame, None, *_padded(found.nearest), None, *_padded(found.farthest)]
            for ax, index in zip(line, shown, strict=True):
                below = "" if index is None else f"{distances[frame, index]:.3g}"
                if index == frame:
                    below = f"episode {frames.episode[frame]}, step {frames.step[frame]}"
                _draw(ax, None if index is None else frames.pictures[index], below)
        for column, text in ((0, "frame"), (2, "nearest"), (3 + COUNT, "farthest")):
            axes[0, column].set_title(text, loc="left")
        who = f"{record.label} on {record.env}, seed {record.seed}, {short_steps(frames.env_steps)} steps of training"
        lines = [
            *textwrap.wrap(who, _LETTERS, break_on_hyphens=False),
            f"frames of other episodes, at most one of each, with their distances: {frames.metric}",
            f"median over frames of different episodes: {median:.3g}",
        ]
        figure.suptitle("\n".join(lines), fontsize=9, x=0.02, ha="left")
    return figure


def show_neighbours(record: Record, frames: Frames, stem: Path) -> list[Path]:
    """Draw the neighbours of some frames and write `<stem>.png` and `<stem>.svg`."""
    return style.save(neighbours_figure(record, frames), stem)


def _padded(found: NDArray[np.integer]) -> list[int | None]:
    return [*found.tolist(), *[None] * (COUNT - len(found))]


def _draw(ax: Axes, picture: NDArray[np.uint8] | None, below: str) -> None:
    ax.set_axis_off()
    if picture is None:
        return
    look: dict[str, Any] = {"cmap": "gray", "vmin": 0, "vmax": 255} if len(picture) == 1 else {}
    ax.imshow(
        picture[0] if len(picture) == 1 else picture[:3].transpose(1, 2, 0), interpolation="nearest", **look
    )
    ax.text(0.5, -0.04, below, transform=ax.transAxes, ha="center", va="top", fontsize=7.5)
