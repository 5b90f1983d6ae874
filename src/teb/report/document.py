"""What the page shows, as plain data: runs, mazes and studies with every number already computed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex

from teb.report import style
from teb.report.aggregate import aggregates, complete_rows
from teb.report.grid import BASELINE, FEW_SEEDS, Cell, Study, notes, overall
from teb.report.maps import inside_cells
from teb.report.packing import LEVELS, UNVISITED, rounded, short, thinned, visit_levels
from teb.report.records import Record, RecordError
from teb.report.statistics import Floats, align, bootstrap_interval, common_grid, mean_std, measured
from teb.report.words import SHARES, series_name

RESAMPLES = 2000
"""Of the intervals along a curve; those of tables take as many as elsewhere."""


@dataclass(frozen=True)
class Chapter:
    """A study on the page: what it is called, and how many of its runs are there."""

    name: str
    title: str
    preset: str
    steps: int
    planned: int
    stored: int
    table: Study
    command: str = ""
    """What names its missing runs."""


def document(
    chapters: Sequence[Chapter],
    records: Sequence[Record],
    command: Callable[[Record], str],
    warnings: Sequence[str] = (),
) -> tuple[dict[str, Any], bytes]:
    """The page's data, and its maps one behind the other; `command` is what repeats a run."""
    places = {key(record): place for place, record in enumerate(records)}
    mazes = _Mazes()
    runs = [_run(record, command(record), mazes) for record in records]
    data = {
        "few": FEW_SEEDS,
        "baseline": BASELINE,
        "levels": LEVELS,
        "unvisited": UNVISITED,
        "colours": [
            to_hex(colour) for colour in colormaps[style.TIME_COLOURS](np.linspace(0, 1, LEVELS + 1))
        ],
        "shares": SHARES,
        "names": {name: series_name(name) for record in records for name in record.curves},
        "warnings": list(warnings),
        "runs": runs,
        "mazes": list(mazes.known.values()),
        "studies": [_chapter(chapter, places) for chapter in chapters],
    }
    return data, bytes(mazes.levels)


def key(record: Record) -> str:
    """What tells a run from all others, short enough for an address."""
    return record.run_id[:12] or f"{record.config_hash}-{record.env}-{record.seed}".replace("/", "-")


_WALLS = ("maze", "bin", "bounds", "walls", "cells", "shape")


class _Mazes:
    """Mazes by their content, each once, and the maps of all runs."""

    def __init__(self) -> None:
        self.known: dict[str, dict[str, Any]] = {}
        self.levels = bytearray()

    def add(self, record: Record) -> dict[str, int] | None:
        """Where the map of a run lies; None if it has none."""
        map = record.map
        if not map:
            return None
        who = f"{record.label} on {record.env}, seed {record.seed}"
        if lacking := [name for name in _WALLS if name not in map]:
            raise RecordError(f"{who}: map.{lacking[0]} is missing")
        walls = {name: map[name] for name in _WALLS}
        name = json.dumps(walls, sort_keys=True)
        self.known.setdefault(name, walls | {"inside": int(inside_cells(map).sum())})
        place = {"maze": list(self.known).index(name), "at": len(self.levels), "steps": map["env_steps"]}
        self.levels += visit_levels(map).tobytes()
        return place


def _run(record: Record, command: str, mazes: _Mazes) -> dict[str, Any]:
    kept = thinned(len(record.curves["env_steps"])) if record.curves else np.empty(0, dtype=np.intp)
    return {
        "id": key(record),
        "method": record.method,
        "label": record.label,
        "env": record.env,
        "seed": record.seed,
        "preset": record.preset,
        "steps": record.env_steps,
        "planned": record.planned_steps,
        "finished": record.finished,
        "headline": record.headline,
        "final": {name: short(value, 6) for name, value in record.final.items()},
        "curves": {
            name: rounded(values[kept], 7 if name == "env_steps" else 4)
            for name, values in record.curves.items()
        },
        "config": record.config,
        "overrides": record.overrides,
        "hash": record.config_hash,
        "commit": record.commit,
        "dirty": record.dirty,
        "versions": record.versions,
        "hardware": record.hardware,
        "started": record.started,
        "seconds": short(record.wall_seconds, 6),
        "split": {name: short(value) for name, value in record.time_split.items()},
        "updates": record.updates,
        "command": command,
        "map": mazes.add(record),
    }


