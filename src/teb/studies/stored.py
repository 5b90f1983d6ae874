"""What a registry holds of a study: its runs, what is missing, what that would take, and the table that it makes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from teb.config import config_hash, from_json
from teb.report import grid
from teb.report.records import Record, read_registry
from teb.studies.plan import Budget, Job, Study, jobs, rows

Index = Mapping[tuple[str, int], Record]


def registry(results: Path) -> Path:
    """The file that finished runs are appended to."""
    return results / "runs.jsonl"


def stored_records(results: Path) -> list[Record]:
    """The records of a registry, each with the hash that its configuration has today; none if there is no file."""
    path = registry(results)
    if not path.exists():
        return []
    return [dataclasses.replace(r, config_hash=todays_hash(r)) for r in read_registry(path)]


def todays_hash(record: Record) -> str:
    """The hash of a stored run's configuration as it is read today, with fields that came later at their defaults.

    A new option whose default changes nothing thus leaves older runs comparable. A configuration that can no longer be
    read keeps the hash that it was stored with.
    """
    try:
        return config_hash(from_json(record.config))
    except (ValueError, KeyError, TypeError):
        return record.config_hash


def evidence(study: Study, budget: Budget, records: Sequence[Record]) -> grid.Study:
    """A study at a budget as its stored runs fill it: rows, cells, curves and published numbers.

    `records` are those of `stored_records`. Every table, figure and report of a study is made from what this returns.
    """
    index = _index(records)
    found = [(job, run) for job in jobs(study, budget) if (run := _run_of(job, index)) is not None]
    return grid.Study(
        [dataclasses.replace(run, label=job.row) for job, run in found],
        rows(study, budget),
        list(study.environments(budget)),
        study.published,
        study.measure,
        budget.steps,
        [*study.remarks, *([budget.remark] if budget.remark else [])],
        study.maps,
        study.map_rows,
        study.final,
    )


def missing(study: Study, budget: Budget, records: Sequence[Record]) -> list[Job]:
    """The runs that the registry lacks."""
    index = _index(records)
    return [job for job in jobs(study, budget) if _run_of(job, index) is None]


def _index(records: Sequence[Record]) -> Index:
    """The longest run of each configuration and seed, of equals the newest."""
    ordered = sorted(records, key=lambda record: (record.env_steps, record.started_at))
    return {(record.config_hash, record.seed): record for record in ordered if record.finished}


def _run_of(job: Job, index: Index) -> Record | None:
    """The stored run that serves, if there is one: at least as long, of the first of its hashes that has one."""
    found = (index.get((key, job.config.run.seed)) for key in job.hashes)
    return next((run for run in found if run is not None and run.env_steps >= job.config.run.steps), None)


@dataclass(frozen=True)
class Estimate:
    """What runs would take, from the speed of stored ones."""

    hours: float = 0.0
    """With one worker, of those that something is known about."""
    guessed: int = 0
    """How many of these only from other agents' speed."""
    unknown: int = 0
    """Runs that nothing stored is like."""

    def __str__(self) -> str:
        """In words."""
        if not self.hours:
            return "no stored run to estimate from"
        text = f"about {self.hours:.1f} hours with one worker, from stored runs"
        text += f" ({self.guessed} by the mean speed of other agents)" if self.guessed else ""
        return text + (f", without {self.unknown} that no stored run is like" if self.unknown else "")


def estimate(lacking: Sequence[Job], records: Sequence[Record]) -> Estimate:
    """From the mean seconds per step of runs of the same agent, family, preset and device, else of all agents."""
    speeds: dict[tuple[str, ...], list[float]] = {}
    for record in records:
        if record.env_steps and np.isfinite(record.wall_seconds):
            device = str(record.config.get("run", {}).get("device", "cpu"))
            like = _kind(record.env, record.preset, device)
            for key in (like, (*like, record.method)):
                speeds.setdefault(key, []).append(record.wall_seconds / record.env_steps)
    seconds, guessed, unknown = 0.0, 0, 0
    for job in lacking:
        like = _kind(job.config.env, job.config.preset, job.config.run.device)
        own, others = speeds.get((*like, job.config.agent)), speeds.get(like)
        if own is None and others is None:
            unknown += 1
            continue
        guessed += own is None
        seconds += float(np.mean(own or others or [])) * job.config.run.steps
    return Estimate(seconds / 3600, guessed, unknown)


def _kind(env: str, preset: str, device: str) -> tuple[str, str, str]:
    return env.partition("/")[0], preset, device.partition(":")[0]
