"""Where in a maze a run has been, and when it came there first."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from teb.report import style
from teb.report.records import Record, RecordError, decode_first_visit
from teb.report.words import number, short_steps

COLOURBAR_LABEL = "first visit (thousand steps)"
# Mean width of a character of the title font at 9.5 points.
_CHARACTER_INCHES = 0.072


def coverage_map(
    record: Record, ax: Axes, *, last_step: float | None = None, colourbar: bool = True
) -> AxesImage:
    """Draw the maze with each bin coloured by the time of its first visit; return the coloured image.

    `last_step` is where the colour scale ends (default: the run's length); maps side by side should share it.
    """
    if not record.map:
        raise RecordError(
            f"{record.label} on {record.env}, seed {record.seed}: the record holds no coverage map"
        )
    visits = decode_first_visit(record.map)
    with style.applied():
        image = draw_visits(record.map, visits, ax, last_step or record.env_steps or 1)
        ax.set_title(_title(record, visits, inside_cells(record.map), _slot_width(ax)))
        if colourbar:
            ax.figure.colorbar(image, ax=ax, label=COLOURBAR_LABEL, shrink=0.9)
    return image


def draw_visits(map: Mapping[str, Any], visits: NDArray[np.float64], ax: Axes, last_step: float) -> AxesImage:
    """Ground, first visits coloured up to a step, walls."""
    unseen = ~inside_cells(map) | np.isnan(visits)
    draw_ground(map, ax)
    image = ax.imshow(
        np.ma.masked_where(unseen, visits / 1000).T,
        cmap=style.TIME_COLOURS,
        vmin=0,
        vmax=last_step / 1000,
        **_place(map),
    )
    draw_walls(map, ax)
    return image


def draw_ground(map: Mapping[str, Any], ax: Axes, colour: str = style.UNVISITED) -> None:
    """Fill the cells of a maze with one colour."""
    inside = inside_cells(map)
    cells = np.zeros((*inside.shape, 4))
    cells[inside] = to_rgba(colour)
    ax.imshow(cells.swapaxes(0, 1), **_place(map))


def _place(map: Mapping[str, Any]) -> dict[str, Any]:
    (left, right), (bottom, top) = map["bounds"]
    return {"origin": "lower", "extent": (left, right, bottom, top), "interpolation": "nearest"}


def draw_walls(map: Mapping[str, Any], ax: Axes, width: float = 1.6, zorder: float = 3) -> None:
    """Draw the walls of a maze in axes that show the maze and nothing else."""
    (left, right), (bottom, top) = map["bounds"]
    walls = LineCollection(
        map["walls"], colors=style.INK, linewidths=width, capstyle="projecting", zorder=zorder
    )
    walls.set_clip_on(False)
    ax.add_collection(walls, autolim=False)
    ax.set(xlim=(left, right), ylim=(bottom, top), aspect="equal")
    ax.set_axis_off()


def inside_cells(map: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Which bins lie inside a cell of the maze, `[nx, ny]`."""
    (left, _), (bottom, _) = map["bounds"]
    nx, ny = map["shape"]
    # A cell is the unit square around integers, so a bin's centre rounds to the cell that owns it.
    column = np.rint(left + (np.arange(nx) + 0.5) * map["bin"]).astype(int)
    row = np.rint(bottom + (np.arange(ny) + 0.5) * map["bin"]).astype(int)
    inside = np.zeros((nx, ny), dtype=bool)
    for i, j in map["cells"]:
        inside |= (column == i)[:, None] & (row == j)[None, :]
    return inside


def map_aspect(map: Mapping[str, Any]) -> float:
    """Height of the maze divided by its width."""
    (left, right), (bottom, top) = map["bounds"]
    return (top - bottom) / (right - left)


def _title(record: Record, visits: NDArray[np.float64], inside: NDArray[np.bool_], width: float) -> str:
    coverage = record.final.get("coverage", float("nan"))
    if not np.isfinite(coverage):
        coverage = float((inside & ~np.isnan(visits)).sum() / max(inside.sum(), 1))
    who = f"{record.label} on {record.map.get('maze', record.task)},"
    seed = f"seed {record.seed}:"
    result = f"{number(coverage, 'coverage')} after {short_steps(record.env_steps)}"
    result += "" if record.finished else " (unfinished)"
    characters = max(int(width / _CHARACTER_INCHES), 12)
    line = f"{who} {seed} {result}"
    if len(line) <= characters:
        return line
    parts = textwrap.wrap(who, characters, break_on_hyphens=False) + textwrap.wrap(
        f"{seed} {result}", characters
    )
    return "\n".join(parts)


def _slot_width(ax: Axes) -> float:
    figure = ax.get_figure(root=True)
    return ax.get_window_extent().width / figure.dpi if figure is not None else 4.0