def _chapter(chapter: Chapter, places: Mapping[str, int]) -> dict[str, Any]:
    study = chapter.table
    looks = style.line_styles(study.listed_rows)
    complete = complete_rows(study) if len(study.envs) > 1 else {}
    rows = []
    for name in study.listed_rows:
        look = {"name": name, "colour": looks[name].colour, "stroke": _dashes(looks[name].stroke)}
        if name in study.all_rows:
            found = aggregates(complete, name) if name in complete else None
            rows.append(
                look | _row(study, name, places) | {"aggregates": found and [_triple(one) for one in found]}
            )
        if name in study.published_rows:
            rows.append(look | _published_row(study, name))
    return {
        "name": chapter.name,
        "title": chapter.title,
        "preset": chapter.preset,
        "steps": chapter.steps,
        "planned": chapter.planned,
        "stored": chapter.stored,
        "command": chapter.command,
        "series": study.measure.series,
        "measure": study.measure.name,
        "envs": list(study.envs),
        "compared": [{"steps": study.steps[env][0], "cut": study.steps[env][1]} for env in study.envs],
        "rows": rows,
        "notes": notes(study),
    }


def _row(study: Study, row: str, places: Mapping[str, int]) -> dict[str, Any]:
    cells = [study.cell(row, env) for env in study.envs]
    mean = overall(cells)
    return {
        "published": False,
        "cells": [_cell(cell, places) for cell in cells],
        "overall": mean and _triple(mean),
        "curves": [_curve(study, cell, env) for env, cell in zip(study.envs, cells, strict=True)],
    }


def _triple(numbers: tuple[float, float, float]) -> dict[str, float | int | None]:
    return dict(zip(("mean", "low", "high"), map(short, numbers), strict=True))


def _cell(cell: Cell, places: Mapping[str, int]) -> dict[str, Any] | None:
    if not cell.values:
        return None
    mean, std = mean_std(cell.values)
    low, high = bootstrap_interval([cell.values])
    return {
        "mean": short(mean),
        "std": short(std),
        "low": short(low),
        "high": short(high),
        "values": [short(value) for value in cell.values],
        "runs": [places[key(record)] for record in cell.records],
        "mixed": cell.mixed,
    }


def _published_row(study: Study, row: str) -> dict[str, Any]:
    numbers = [study.published.get(env, {}).get(row) for env in study.envs]
    return {
        "published": True,
        "cells": [None if n is None else {"mean": short(n[0]), "std": short(n[1])} for n in numbers],
        "overall": None,
        "curves": [None for _ in study.envs],
    }


def _curve(study: Study, cell: Cell, env: str) -> dict[str, Any] | None:
    """Mean over seeds and its interval where it was measured, as far as all runs of the environment went."""
    runs = [record.until(study.steps[env][0]) for record in cell.records]
    curves = [measured(*curve) for run in runs if (curve := run.series(study.measure.series)) is not None]
    grid = common_grid(curves)
    if not grid.size:
        return None
    grid = grid[thinned(grid.size)]
    values = align(curves, grid)
    low, high = mean_interval(values)
    return {
        "steps": rounded(grid, 7),
        "mean": rounded(values.mean(axis=0)),
        "low": rounded(low) if len(curves) > 1 else None,
        "high": rounded(high) if len(curves) > 1 else None,
        "seeds": len(curves),
    }


def mean_interval(values: Floats, resamples: int = RESAMPLES) -> tuple[Floats, Floats]:
    """95 % percentile bootstrap interval of the mean over seeds at each point; `[seeds, points]` -> two `[points]`.

    A resample draws whole curves, so the interval is one of curves.
    """
    seeds = len(values)
    drawn = np.random.default_rng(0).integers(seeds, size=(resamples, seeds))
    weights = np.stack([(drawn == seed).mean(axis=1) for seed in range(seeds)], axis=1)
    low, high = np.quantile(weights @ values, [0.025, 0.975], axis=0)
    return low, high


def _dashes(stroke: Any) -> list[float]:
    """A line style as lengths of dashes and gaps, in widths of the line; none for a solid one."""
    named: dict[str, list[float]] = {"solid": [], "dashed": [3.7, 1.6]}
    return named[stroke] if isinstance(stroke, str) else list(stroke[1])
