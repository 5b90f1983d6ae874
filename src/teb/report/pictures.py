"""The picture of one or several runs: coverage maps above, curves below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure, SubFigure

from teb.report import style
from teb.report.comparison import groups
from teb.report.curves import bonus_curve, has_bonus, learning_curve, line_styles_of
from teb.report.health import has_health, health_figure
from teb.report.maps import COLOURBAR_LABEL, coverage_map, map_aspect
from teb.report.records import Record

__all__ = ["bonus_curve", "coverage_map", "learning_curve", "runs_figure", "show_runs"]

MAPS_PER_ROW = 6
_CURVES_HEIGHT = 2.9
_TITLE_HEIGHT = 0.62
_BAR_BESIDE = 0.9
_BAR_BELOW = 0.7
_LOWEST_BAR = 2.2


def show_runs(records: Sequence[Record], stem: Path) -> list[Path]:
    """Draw all runs into one figure and write it as `<stem>.png` and `<stem>.svg`."""
    return style.save(runs_figure(records), stem)


def runs_figure(records: Sequence[Record]) -> Figure:
    """Coverage maps of the runs that have one, then the headline of all and their intrinsic bonus.

    Where no run has a map and some tell more, as those that see pictures do, there are the panels of `health`.
    """
    if not records:
        raise ValueError("records: expected at least one run, got none")
    with_map = [record for record in records if record.map]
    if not with_map and any(has_health(record) for record in records):
        return health_figure(records)
    curves_height = _CURVES_HEIGHT + 0.24 * math.ceil(len(groups(records)) / 3)
    with style.applied():
        if not with_map:
            figure = style.new_figure(9, curves_height)
            _draw_curves(records, figure)
            return figure
        sheet = _plan_maps(with_map)
        width = max(9.0, sheet.width)
        figure = style.new_figure(width, sheet.height + curves_height)
        ratios = [sheet.height, curves_height]
        upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=ratios).flat
        if width > sheet.width:
            # An aspect-locked map in a wide figure drifts to one side; margins keep it in the middle.
            margin = (width - sheet.width) / 2
            upper = upper.subfigures(1, 3, squeeze=False, width_ratios=[margin, sheet.width, margin])[0, 1]
        _draw_maps(with_map, upper, sheet)
        _draw_curves(records, lower)
    return figure


@dataclass(frozen=True)
class _Sheet:
    """How the maps are laid out, sizes in inches."""

    rows: int
    columns: int
    width: float
    height: float
    bar_below: bool


def _plan_maps(records: Sequence[Record]) -> _Sheet:
    rows = math.ceil(len(records) / MAPS_PER_ROW)
    columns = math.ceil(len(records) / rows)
    aspect = max(map_aspect(record.map) for record in records)
    map_width = min((8.1 if columns <= 2 else 10.4) / columns, 4.2 / aspect)
    height = rows * (map_width * aspect + _TITLE_HEIGHT)
    # A colourbar beside a flat maze would be shorter than its own label.
    bar_below = height < _LOWEST_BAR
    extra_width, extra_height = (0.0, _BAR_BELOW) if bar_below else (_BAR_BESIDE, 0.0)
    return _Sheet(rows, columns, columns * map_width + extra_width, height + extra_height, bar_below)


def _draw_maps(records: Sequence[Record], part: Figure | SubFigure, sheet: _Sheet) -> None:
    places = list(part.subplots(sheet.rows, sheet.columns, squeeze=False).flat)
    last_step = max(record.env_steps for record in records)
    images = [
        coverage_map(record, ax, last_step=last_step, colourbar=False)
        for record, ax in zip(records, places, strict=False)
    ]
    for ax in places[len(records) :]:
        ax.set_axis_off()
    if sheet.bar_below:
        part.colorbar(images[0], ax=places, label=COLOURBAR_LABEL, location="bottom", aspect=40, shrink=0.5)
    else:
        part.colorbar(images[0], ax=places, label=COLOURBAR_LABEL, aspect=20 * sheet.rows, fraction=0.05)


def _draw_curves(records: Sequence[Record], part: Figure | SubFigure) -> None:
    headlines = list(dict.fromkeys(record.headline for record in records))
    with_bonus = [record for record in records if has_bonus(record)]
    panels = list(part.subplots(1, len(headlines) + bool(with_bonus), squeeze=False).flat)
    styles = line_styles_of(groups(records))
    handles = {}
    for headline, ax in zip(headlines, panels, strict=False):
        lines = learning_curve(records, ax, headline, styles=styles, legend=False)
        handles |= {str(line.get_label()): line for line in lines}
        if not lines:
            ax.text(0.5, 0.5, "no value yet", transform=ax.transAxes, ha="center", color=style.MISSING_GREY)
    if with_bonus:
        bonus_curve(records, panels[-1], styles=styles)
    if handles:
        part.legend(handles=list(handles.values()), loc="outside lower center", ncols=min(len(handles), 3))
