"""What a study is: rows of variants, environments and seeds; which of its runs the registry has, and which it lacks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from teb.cli import parse_train
from teb.config import Config, config_hash, from_json, label
from teb.report.grid import Published
from teb.report.records import Record


@dataclass(frozen=True)
class Variant:
    """One row: an agent and the options that make it a variant, as on the command line."""

    agent: str
    options: Mapping[str, str | int | float] = field(default_factory=dict)

    def words(self) -> list[str]:
        """The options as words of `teb train`."""
        return [word for name, value in self.options.items() for word in (f"--{name}", str(value))]


@dataclass(frozen=True)
class Study:
    """One table or figure as data."""

    title: str
    variants: Sequence[Variant]
    envs: Sequence[str]
    seeds: Sequence[int]
    steps: int = 100_000
    """Environment steps of each run; a longer one of the same configuration serves as well."""
    preset: str = "cpu"
    device: str = "cpu"
    published: Published = field(default_factory=dict)
    """Numbers of papers, {env: {row: (mean, std)}}."""


@dataclass(frozen=True)
class Job:
    """One run of a study."""

    config: Config
    words: tuple[str, ...]
    """What `teb train` is told."""
    label: str
    """The row that it belongs to."""

    @property
    def name(self) -> str:
        """A folder name, one per run."""
        run = self.config.run
        words = [self.config.env, self.label, self.config.preset, f"{run.steps}", f"seed{run.seed}"]
        return "_".join(re.sub(r"[^\w.=-]+", "-", word).strip("-") for word in words)

    def done(self, records: Sequence[Record]) -> bool:
        """Whether a run of this configuration and seed, and at least this length, is among the records."""
        key, steps = (config_hash(self.config), self.config.run.seed), self.config.run.steps
        return any((r.config_hash, r.seed) == key and r.env_steps >= steps for r in records)


def jobs(study: Study) -> list[Job]:
    """All runs, seed by seed, so that an interrupted study has every row before it has more seeds."""
    return [
        _job(study, variant, env, seed)
        for seed in study.seeds
        for env in study.envs
        for variant in study.variants
    ]


def _job(study: Study, variant: Variant, env: str, seed: int) -> Job:
    schedule = (
        "--preset",
        study.preset,
        "--steps",
        str(study.steps),
        "--seed",
        str(seed),
        "--device",
        study.device,
    )
    words = (env, variant.agent, *schedule, *variant.words())
    config = parse_train(words)[0]
    asked = variant.options.get("precision")
    return Job(config, words, f"{label(config)} in {asked}" if asked else label(config))


def missing(study: Study, records: Sequence[Record]) -> list[Job]:
    """The runs that the registry lacks."""
    return [job for job in jobs(study) if not job.done(records)]


def todays_hash(record: Record) -> str:
    """The hash of a stored run's configuration as it is read today, with fields that came later at their defaults.

    A new option whose default changes nothing thus leaves older runs comparable. A configuration that can no longer be
    read keeps the hash that it was stored with.
    """
    try:
        return config_hash(from_json(record.config))
    except (ValueError, KeyError, TypeError):
        return record.config_hash


def registry(results: Path) -> Path:
    """The file that finished runs are appended to."""
    return results / "runs.jsonl"
