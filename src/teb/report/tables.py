"""Tables for the terminal and for Markdown pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from teb.report.comparison import Group, compare, groups
from teb.report.records import Record
from teb.report.statistics import mean_std
from teb.report.words import MISSING, duration, number, series_name, short_steps, spread


def summary_table(records: Sequence[Record], by: Literal["run", "label"] = "run") -> Table:
    """One row per run, or one per label and environment with mean ± std over its seeds.

    Runs of one environment are compared at the largest number of steps that all of them have reached; the
    caption says so where that is less than some run's length.
    """
    results, notes = _results(records)
    table = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        caption=Text("\n".join(notes)) if notes else None,
        caption_justify="left",
        caption_style="",
    )
    for header in ("environment", "method", "seed" if by == "run" else "seeds"):
        table.add_column(header, overflow="fold")
    headlines = {record.headline for record in records}
    result = series_name(headlines.pop()) if len(headlines) == 1 else ""
    for header in ("steps", result or "headline", "at steps", "wall-clock"):
        table.add_column(header, justify="right", overflow="fold")
    for group in groups(records):
        parts = [group] if by == "label" else [_single(group, record) for record in group.records]
        for part in parts:
            table.add_row(*(Text(cell) for cell in _row(part, results, named=not result)))
    return table


def markdown(rows: Sequence[Sequence[object]], header: Sequence[object]) -> str:
    """A Markdown table; the first column is aligned left, the others right, None prints as missing."""
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"rows: a row has {len(row)} cells, the header has {len(header)}: {list(row)}")
    rule = ["---", *["---:"] * (len(header) - 1)]
    lines = [[_cell(cell) for cell in header], rule, *([_cell(cell) for cell in row] for row in rows)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _results(records: Sequence[Record]) -> tuple[dict[int, tuple[int, float]], list[str]]:
    """`(steps, headline value)` by identity of the record, and a note per environment whose runs were cut."""
    results: dict[int, tuple[int, float]] = {}
    notes = []
    for env, headline in dict.fromkeys((record.env, record.headline) for record in records):
        members = [record for record in records if (record.env, record.headline) == (env, headline)]
        comparison = compare(members)
        for record, value in zip(members, comparison.values, strict=True):
            results[id(record)] = comparison.env_steps, value
        if comparison.cut:
            notes.append(
                f"{env}: compared at {comparison.env_steps:,} steps, the most that all its runs reached"
            )
    return results, notes


def _row(group: Group, results: dict[int, tuple[int, float]], named: bool) -> list[str]:
    records = group.records
    headline = records[0].headline
    values = [value for record in records if np.isfinite(value := results[id(record)][1])]
    result = spread(*mean_std(values), headline) if values else MISSING
    seeds = [str(record.seed) for record in records]
    steps = sorted({record.env_steps for record in records})
    reached = (
        short_steps(steps[0]) if len(steps) == 1 else f"{short_steps(steps[0])}-{short_steps(steps[-1])}"
    )
    return [
        group.env,
        group.name,
        seeds[0] if len(seeds) == 1 else f"{len(seeds)} ({', '.join(seeds)})",
        reached + _unfinished(records),
        f"{series_name(headline)} {result}" if named else result,
        short_steps(results[id(records[0])][0]) if values else "-",
        duration(float(np.mean([record.wall_seconds for record in records]))),
    ]


def _unfinished(records: Sequence[Record]) -> str:
    count = sum(not record.finished for record in records)
    if not count:
        return ""
    if len(records) > 1:
        return f" ({count} unfinished)"
    planned = records[0].planned_steps
    return " (unfinished)" if planned is None else f" of {short_steps(planned)}"


def _single(group: Group, record: Record) -> Group:
    return replace(group, records=(record,))


def _cell(value: object) -> str:
    if value is None:
        return MISSING
    text = number(value, "") if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")
