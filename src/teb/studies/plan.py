"""What a study is: rows of variants, environments, budgets; and which runs these ask for."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from teb.cli import parse_train
from teb.config import Config, config_hash, label
from teb.envs import FAMILIES, split_id
from teb.report.comparison import COVERAGE, Measure
from teb.report.grid import FinalKind, Published

Options = Mapping[str, str | int | float | bool]
"""Options of `teb train` by their names on the command line."""


def words(options: Options) -> list[str]:
    """The options as words of `teb train`; a switch has no value."""
    found: list[str] = []
    for name, value in options.items():
        if isinstance(value, bool):
            found.append(f"--{name}" if value else f"--no-{name}")
        else:
            found += [f"--{name}", str(value)]
    return found


@dataclass(frozen=True)
class Variant:
    """One row: an agent and the options that make it a variant."""

    agent: str
    options: Options = field(default_factory=dict)
    name: str = ""
    """The row's name; by default the agent with what its options change."""
    where: Mapping[str, Options] = field(default_factory=dict)
    """Further options in some environments, such as a weight that a paper tunes by task."""


@dataclass(frozen=True)
class Budget:
    """How much of a study is made: sizes, length, seeds."""

    preset: str
    steps: int
    """Environment steps of each run; a longer one of the same configuration serves as well."""
    seeds: Sequence[int]
    envs: Sequence[str] = ()
    """Environments instead of the study's own."""
    options: Options = field(default_factory=dict)
    """Options of all its runs, such as how pictures are drawn."""
    device: str = "cpu"
    remark: str = ""
    """What a reader of its tables should know of it."""


@dataclass(frozen=True)
class Study:
    """One table or figure as data."""

    title: str
    variants: Sequence[Variant]
    envs: Sequence[str]
    budgets: Mapping[str, Budget]
    """By name; the first is the one that is made unless another is asked for."""
    measure: Measure = COVERAGE
    published: Published = field(default_factory=dict)
    """Numbers of papers, {env: {row: (mean, std)}}."""
    remarks: Sequence[str] = ()
    """What a reader of its tables should know, a sentence each."""
    maps: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Figures of coverage maps: the environments of each, by name."""
    map_rows: Sequence[str] = ()
    """Rows that these figures show."""
    final: FinalKind = "panels"
    """How final values are drawn."""

    def environments(self, budget: Budget) -> Sequence[str]:
        """Where it is run at a budget."""
        return budget.envs or self.envs


@dataclass(frozen=True)
class Computation:
    """A study whose numbers are computed, not trained: another command makes them."""

    title: str
    command: str
    page: str
    """Where its results are told."""
    make: Callable[[Path, Sequence[Path]], int]
    """Makes it in a folder and brings pages up to date."""
    product: str
    """The file in that folder that holds or says it all."""
    kept: bool = False
    """Whether it lies with the results, beside tables, and `show` makes it anew; else with the runs, and is read."""


@dataclass(frozen=True)
class Job:
    """One run of a study."""

    config: Config
    words: tuple[str, ...]
    """What `teb train` is told."""
    row: str
    """The row that it belongs to."""
    hashes: tuple[str, ...]
    """Of the configurations that serve, the preferred one first."""

    @property
    def name(self) -> str:
        """A folder name, one per run."""
        run, told = self.config.run, label(self.config)
        if "precision" in _named(self.words):
            told += f" in {run.precision}"
        if len(told) > 80:
            told = f"{self.config.agent}-{self.hashes[0]}"
        parts = [self.config.env, told, self.config.preset, f"{run.steps}", f"seed{run.seed}"]
        return "_".join(re.sub(r"[^\w.=-]+", "-", part).strip("-") for part in parts)


def jobs(study: Study, budget: Budget) -> list[Job]:
    """All runs, seed by seed, so that an interrupted study has every row before it has more seeds."""
    first = [_job(variant, env, budget) for env in study.environments(budget) for variant in study.variants]
    return [_seeded(job, seed) for seed in budget.seeds for job in first]


def rows(study: Study, budget: Budget) -> list[str]:
    """Names of the rows, in order."""
    named = [_row(variant, env, budget) for variant in study.variants for env in study.environments(budget)]
    return list(dict.fromkeys(named))


def _job(variant: Variant, env: str, budget: Budget) -> Job:
    options = {**budget.options, **variant.options, **variant.where.get(env, {})}
    schedule = ("--preset", budget.preset, "--steps", str(budget.steps), "--device", budget.device)
    told = (env, variant.agent, *schedule, *words(options))
    config = _config(told)
    return Job(config, told, _row(variant, env, budget), _hashes(config, free="precision" not in options))


def _row(variant: Variant, env: str, budget: Budget) -> str:
    if variant.name:
        return variant.name
    return label(_config((env, variant.agent, "--preset", budget.preset, *words(variant.options))))


def _config(told: tuple[str, ...]) -> Config:
    """What these words of `teb train` ask for.

    Reading words takes a twentieth of a second, and a family's environments read them alike: once per family is enough.
    """
    env, *rest = told
    family, _ = split_id(env)
    names = FAMILIES[family].names
    return dataclasses.replace(_parsed((f"{family}/{names[0]}" if names else env, *rest)), env=env)


@cache
def _parsed(told: tuple[str, ...]) -> Config:
    return parse_train(told)[0]


def _seeded(job: Job, seed: int) -> Job:
    config = dataclasses.replace(job.config, run=dataclasses.replace(job.config.run, seed=seed))
    return dataclasses.replace(job, config=config, words=(*job.words, "--seed", str(seed)))


def _hashes(config: Config, *, free: bool) -> tuple[str, ...]:
    """Where the precision is free it follows from the machine, so runs in either serve, on every machine alike."""
    if not free:
        return (config_hash(config),)
    runs = (dataclasses.replace(config.run, precision=precision) for precision in ("bf16", "fp32"))
    return tuple(config_hash(dataclasses.replace(config, run=run)) for run in runs)


def _named(told: Sequence[str]) -> set[str]:
    return {word.removeprefix("--") for word in told if word.startswith("--")}
