"""Where the skills of a trained policy go: their trajectories over the walls of a maze."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from teb.report import style
from teb.report.maps import draw_ground, draw_walls, map_aspect
from teb.report.records import Record, RecordError
from teb.report.words import short_steps

Paths = Sequence[Sequence[NDArray[np.floating]]]
"""For each skill its episodes, each of them positions [T+1, 2]."""

_LEGEND_ROWS = 16
_LONGEST_NAMED = 2
_FLAT = 0.45
_FLOOR = "#f4f4f4"
_WALL = 2.4
_BADGE_INCHES = 0.18
_BRIGHT = 0.6


def check_maze(record: Record) -> None:
    """Refuse a run whose record has no walls to draw over."""
    if not record.map.get("walls"):
        raise RecordError(f"{record.label} on {record.env}: skills are drawn in mazes, and this is none")


def show_skills(
    record: Record, skills: NDArray[np.floating], paths: Paths, env_steps: int, stem: Path
) -> list[Path]:
    """Draw the episodes of each skill and write `<stem>.png` and `<stem>.svg`."""
    return style.save(skills_figure(record, skill_names(skills), paths, env_steps), stem)


def skill_names(skills: NDArray[np.floating]) -> list[str]:
    """How a legend calls skills [S, K]: by their place, short vectors also by what they are."""
    one_hot = bool(np.isin(skills, (0.0, 1.0)).all())
    if one_hot or skills.shape[1] > _LONGEST_NAMED:
        return [str(place) for place in range(len(skills))]
    return [
        f"{place}  (" + ", ".join(f"{value:+.1f}" for value in skill) + ")"
        for place, skill in enumerate(skills)
    ]


def skill_colours(count: int) -> list[tuple[float, float, float]]:
    """As many colours that can be told apart: hues around the circle, neighbours of different lightness."""
    tones = ((0.62, 0.80), (0.38, 0.95)) if count > 8 else ((0.47, 0.85),)
    return [
        colorsys.hls_to_rgb(place / count, *_dimmed(place / count, tones[place % len(tones)]))
        for place in range(count)
    ]


def _dimmed(hue: float, tone: tuple[float, float]) -> tuple[float, float]:
    """Yellows and greens look brighter than other hues of the same lightness."""
    lightness, saturation = tone
    return lightness - 0.14 * max(0.0, 1.0 - abs(hue - 0.25) / 0.25), saturation


def skills_figure(record: Record, names: Sequence[str], paths: Paths, env_steps: int) -> Figure:
    """The maze with every episode as a line in its skill's colour, a numbered badge where it ends, and a legend."""
    check_maze(record)
    colours = skill_colours(len(paths))
    with style.applied():
        figure, ax, legend = _sheet(record, names)
        draw_ground(record.map, ax, _FLOOR)
        draw_walls(record.map, ax, width=_WALL, zorder=1)
        for episodes, colour in zip(paths, colours, strict=True):
            lines = LineCollection(
                list(episodes), colors=[colour], linewidths=1.3, capstyle="round", zorder=2
            )
            lines.set_clip_on(False)
            ax.add_collection(lines, autolim=False)
        starts = np.array([path[0] for episodes in paths for path in episodes])
        ax.scatter(
            *starts.T, s=16, color="white", edgecolor=style.INK, linewidth=0.9, zorder=4, clip_on=False
        )
        ends = [np.array([path[-1] for path in episodes]) for episodes in paths]
        _draw_badges(ax, ends, colours)
        each = f"{len(paths[0])} episode{'s' if len(paths[0]) > 1 else ''} of each skill"
        ax.set_title(
            f"{record.label} on {record.task}, seed {record.seed}\n{each} after {short_steps(env_steps)} steps"
        )
        handles = [
            Line2D([], [], color=colour, linewidth=3.0, label=name)
            for name, colour in zip(names, colours, strict=True)
        ]
        figure.legend(handles=handles, title="skill", handlelength=1.2, columnspacing=1.0, **legend)
    return figure


