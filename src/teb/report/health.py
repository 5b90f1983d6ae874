"""How a run that learns from pictures is doing: success and return, training and evaluation, bonus, representation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from teb.report import style
from teb.report.comparison import groups
from teb.report.curves import bonus_curve, has_bonus, learning_curve, line_styles_of, stroke_curves
from teb.report.records import Record
from teb.report.style import LineStyle

_COLUMNS = 3
_WIDTH, _HEIGHT = 3.7, 2.7
_RATIO = "metric_ratio"


class Panel(NamedTuple):
    """Some series on one pair of axes."""

    label: str
    names: dict[str, str]
    """What each series is called."""


LEARNING = (
    Panel("success rate", {"success": "training, last 20 episodes", "eval_success": "evaluation"}),
    Panel("return of an episode", {"episode_return": "training", "eval_return": "evaluation"}),
)
REPRESENTATION = (
    Panel("standard deviation of latents", {"latent_std": ""}),
    Panel("metric: target / distance", {_RATIO: ""}),
    Panel("sigma of predicted rewards", {"sigma_mean": ""}),
)
"""Panels in the order in which they are drawn; the bonus comes between."""


def has_health(record: Record) -> bool:
    """Whether there is more to draw than headline and bonus: evaluations, or latents."""
    return any(record.series(name) is not None for name in ("eval_success", "eval_return", "latent_std"))


def health_figure(records: Sequence[Record]) -> Figure:
    """Every panel for which some run has a series; several runs share them, each in its own colour."""
    records = [with_ratio(record) for record in records]
    found = groups(records)
    styles = line_styles_of(found)
    panels = [_known(part, records) for part in (LEARNING, REPRESENTATION)]
    named = {name for part in panels for panel in part for name in panel.names}
    others = [name for name in dict.fromkeys(record.headline for record in records) if name not in named]
    with_bonus = any(has_bonus(record) for record in records)
    rows = math.ceil((len(others) + sum(map(len, panels)) + with_bonus) / _COLUMNS)
    keys_height = 0.3 + 0.24 * math.ceil(len(found) / 3)
    handles: dict[str, Line2D] = {}
    with style.applied():
        figure = style.new_figure(_COLUMNS * _WIDTH, rows * _HEIGHT + keys_height)
        places = iter(figure.subplots(rows, _COLUMNS, squeeze=False).flat)
        for headline in others:
            learning_curve(records, next(places), headline, styles=styles, legend=False)
        for panel in panels[0]:
            handles |= _draw(records, panel, next(places), styles)
        if with_bonus:
            bonus_curve(records, next(places), styles=styles, legend="above")
        for panel in panels[1]:
            handles |= _draw(records, panel, next(places), styles)
        for ax in places:
            ax.set_axis_off()
        figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=min(len(handles), 3))
    return figure


def _known(panels: Sequence[Panel], records: Sequence[Record]) -> list[Panel]:
    """The panels that some run has a series for."""
    return [panel for panel in panels if any(record.series(n) for record in records for n in panel.names)]


def with_ratio(record: Record) -> Record:
    """The record with one series more: the metric's mean target over its mean distance, 1 where they agree."""
    target, distance = (record.curves.get(name) for name in ("metric_target", "metric_distance"))
    if target is None or distance is None:
        return record
    ratio = np.divide(target, distance, out=np.full(len(target), np.nan), where=distance > 0)
    return dataclasses.replace(record, curves={**record.curves, _RATIO: ratio})


def _draw(
    records: Sequence[Record], panel: Panel, ax: Axes, styles: Mapping[str, LineStyle]
) -> dict[str, Line2D]:
    """Draw one panel; returns a line per run in its own style, for the legend below."""
    lines = stroke_curves(records, ax, panel.label, panel.names, styles=styles, legend="above", bridge=True)
    if panel.label == "success rate":
        ax.set_ylim(-0.03, 1.03)
    if _RATIO in panel.names:
        ax.axhline(1.0, color=style.MISSING_GREY, linewidth=1.0, zorder=0)
    solid = [line for line in lines if line.get_linestyle() in ("-", "solid")]
    return {str(line.get_label()): line for line in solid}
