"""Which records belong together, and at how many steps they may be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from teb.report.records import Record
from teb.report.statistics import step_values


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


def compare(records: Sequence[Record]) -> Comparison:
    """Headline of each run of one environment at the largest number of steps that all have reached.

    A run without any headline value does not hold the others back and gives NaN. Runs of equal length give
    their final value; otherwise all values come from the curves, as the last one logged by then.
    """
    lengths = [_reached(record) for record in records]
    known = [length for length in lengths if length is not None]
    if not known:
        return Comparison(0, False, (float("nan"),) * len(records))
    totals = {record.env_steps for record, length in zip(records, lengths, strict=True) if length is not None}
    if len(totals) == 1:
        return Comparison(totals.pop(), False, tuple(_final(record) for record in records))
    steps = min(known)
    return Comparison(steps, True, tuple(_value_at(record, steps) for record in records))


def _reached(record: Record) -> int | None:
    curve = record.series(record.headline)
    if curve is not None:
        return int(curve[0][-1])
    return record.env_steps if np.isfinite(record.final.get(record.headline, np.nan)) else None


def _final(record: Record) -> float:
    value = record.final.get(record.headline, float("nan"))
    curve = record.series(record.headline)
    if np.isfinite(value) or curve is None:
        return value
    return float(curve[1][np.isfinite(curve[1])][-1])


def _value_at(record: Record, steps: int) -> float:
    curve = record.series(record.headline)
    if curve is not None:
        return float(step_values(*curve, [steps])[0])
    return record.final.get(record.headline, float("nan")) if record.env_steps == steps else float("nan")
