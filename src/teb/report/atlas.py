"""The coverage maps of a study side by side: mazes down, rows across, all at the same number of steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.layout_engine import ConstrainedLayoutEngine

from teb.report import style
from teb.report.grid import Study, task_name
from teb.report.maps import COLOURBAR_LABEL, draw_visits, map_aspect
from teb.report.records import Record, decode_first_visit
from teb.report.words import MISSING, number, short_steps

_MAP_INCHES = 1.45


def atlas_figure(study: Study, envs: Sequence[str]) -> Figure:
    """One run per cell, that of the lowest seed; over each map its coverage at the steps of the comparison."""
    rows = study.map_rows
    drawn = {
        (row, env): (record, value)
        for row in rows
        for env in envs
        for record, value in zip(study.cell(row, env).records, study.cell(row, env).values, strict=True)
        if record.map and record.seed == min(other.seed for other in study.cell(row, env).records)
    }
    last_step = max((study.steps[env][0] for env in envs), default=0) or 1
    heights = [_height([drawn[row, env][0] for row in rows if (row, env) in drawn]) for env in envs]
    with style.applied():
        tall = _MAP_INCHES * sum(heights) + 0.35 * len(envs) + 1.1
        figure = style.new_figure(_MAP_INCHES * len(rows) + 0.5, tall)
        engine = figure.get_layout_engine()
        assert isinstance(engine, ConstrainedLayoutEngine)
        engine.set(
            rect=(0.0, 0.0, 1.0, 1.0 - 0.25 / tall)
        )  # maps of a fixed shape leave too little for their titles
        panels = figure.subplots(len(envs), len(rows), squeeze=False, height_ratios=heights)
        images = [
            _draw(ax, drawn.get((row, env)), study.steps[env][0] or last_step, last_step)
            for line, env in zip(panels, envs, strict=True)
            for ax, row in zip(line, rows, strict=True)
        ]
        for ax, row in zip(panels[0], rows, strict=True):
            ax.set_title(f"{_broken(row)}\n{ax.get_title()}")
        for line, env in zip(panels, envs, strict=True):
            line[0].text(
                -0.1, 0.5, task_name(env), rotation=90, ha="right", va="center", transform=line[0].transAxes
            )
        known = [image for image in images if image is not None]
        if known:
            label = f"{COLOURBAR_LABEL}, of {short_steps(last_step)}; one run each"
            figure.colorbar(
                known[0], ax=list(panels.flat), label=label, location="bottom", aspect=50, shrink=0.4
            )
    return figure


def _height(records: Sequence[Record]) -> float:
    return float(np.max([map_aspect(record.map) for record in records])) if records else 1.0


def _broken(row: str) -> str:
    """The name of a row over two lines: the agent, and what was changed."""
    agent, space, rest = row.partition(" ")
    return f"{agent}\n{rest.strip('()')}" if space else f"{agent}\n"


def _draw(ax: Axes, cell: tuple[Record, float] | None, steps: float, last_step: float) -> AxesImage | None:
    if cell is None:
        ax.set_axis_off()
        ax.text(0.5, 0.5, MISSING, color=style.MISSING_GREY, ha="center", va="center", transform=ax.transAxes)
        return None
    record, value = cell
    visits = decode_first_visit(record.map)
    image = draw_visits(record.map, np.where(visits > steps, np.nan, visits), ax, last_step)
    ax.set_title(number(value, "coverage"))
    return image
