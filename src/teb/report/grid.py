"""A grid of variants over environments: which runs fill which cell, and the Markdown table of it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from teb.report.comparison import COVERAGE, Measure, compare
from teb.report.records import Record, RecordWarning
from teb.report.statistics import bootstrap_interval, mean_std
from teb.report.tables import markdown
from teb.report.words import MISSING, number, spread

BASELINE = "uniform"

PUBLISHED = "(published)"
"""How rows with numbers from papers are marked."""

FEW_SEEDS = 5
"""Below this many seeds a table says that its intervals are rough."""

FinalKind = Literal["panels", "bars"]
"""A panel per environment with published values beside ours, or bars side by side, a group per environment."""

Published = Mapping[str, Mapping[str, tuple[float, float]]]


@dataclass(frozen=True)
class Cell:
    """Finished runs of a row on one environment, and what they measure at the steps that all rows reached."""

    records: tuple[Record, ...] = ()
    values: tuple[float, ...] = ()

    @property
    def mixed(self) -> bool:
        """Whether its runs come from more than one configuration."""
        return len({record.config_hash for record in self.records}) > 1


@dataclass(frozen=True)
class Study:
    """What to compare: `rows` are labels of records, `published` is `{env: {row: (mean, std)}}` from papers.

    The uniform policy is a row of every study, asked for or not. Unfinished runs are left out with a warning. Runs are
    compared after `at` steps, or without it at the most that all of an environment have reached.
    """

    records: Sequence[Record]
    rows: Sequence[str]
    envs: Sequence[str]
    published: Published = field(default_factory=dict)
    measure: Measure = COVERAGE
    at: int | None = None
    remarks: Sequence[str] = ()
    """What readers of its tables should know beside what the numbers tell, a sentence each."""
    maps: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Figures of coverage maps: the environments of each, by name."""
    map_rows: Sequence[str] = ()
    """The rows that these figures show."""
    final: FinalKind = "panels"
    """How final values are drawn."""

    @cached_property
    def all_rows(self) -> tuple[str, ...]:
        """The rows without repetition, with the uniform policy."""
        return tuple(dict.fromkeys([*self.rows, BASELINE]))

    @cached_property
    def published_rows(self) -> tuple[str, ...]:
        """Rows with a published number, in the order of the study, then those that only papers have."""
        named = {row for env in self.envs for row in self.published.get(env, {})}
        first = [row for row in self.all_rows if row in named]
        others = [row for env in self.envs for row in self.published.get(env, {})]
        return tuple(dict.fromkeys([*first, *others]))

    @cached_property
    def listed_rows(self) -> tuple[str, ...]:
        """All rows, and below them those that only papers have."""
        return tuple(dict.fromkeys([*self.all_rows, *self.published_rows]))

    @cached_property
    def steps(self) -> dict[str, tuple[int, bool]]:
        """By environment: the number of steps of the comparison, and whether runs ended short of what was wanted."""
        return {env: (self._grid[env][0], self._grid[env][1]) for env in self.envs}

    def cell(self, row: str, env: str) -> Cell:
        """The runs of one row on one environment; empty if missing."""
        return self._grid[env][2][row]

    @cached_property
    def _grid(self) -> dict[str, tuple[int, bool, dict[str, Cell]]]:
        return {env: self._compared(env) for env in self.envs}

    def _compared(self, env: str) -> tuple[int, bool, dict[str, Cell]]:
        found = {row: _choose(self.records, row, env) for row in self.all_rows}
        flat = [record for row in self.all_rows for record in found[row]]
        comparison = compare(flat, self.measure, self.at)
        value = dict(zip(map(id, flat), comparison.values, strict=True))
        cells = {}
        for row, records in found.items():
            known = tuple(record for record in records if math.isfinite(value[id(record)]))
            cells[row] = Cell(known, tuple(value[id(record)] for record in known))
        return comparison.env_steps, comparison.cut, cells


def study_table(study: Study) -> str:
    """The Markdown table of final values with notes on what the numbers are."""
    header, rows = table_cells(study)
    return markdown(rows, header) + "\n" + "\n\n".join(notes(study)) + "\n"


