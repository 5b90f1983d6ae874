"""Series over environment steps: one line per run, or mean and band over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from teb.report import style
from teb.report.comparison import Group, groups
from teb.report.records import Record
from teb.report.statistics import Floats, align, common_grid, measured
from teb.report.style import LineStyle
from teb.report.words import SHARES, series_name, short_steps

BONUS_NAMES = {
    "bonus_mean": "mean",
    "bonus_abs_p50": "median of |bonus|",
    "bonus_abs_p95": "95th percentile of |bonus|",
}
_STROKES: tuple[Any, ...] = ("solid", (0, (5, 1.5, 1, 1.5)), (0, (1, 1.2)))

_ABOVE: dict[str, Any] = {
    "loc": "lower left",
    "bbox_to_anchor": (0.0, 1.0),
    "fontsize": 7.5,
    "columnspacing": 1.0,
    "borderaxespad": 0.2,
    "labelspacing": 0.2,
}

Legend = bool | Literal["above"]
"""Whether strokes are explained, in the axes where there is most room or above them."""


def learning_curve(
    records: Sequence[Record],
    ax: Axes,
    series: str,
    *,
    styles: Mapping[str, LineStyle] | None = None,
    legend: bool = True,
    band: bool = True,
    bridge: bool = False,
) -> list[Line2D]:
    """Draw one series: a line per run, or mean and band of one std over runs that differ in seed.

    The mean ends where the shortest of its runs ends. `styles` maps groups' legends to line styles, and `bridge` is
    that of `stroke_curves`.
    """
    found = groups(records)
    styles = styles or line_styles_of(found)
    with style.applied():
        lines = [
            line
            for group in found
            for line in _draw_group(group, ax, series, styles[group.legend], band=band, bridge=bridge)
        ]
        dress_axes(ax, series)
        if legend and lines:
            ax.legend(handles=lines)
    return lines


def bonus_curve(
    records: Sequence[Record],
    ax: Axes,
    *,
    styles: Mapping[str, LineStyle] | None = None,
    legend: Legend = True,
) -> list[Line2D]:
    """Draw the intrinsic bonus: colour tells the run, stroke tells mean, median or 95th percentile."""
    lines = stroke_curves(records, ax, "intrinsic bonus", BONUS_NAMES, styles=styles, legend=legend)
    with style.applied():
        if _spans_decades(lines):
            ax.set_yscale("log")
    return lines


def stroke_curves(
    records: Sequence[Record],
    ax: Axes,
    label: str,
    names: Mapping[str, str],
    *,
    styles: Mapping[str, LineStyle] | None = None,
    legend: Legend = True,
    bridge: bool = False,
) -> list[Line2D]:
    """Draw up to three series into one panel: colour tells the run, stroke tells the series.

    `names` says what each series is called in the legend. With `bridge` a line goes straight over steps at which
    nothing was measured, as between evaluations; otherwise the value before still holds there.
    """
    found = groups(records)
    styles = styles or line_styles_of(found)
    strokes = dict(zip(names, _STROKES, strict=False))
    drawn, lines = [], []
    with style.applied():
        for series in names:
            for group in found:
                look = LineStyle(styles[group.legend].colour, strokes[series])
                new = _draw_group(group, ax, series, look, band=False, bridge=bridge)
                drawn += [series] if new and series not in drawn else []
                lines += new
        dress_axes(ax, label)
        if legend and len(drawn) > 1:
            keys = [_stroke_key(strokes[series], names[series]) for series in drawn]
            above = {"ncols": 2 if len(keys) == 2 else 1, **_ABOVE} if legend == "above" else {}
            ax.legend(handles=keys, handlelength=3, **above)
        elif drawn and len(names) > 1:
            ax.set_ylabel(f"{label}, {names[drawn[0]]}")
    return lines


def has_bonus(record: Record) -> bool:
    """Whether the record holds any series of the intrinsic bonus."""
    return any(record.series(series) is not None for series in BONUS_NAMES)


def line_styles_of(found: Sequence[Group]) -> dict[str, LineStyle]:
    """Styles by legend; a legend that is just a label keeps the colour of that label."""
    return style.line_styles(group.legend for group in found)


def dress_axes(ax: Axes, series: str) -> None:
    """Labels, number format and limits that every curve shares."""
    ax.set_xlabel("environment steps")
    ax.set_ylabel(series_name(series))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_steps(value)))
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    ax.autoscale(axis="x")  # again, since the axes may have been dressed before this curve came
    ax.set_xlim(left=0)
    if series in SHARES:
        ax.set_ylim(0, 1)


def _draw_group(
    group: Group, ax: Axes, series: str, look: LineStyle, *, band: bool = True, bridge: bool = False
) -> list[Line2D]:
    curves = [curve for record in group.records if (curve := record.series(series)) is not None]
    if bridge:
        curves = [measured(*curve) for curve in curves]
    if not curves:
        return []
    grid, rows = _aligned(curves)
    if not grid.size:
        return []
    seeds = f"seed {group.records[0].seed}" if len(group.records) == 1 else f"{len(curves)} seeds"
    name = f"{group.legend} ({seeds})"
    mean = rows.mean(axis=0)
    (line,) = ax.plot(grid, mean, color=look.colour, linestyle=look.stroke, label=name)
    line.set_clip_on(series not in SHARES)  # or half of a line at 0 or 1 would be cut off
    if band and len(curves) > 1:
        std = rows.std(axis=0, ddof=1)
        ax.fill_between(grid, mean - std, mean + std, color=look.colour, alpha=0.18, linewidth=0)
    return [line]


def _aligned(curves: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    grid = common_grid(curves)
    return grid, align(curves, grid)


def _spans_decades(lines: Sequence[Line2D]) -> bool:
    values = np.concatenate(
        [np.asarray(line.get_ydata(), dtype=np.float64) for line in lines] or [np.empty(0)]
    )
    return bool(values.size and values.min() > 0 and values.max() > 50 * values.min())


def _stroke_key(stroke: Any, name: str) -> Line2D:
    return Line2D([], [], color="#4a4a4a", linestyle=stroke, label=name)