def _sheet(record: Record, names: Sequence[str]) -> tuple[Figure, Axes, dict[str, Any]]:
    """A figure of the maze's shape and where its legend goes: below a flat maze, beside any other."""
    aspect = map_aspect(record.map)
    longest = max(len(name) for name in names)
    if aspect < _FLAT:
        columns = max(1, round(9.0 / (0.7 + 0.075 * longest)))
        height = 9.0 * aspect + 1.4 + 0.22 * -(-len(names) // columns)
        place: dict[str, Any] = {"loc": "outside lower center", "ncols": columns}
        figure = style.new_figure(9.0, height)
    else:
        columns = -(-len(names) // _LEGEND_ROWS)
        width = min(6.4, 5.6 / aspect)
        place = {"loc": "outside right center", "ncols": columns}
        figure = style.new_figure(width + (0.6 + 0.075 * longest) * columns, width * aspect + 0.6)
    return figure, figure.subplots(), place


def _draw_badges(
    ax: Axes, ends: Sequence[NDArray[np.floating]], colours: Sequence[tuple[float, float, float]]
) -> None:
    """A dot where each episode ends, and the number of its skill beside the middlemost, clear of other numbers."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # only now is it known how many inches a unit of the maze takes
    left, right = ax.get_xlim()
    unit = ax.get_window_extent().width / figure.dpi / (right - left)
    gap = _BADGE_INCHES / unit
    middles = [each[np.linalg.norm(each - np.median(each, 0), axis=1).argmin()] for each in ends]
    places = np.array(spread(middles, gap))
    for number, (each, place, colour) in enumerate(zip(ends, places, colours, strict=True)):
        ax.plot(*np.stack([middles[number], place]).T, color=colour, linewidth=0.9, zorder=4, clip_on=False)
        ax.scatter(*each.T, s=13, color=[colour], edgecolor="white", linewidth=0.5, zorder=5, clip_on=False)
        ax.scatter(*place, s=105, color=[colour], edgecolor="white", linewidth=0.7, zorder=6, clip_on=False)
        ink = style.INK if _luminance(colour) > _BRIGHT else "white"
        ax.annotate(
            str(number), (place[0], place[1]), ha="center", va="center_baseline", color=ink,
            fontsize=6.5, fontweight="bold", zorder=7, annotation_clip=False,
        )  # fmt: skip
    _make_room(ax, places, 0.6 * gap, unit)


def _make_room(ax: Axes, places: NDArray[np.floating], margin: float, unit: float) -> None:
    """Widen axes and figure until the places [S, 2] have a margin; a unit of the maze stays as long as it was."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    now = np.array([ax.get_xlim(), ax.get_ylim()])
    low = np.minimum(now[:, 0], places.min(0) - margin)
    high = np.maximum(now[:, 1], places.max(0) + margin)
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    width, height = figure.get_size_inches() + unit * (high - low - now[:, 1] + now[:, 0])
    figure.set_size_inches(width, height)


def _luminance(colour: tuple[float, float, float]) -> float:
    """How bright the eye finds red, green and blue together (the weights of ITU-R BT.709)."""
    return float(np.dot((0.2126, 0.7152, 0.0722), colour))


def spread(points: Sequence[NDArray[np.floating]], gap: float) -> list[NDArray[np.floating]]:
    """The points in turn, each moved no farther than needed for a distance of `gap` from those before it."""
    placed: list[NDArray[np.floating]] = []
    for point in points:
        rings = np.arange(len(points) + 1)[:, None] * gap * 0.55
        angles = np.linspace(0, 2 * np.pi, 16, endpoint=False)
        tries = point + np.stack([rings * np.cos(angles), rings * np.sin(angles)], -1).reshape(-1, 2)
        free = [spot for spot in tries if all(np.linalg.norm(spot - other) >= gap for other in placed)]
        placed.append(free[0] if free else point)
    return placed
