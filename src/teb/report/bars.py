"""Final values as bars side by side, a group per environment: for ablations, whose rows are few."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from teb.report import style
from teb.report.grid import Cell, Study, task_name
from teb.report.statistics import mean_std
from teb.report.style import LineStyle
from teb.report.words import MISSING, SHARES, short_steps

_HATCH = "////"
"""Of what stands beside a representation."""
_GROUP = 0.84
"""Width of a group; the rest of 1 separates it from the next."""


def bars_figure(study: Study) -> Figure:
    """What is measured at the end: bar = mean, whisker = one std, dot = one seed; published values are not drawn."""
    rows, envs = study.all_rows, study.envs
    looks = style.line_styles([*rows, *study.published_rows])
    width = _GROUP / len(rows)
    with style.applied():
        inches = max(6.5, 0.9 + 0.3 * len(rows) * len(envs))
        keys = [_key(row, looks[row]) for row in rows]
        columns = style.legend_columns(rows, inches)
        figure = style.new_figure(inches, 2.9 + 0.22 * math.ceil(len(rows) / columns))
        ax = figure.subplots()
        for place, row in enumerate(rows):
            for group, env in enumerate(envs):
                centre = group + (place - (len(rows) - 1) / 2) * width
                _draw(ax, centre, width, study.cell(row, env), row, looks[row])
        ax.set_xticks(range(len(envs)), [_named(study, env) for env in envs])
        ax.set_xlim(-0.5, len(envs) - 0.5)
        ax.grid(visible=False, axis="x")
        ax.tick_params(axis="x", length=0)
        ax.set_ylabel(study.measure.name)
        ax.set_title(
            "bar: mean over seeds; whisker: one standard deviation; dot: one seed", loc="left", fontsize=8
        )
        if study.measure.series in SHARES:
            ax.set_ylim(0, 1)
        figure.legend(handles=keys, loc="outside lower center", ncols=columns)
    return figure


def _draw(ax: Axes, centre: float, width: float, cell: Cell, row: str, look: LineStyle) -> None:
    if not cell.values:
        ax.text(
            centre, 0.02, MISSING, rotation=90, ha="center", va="bottom",
            transform=ax.get_xaxis_transform(), color=style.MISSING_GREY,
        )  # fmt: skip
        return
    mean, std = mean_std(cell.values)
    ax.bar(centre, mean, width=0.9 * width, color=look.colour, alpha=0.35, linewidth=0)
    if row.endswith(style.JOINED):
        ax.bar(centre, mean, width=0.9 * width, fill=False, hatch=_HATCH, edgecolor=look.colour, linewidth=0)
    edges = [centre - 0.45 * width, centre + 0.45 * width]
    ax.plot(edges, [mean, mean], color=look.colour, linewidth=2, clip_on=False)
    if math.isfinite(std):
        ax.errorbar(centre, mean, yerr=std, color=look.colour, capsize=2.5, linewidth=1.4)
    beside = (
        centre + 0.25 * width * np.linspace(-1, 1, len(cell.values)) if len(cell.values) > 1 else [centre]
    )
    ax.plot(beside, cell.values, **seed_dots(look))


def seed_dots(look: LineStyle) -> dict[str, Any]:
    """How the values of single seeds are drawn; those at 0 or 1 lie on the edge."""
    edge = {"markeredgecolor": "white", "markeredgewidth": 0.5, "clip_on": False}
    return {"color": look.colour, "marker": "o", "linestyle": "", "markersize": 3.8, "zorder": 4, **edge}


def _key(row: str, look: LineStyle) -> Patch:
    hatch = _HATCH if row.endswith(style.JOINED) else None
    return Patch(
        facecolor=(look.colour, 0.35), edgecolor=(look.colour, 1.0), hatch=hatch, linewidth=0.8, label=row
    )


def _named(study: Study, env: str) -> str:
    steps, cut = study.steps[env]
    after = f"\n{short_steps(steps)} steps{' (shortest run)' if cut else ''}" if steps else ""
    return task_name(env) + after