def table_cells(study: Study) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of final values, as text."""
    several, series = len(study.envs) > 1, study.measure.series
    header = ["", *(task_name(env) for env in study.envs), *(["mean [95 %]"] if several else [])]
    rows = []
    for row in study.listed_rows:
        if row in study.all_rows:
            cells = [study.cell(row, env) for env in study.envs]
            overall = [_overall(cells, series)] if several else []
            rows.append([row, *(_cell_text(cell, series) for cell in cells), *overall])
        if row in study.published_rows:
            numbers = [study.published.get(env, {}).get(row) for env in study.envs]
            texts = [MISSING if number is None else spread(*number, series) for number in numbers]
            rows.append([f"{row} {PUBLISHED}", *texts, *(["-"] if several else [])])
    return header, rows


def _choose(records: Sequence[Record], row: str, env: str) -> list[Record]:
    """Finished runs of a cell by seed; of a seed that ran twice the newest."""
    chosen: dict[int, Record] = {}
    for record in records:
        if (record.label, record.env) != (row, env):
            continue
        if not record.finished:
            warnings.warn(
                f"{row} on {env}, seed {record.seed}: left out, unfinished", RecordWarning, stacklevel=2
            )
            continue
        other = chosen.get(record.seed)
        if other is not None:
            message = f"{row} on {env}, seed {record.seed}: ran under two configurations, kept the newest"
            warnings.warn(message, RecordWarning, stacklevel=2)
        if other is None or record.started_at >= other.started_at:
            chosen[record.seed] = record
    return [chosen[seed] for seed in sorted(chosen)]


def _cell_text(cell: Cell, series: str) -> str:
    if not cell.values:
        return MISSING
    mark = " †" if cell.mixed else ""
    if len(cell.values) == 1:
        return f"{number(cell.values[0], series)} (1 seed){mark}"
    return f"{spread(*mean_std(cell.values), series)} ({len(cell.values)}){mark}"


def overall(cells: Sequence[Cell]) -> tuple[float, float, float] | None:
    """Mean over environments of the means over seeds, and its interval; None unless every cell has a value."""
    if not all(cell.values for cell in cells):
        return None
    mean = float(np.mean([np.mean(cell.values) for cell in cells]))
    return mean, *bootstrap_interval([cell.values for cell in cells])


def _overall(cells: Sequence[Cell], series: str) -> str:
    found = overall(cells)
    if found is None:
        return MISSING
    text, low, high = (number(value, series) for value in found)
    return f"{text} [{low}, {high}]" if math.isfinite(found[1]) else f"{text} (no interval)"


def notes(study: Study) -> list[str]:
    """What the numbers of a study are, and what they are not, a sentence each."""
    cells = [study.cell(row, env) for row in study.all_rows for env in study.envs]
    what = f"Mean ± sample standard deviation of {study.measure.name} over seeds (number of seeds)"
    lines = [f"{what}; (1 seed) marks a single run."]
    if study.measure.best:
        lines[0] += " The best of many evaluations lies above what a policy does on average, by chance alone."
    if len(study.envs) > 1:
        lines[0] += " The last column is the mean over environments with a bootstrap interval over seeds."
    for steps in dict.fromkeys(study.steps[env] for env in study.envs):
        names = ", ".join(task_name(env) for env in study.envs if study.steps[env] == steps)
        cut = ", the most that all runs reached (some went further)" if steps[1] else ""
        if steps[0]:
            lines.append(f"{names}: after {steps[0]:,} environment steps{cut}.")
    if study.published_rows:
        lines.append(f"Rows marked {PUBLISHED} are numbers from papers, not measured here.")
    lines += study.remarks
    if any(cell.mixed for cell in cells):
        lines.append("† seeds from more than one configuration.")
    seeds = [len(cell.values) for cell in cells if len(cell.values) > 1]
    if seeds and min(seeds) < FEW_SEEDS:
        lines.append(
            f"Some cells have {min(seeds)} seeds: deviations and intervals of so few are rough, and mostly too small."
        )
    return lines


def task_name(env: str) -> str:
    """`square-a` for `maze2d/square-a`."""
    return env.rsplit("/", 1)[-1]
