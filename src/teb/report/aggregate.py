"""Rows of a study over all its environments: aggregates with intervals, performance profiles."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure

from teb.report import style
from teb.report.grid import BASELINE, Study
from teb.report.statistics import (
    Floats,
    bootstrap_interval,
    improvement_probability,
    mean_of_means,
    median_of_means,
    performance_profile,
    pooled_iqm,
)
from teb.report.tables import markdown
from teb.report.words import MISSING, SHARES, number

_WIDTH = 6.5
_BANDED = 6
"""Profiles of more rows than this are drawn without bands, which would hide each other."""

STATISTICS = {"mean": mean_of_means, "median": median_of_means, "IQM": pooled_iqm}
"""Aggregates over tasks and seeds, by the name that headers give them."""


def complete_rows(study: Study) -> dict[str, list[Floats]]:
    """Values by environment of every row that has runs on all of them: what can be aggregated."""
    found = {row: [np.asarray(study.cell(row, env).values) for env in study.envs] for row in study.all_rows}
    return {row: strata for row, strata in found.items() if all(values.size for values in strata)}


def aggregate_table(study: Study) -> str:
    """Mean, median and interquartile mean of each complete row, and how likely it beats the uniform policy."""
    rows = complete_rows(study)
    header = ["", *STATISTICS, f"P(better than {BASELINE})"]
    lines = [
        [row, *_texts(rows, row, study.measure.series)]
        if row in rows
        else [row, *[MISSING] * (len(header) - 1)]
        for row in study.all_rows
    ]
    what = study.measure.name
    return markdown(lines, header) + (
        f"\nAggregates of {what} over {len(study.envs)} environments and all seeds, with 95 % intervals of a "
        "bootstrap that resamples seeds within each environment: the mean over environments of their means, the median "
        "of their means, and the mean of the middle half of all runs (IQM). The last column is the probability that a "
        f"run of the row ends above a {BASELINE} run of the same environment. Rows without runs on every environment "
        "are missing here.\n"
    )


def profile_figure(study: Study) -> Figure:
    """Share of runs above each level, one line per complete row, with bands of 95 % if rows are few."""
    rows = complete_rows(study)
    looks = style.line_styles([*study.all_rows, *study.published_rows])
    top = max((values.max() for strata in rows.values() for values in strata), default=1.0)
    levels = np.linspace(0.0, 1.0 if study.measure.series in SHARES else top, 501)
    with style.applied():
        columns = style.legend_columns(list(rows), _WIDTH)
        figure = style.new_figure(_WIDTH, 3.2 + 0.22 * math.ceil(len(rows) / columns))
        ax = figure.subplots()
        for row, strata in rows.items():
            look = looks[row]
            ax.plot(
                levels,
                performance_profile(strata, levels),
                color=look.colour,
                linestyle=look.stroke,
                label=row,
            )
            if len(rows) <= _BANDED:
                low, high = _profile_band(strata, levels)
                ax.fill_between(levels, low, high, color=look.colour, alpha=0.12, linewidth=0)
        ax.set_xlabel(f"{study.measure.name} at the end")
        ax.set_ylabel("share of runs above")
        ax.set_xlim(levels[0], levels[-1])
        ax.set_ylim(0, 1.02)
        if rows:
            figure.legend(loc="outside lower center", ncols=columns)
    return figure


def aggregates(rows: dict[str, list[Floats]], row: str) -> list[tuple[float, float, float]]:
    """Each of `STATISTICS` of a complete row with its interval, then the probability that it beats the uniform policy.

    That is left out of the uniform policy's own row, and where there is no such row.
    """
    found = [
        (float(statistic(rows[row])), *bootstrap_interval(rows[row], statistic=statistic))
        for statistic in STATISTICS.values()
    ]
    if row != BASELINE and BASELINE in rows:
        pair = rows[row], rows[BASELINE]
        interval = bootstrap_interval(*pair, statistic=improvement_probability)
        found.append((float(improvement_probability(*pair)), *interval))
    return found


def _texts(rows: dict[str, list[Floats]], row: str, series: str) -> list[str]:
    names = [*[series] * len(STATISTICS), "coverage"]
    found = aggregates(rows, row)
    texts = [_with_interval(*triple, name) for triple, name in zip(found, names, strict=False)]
    return texts + ["-"] * (len(names) - len(texts))


def _with_interval(value: float, low: float, high: float, series: str) -> str:
    interval = f" [{number(low, series)}, {number(high, series)}]" if math.isfinite(low) else ""
    return number(value, series) + interval


def _profile_band(strata: list[Floats], levels: Floats, resamples: int = 500) -> tuple[Floats, Floats]:
    random = np.random.default_rng(0)
    drawn = [values[random.integers(values.size, size=(resamples, values.size))] for values in strata]
    low, high = np.quantile(performance_profile(drawn, levels), [0.025, 0.975], axis=0)
    return low, high
