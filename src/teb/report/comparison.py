"""Which records belong together, and at how many steps they may be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from teb.report.records import Record
from teb.report.statistics import step_values
from teb.report.words import series_name


@dataclass(frozen=True)
class Measure:
    """The number that a run is compared by."""

    series: str
    """Name of a curve."""
    best: bool = False
    """Its largest value up to the step of the comparison instead of the last one."""

    @property
    def name(self) -> str:
        """How axes and tables call it."""
        return f"best {series_name(self.series)}" if self.best else series_name(self.series)


COVERAGE = Measure("coverage")
BEST_SUCCESS = Measure("eval_success", best=True)
"""Share of solved episodes in the best evaluation of a run."""


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed only; `legend` is the name where environments share a picture."""

    name: str
    legend: str
    label: str
    env: str
    records: tuple[Record, ...]


@dataclass(frozen=True)
class Comparison:
    """Headline values of runs at one number of steps; `cut` if some run went further than that."""

    env_steps: int
    cut: bool
    values: tuple[float, ...]


def groups(records: Sequence[Record]) -> list[Group]:
    """Group by env, label and configuration, in order of appearance.

    Where one label stands for several configurations, the name tells them apart by the start of their hash.
    """
    found: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        found.setdefault((record.env, record.label, record.config_hash), []).append(record)
    pairs = [(env, label) for env, label, _ in found]
    several_envs = len({env for env, _ in pairs}) > 1
    made = []
    for (env, label, config_hash), members in found.items():
        name = f"{label} [{config_hash[:6]}]" if pairs.count((env, label)) > 1 else label
        legend = f"{name} on {members[0].task}" if several_envs else name
        made.append(Group(name, legend, label, env, tuple(members)))
    return made


def compare(records: Sequence[Record], measure: Measure | None = None, at: int | None = None) -> Comparison:
    """A value of each run of one environment at the largest number of steps that all have reached, or at `at`.

    Without a measure it is the last value of each run's headline. A run without any value does not hold the others
    back and gives NaN. Runs of equal length give their final value; otherwise all values come from the curves.
    `cut` says that some run went further, or with `at`, that not all came that far.
    """
    measures = [measure or Measure(record.headline) for record in records]
    lengths = [_reached(record, of.series) for record, of in zip(records, measures, strict=True)]
    known = [length for length in lengths if length is not None]
    if not known:
        return Comparison(0, False, (float("nan"),) * len(records))
    totals = {record.env_steps for record, length in zip(records, lengths, strict=True) if length is not None}
    if len(totals) == 1 and (at is None or at == min(totals)) and not any(of.best for of in measures):
        values = (_final(record, of.series) for record, of in zip(records, measures, strict=True))
        return Comparison(totals.pop(), False, tuple(values))
    shortest = min(known)
    steps = shortest if at is None else min(shortest, at)
    cut = len(totals) > 1 if at is None else steps < at
    return Comparison(
        steps, cut, tuple(_value_at(record, of, steps) for record, of in zip(records, measures, strict=True))
    )


def _reached(record: Record, series: str) -> int | None:
    curve = record.series(series)
    if curve is not None:
        return int(curve[0][-1])
    return record.env_steps if np.isfinite(record.final.get(series, np.nan)) else None


def _final(record: Record, series: str) -> float:
    value = record.final.get(series, float("nan"))
    curve = record.series(series)
    if np.isfinite(value) or curve is None:
        return value
    return float(curve[1][np.isfinite(curve[1])][-1])


def _value_at(record: Record, measure: Measure, steps: int) -> float:
    curve = record.series(measure.series)
    if curve is None:
        return record.final.get(measure.series, float("nan")) if record.env_steps == steps else float("nan")
    if measure.best:
        by_then = curve[1][(curve[0] <= steps) & np.isfinite(curve[1])]
        return float(by_then.max()) if by_then.size else float("nan")
    return float(step_values(*curve, [steps])[0])
