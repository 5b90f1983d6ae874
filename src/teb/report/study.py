"""The figures of a study: curves per environment, and final values beside published ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from teb.report import style
from teb.report.aggregate import aggregate_table, profile_figure
from teb.report.atlas import atlas_figure
from teb.report.bars import bars_figure, seed_dots
from teb.report.curves import learning_curve
from teb.report.exports import csv_table, latex_table
from teb.report.grid import BASELINE, PUBLISHED, Cell, Published, Study, study_table, task_name
from teb.report.statistics import mean_std
from teb.report.style import LineStyle
from teb.report.words import MISSING, SHARES, short_steps

__all__ = [
    "BASELINE", "Cell", "Published", "Study", "curves_figure", "final_figure", "study_table", "write_study",
]  # fmt: skip

_PANELS_PER_ROW = 4
_BANDED = 8
"""Curves of more rows than this are drawn without bands, which would hide each other."""


def write_study(study: Study, folder: Path) -> list[Path]:
    """Write figures as PNG and SVG, and the table as Markdown, LaTeX and CSV; return the paths.

    A study of several environments also gets aggregates over them and performance profiles, one that asks for them
    coverage maps.
    """
    folder = Path(folder)
    paths = style.save(curves_figure(study), folder / "curves")
    final = {"panels": final_figure, "bars": bars_figure}[study.final]
    paths += style.save(final(study), folder / "final")
    for name in study.maps:
        paths += style.save(atlas_figure(study, study.maps[name]), folder / name)
    texts = {"table.md": study_table(study), "table.tex": latex_table(study), "runs.csv": csv_table(study)}
    if len(study.envs) > 1:
        paths += style.save(profile_figure(study), folder / "profiles")
        texts["aggregates.md"] = aggregate_table(study)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
        paths.append(folder / name)
    return paths


def curves_figure(study: Study) -> Figure:
    """What is measured over steps, a line per row: the mean over seeds, with a band of one std if rows are few."""
    with style.applied():
        keys = [_row_key(study, row) for row in study.all_rows]
        columns = style.legend_columns([str(key.get_label()) for key in keys], _width(study))
        figure, panels = _panels(study, height=2.5, extra=0.3 + 0.22 * math.ceil(len(keys) / columns))
        look, band = _styles(study), len(study.all_rows) <= _BANDED
        for env, ax in zip(study.envs, panels, strict=False):
            last, _ = study.steps[env]
            for row in reversed(study.all_rows):
                # One group per row: a row whose runs stem from several configurations is still one line.
                members = [replace(r.until(last), config_hash="") for r in study.cell(row, env).records]
                learning_curve(
                    members, ax, study.measure.series, styles=look, legend=False, band=band, bridge=True
                )
            ax.set_title(task_name(env))
            if last:
                ax.set_xlim(right=1.02 * last)  # as far as all runs went
            else:
                ax.text(0.5, 0.5, MISSING, transform=ax.transAxes, ha="center", color=style.MISSING_GREY)
                ax.set_xticks([])
            ax.label_outer()
        _label_inner_edges(study, panels)
        figure.legend(handles=keys, loc="outside lower center", ncols=columns)
    return figure


def final_figure(study: Study) -> Figure:
    """What is measured at the end: bar = mean, whisker = one std, dot = one seed, hollow diamond = published."""
    count = len(study.listed_rows)
    with style.applied():
        names = max(map(len, study.listed_rows)) / 13  # inches
        figure, panels = _panels(study, height=0.75 + 0.24 * count, extra=0.35, beside=max(0.0, names - 2))
        for env, ax in zip(study.envs, panels, strict=False):
            for place, row in enumerate(study.listed_rows):
                cell = study.cell(row, env) if row in study.all_rows else Cell()
                published = study.published.get(env, {}).get(row)
                if cell.values:
                    _draw_cell(ax, place, cell, _styles(study)[row])
                elif row in study.all_rows or published is None:
                    _say_missing(ax, place, aside=published is not None and published[0] < 0.5)
                if published is not None:
                    _draw_published(ax, place, published, _styles(study)[row])
            _dress_final(ax, study, env)
        figure.legend(handles=_final_keys(study), loc="outside lower center", ncols=4)
    return figure


def _grid(study: Study) -> tuple[int, int]:
    """Rows and columns of panels."""
    rows = math.ceil(len(study.envs) / _PANELS_PER_ROW)
    return rows, math.ceil(len(study.envs) / max(rows, 1))


def _width(study: Study) -> float:
    """Width of the figure in inches."""
    return max(6.5, 2.75 * _grid(study)[1])


def _panels(study: Study, height: float, extra: float, beside: float = 0.0) -> tuple[Figure, list[Axes]]:
    if not study.envs:
        raise ValueError("envs: expected at least one environment, got none")
    rows, columns = _grid(study)
    figure = style.new_figure(_width(study) + beside, height * rows + extra)
    panels = list(figure.subplots(rows, columns, squeeze=False, sharey=True).flat)
    for ax in panels[len(study.envs) :]:
        ax.set_axis_off()
    return figure, panels


def _label_inner_edges(study: Study, panels: Sequence[Axes]) -> None:
    """Bring back the step labels of a panel that has an empty place below it."""
    columns = panels[0].get_subplotspec().get_gridspec().ncols  # type: ignore[union-attr]
    for ax in panels[max(len(study.envs) - columns, 0) : len(study.envs)]:
        ax.xaxis.set_tick_params(labelbottom=True)
        ax.set_xlabel("environment steps")


def _row_key(study: Study, row: str) -> Line2D:
    look = _styles(study)[row]
    there = any(study.cell(row, env).values for env in study.envs)
    return Line2D(
        [], [], color=look.colour, linestyle=look.stroke, label=row if there else f"{row} ({MISSING})"
    )


def _say_missing(ax: Axes, place: int, *, aside: bool) -> None:
    """At the left, or aside at the right where a published number stands at the left."""
    where, side = (0.98, "right") if aside else (0.02, "left")
    beside = ax.get_yaxis_transform()
    ax.text(where, place, MISSING, va="center", ha=side, color=style.MISSING_GREY, transform=beside)


def _draw_cell(ax: Axes, place: int, cell: Cell, look: LineStyle) -> None:
    mean, std = mean_std(cell.values)
    ax.barh(place, mean, height=0.62, color=look.colour, alpha=0.3, linewidth=0)
    if math.isfinite(std):
        ax.errorbar(mean, place, xerr=std, color=look.colour, capsize=2.5, linewidth=1.4)
    ax.plot([mean, mean], [place - 0.31, place + 0.31], color=look.colour, linewidth=2, clip_on=False)
    # Seeds lie close together; side by side in their order they can be counted.
    beside = place + 0.2 * np.linspace(-1, 1, len(cell.values)) if len(cell.values) > 1 else [place]
    ax.plot(cell.values, beside, **seed_dots(look))


def _draw_published(ax: Axes, place: int, value: tuple[float, float], look: LineStyle) -> None:
    mean, std = value
    ax.errorbar(
        mean, place, xerr=std if math.isfinite(std) else None, color=look.colour, capsize=2.5, linewidth=1.0
    )
    ax.plot(
        mean,
        place,
        "D",
        markersize=5.5,
        markerfacecolor="white",
        markeredgecolor=look.colour,
        zorder=4,
        clip_on=False,  # a rate of 0 or 1 lies on the edge
    )


def _dress_final(ax: Axes, study: Study, env: str) -> None:
    names = [row if row in study.all_rows else f"{row} {PUBLISHED}" for row in study.listed_rows]
    steps, cut = study.steps[env]
    ax.set_title(task_name(env))
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    after = f" at {short_steps(steps)} steps{' (shortest run)' if cut else ''}" if steps else ""
    ax.set_xlabel(study.measure.name + after)
    if study.measure.series in SHARES:
        ax.set_xlim(0, 1)


def _final_keys(study: Study) -> list[Line2D | Patch]:
    ink = "#4a4a4a"
    keys: list[Line2D | Patch] = [
        Patch(color=ink, alpha=0.3, label="mean over seeds"),
        Line2D([], [], color=ink, linewidth=1.4, label="± 1 standard deviation"),
        Line2D([], [], color=ink, marker="o", markersize=4, linestyle="none", label="one seed"),
    ]
    if study.published_rows:
        keys.append(
            Line2D(
                [], [], color=ink, marker="D", markerfacecolor="white", linestyle="none", label="published"
            )
        )
    return keys


def _styles(study: Study) -> dict[str, LineStyle]:
    return style.line_styles([*study.all_rows, *study.published_rows])
