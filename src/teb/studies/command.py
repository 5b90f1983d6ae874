"""The four verbs of `teb study`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from tyro.conf import Positional

from teb.config import config_hash
from teb.envs.naming import did_you_mean
from teb.report import grid
from teb.report.records import Record, read_registry
from teb.run.stopping import stop_on_signals
from teb.studies import STUDIES
from teb.studies.cluster import Needs, run_jobs_on_ray
from teb.studies.plan import Job, Study, jobs, missing, registry, todays_hash
from teb.studies.pool import run_jobs


@dataclass(frozen=True)
class StudyOptions:
    """A table or figure from stored runs: plan says what is missing, run makes it, show draws it."""

    verb: Positional[Literal["list", "plan", "run", "show"]]
    """What to do."""
    name: Positional[str] = ""
    """Which study; `teb study list` names them."""
    results: Path = Path("results")
    """Folder of the registry runs.jsonl; pictures and tables go into one below it that bears the study's name."""
    runs: Path = Path("runs/study")
    """Folder of the run folders."""
    workers: int = 1
    """Runs at the same time, each with its share of the cores."""
    ray: str = ""
    """Run on a Ray cluster instead: its address, `auto` for the one this machine is part of, `local` for a new one."""
    cpus_per_run: int = 1
    """With --ray: cores of one run."""
    gpus_per_run: float = 1.0
    """With --ray: GPUs of one run on cuda; 0.25 lets four share one."""
    seeds: tuple[int, ...] = ()
    """Only these seeds."""
    envs: tuple[str, ...] = ()
    """Only these environments."""
    agents: tuple[str, ...] = ()
    """Only these agents."""
    device: str = "cpu"
    """cpu, cuda or auto."""
    docs: tuple[Path, ...] = ()
    """Pages whose marked blocks `show` brings up to date."""


def run(options: StudyOptions) -> int:
    """Do what the verb says."""
    verbs: dict[str, Callable[[StudyOptions], int]] = {
        "list": _list,
        "plan": _plan,
        "run": _run,
        "show": _show,
    }
    return verbs[options.verb](options)


def chosen(options: StudyOptions) -> Study:
    """The named study, narrowed to what was asked for."""
    study = STUDIES.get(options.name)
    if study is None:
        guess = did_you_mean(options.name, STUDIES)
        raise ValueError(f"unknown study {options.name!r}{guess} known: {', '.join(STUDIES)}")
    for what, wanted, known in (
        ("envs", options.envs, study.envs),
        ("agents", options.agents, [variant.agent for variant in study.variants]),
    ):
        for name in wanted:
            if name not in known:
                raise ValueError(
                    f"{what}: study {options.name!r} has {', '.join(dict.fromkeys(known))}, got {name!r}"
                )
    return dataclasses.replace(
        study,
        seeds=options.seeds or study.seeds,
        envs=options.envs or study.envs,
        device=options.device,
        variants=[v for v in study.variants if not options.agents or v.agent in options.agents],
    )


def _records(options: StudyOptions) -> list[Record]:
    path = registry(options.results)
    return (
        [dataclasses.replace(r, config_hash=todays_hash(r)) for r in read_registry(path)]
        if path.exists()
        else []
    )


def _list(options: StudyOptions) -> int:
    for name, study in STUDIES.items():
        print(f"{name:<20} {study.title} ({len(jobs(study))} runs, preset {study.preset})")
    return 0


def _plan(options: StudyOptions) -> int:
    study, records = chosen(options), _records(options)
    lacking = missing(study, records)
    total = len(jobs(study))
    print(f"{options.name}: {total - len(lacking)} of {total} runs are in {registry(options.results)}")
    for job in lacking:
        print("  missing: teb train", *job.words)
    hours = _estimated_hours(lacking, records)
    if lacking:
        known = (
            f"about {hours:.1f} hours with one worker, from stored runs"
            if hours
            else "no stored run to estimate from"
        )
        print(f"{len(lacking)} to go: {known}")
    return 0


def _estimated_hours(lacking: Sequence[Job], records: Sequence[Record]) -> float | None:
    """From the mean seconds per step of stored runs of the same agent and preset; None if a job has no like."""
    total = 0.0
    for job in lacking:
        alike = [
            r.wall_seconds / r.env_steps
            for r in records
            if (r.method, r.preset) == (job.config.agent, job.config.preset) and r.env_steps
        ]
        if not alike:
            return None
        total += sum(alike) / len(alike) * job.config.run.steps
    return total / 3600


def _run(options: StudyOptions) -> int:
    for name in ("workers", "cpus_per_run", "gpus_per_run"):
        if getattr(options, name) <= 0:
            raise ValueError(f"{name}: must be above 0, got {getattr(options, name)}")
    study = chosen(options)
    say = Console(stderr=True, soft_wrap=True, highlight=False).print
    lacking = missing(study, _records(options))
    places = options.runs, registry(options.results)
    with stop_on_signals() as wish:
        if options.ray:
            needs = Needs(options.cpus_per_run, options.gpus_per_run)
            say(f"{options.name}: {len(lacking)} runs to go, on Ray")
            failed = run_jobs_on_ray(lacking, *places, options.ray, needs, wish, say)
        else:
            say(f"{options.name}: {len(lacking)} runs to go, {options.workers} at a time")
            failed = run_jobs(lacking, *places, options.workers, wish, say)
    if wish.signal is not None:
        say("stopped; every run was saved, and the same command goes on")
        return 128 + wish.signal
    return 1 if failed else 0


def _show(options: StudyOptions) -> int:
    from teb.report.study import write_study

    study = chosen(options)
    labels = {(config_hash(job.config), job.config.run.seed): job.label for job in jobs(study)}
    long_enough = [record for record in _records(options) if record.env_steps >= study.steps]
    stored = {(record.config_hash, record.seed): record for record in long_enough}
    records = [dataclasses.replace(stored[key], label=row) for key, row in labels.items() if key in stored]
    rows = list(dict.fromkeys(labels.values()))
    folder = options.results / options.name
    for path in write_study(grid.Study(records, rows, list(study.envs), study.published), folder):
        print(f"written: {path}")
    for page in refresh(options.docs, options.name, (folder / "table.md").read_text()):
        print(f"brought up to date: {page}")
    return 0


def refresh(pages: Sequence[Path], name: str, table: str) -> list[Path]:
    """Put a study's table between the lines `<!-- results: NAME -->` and `<!-- end -->`; returns changed pages."""
    block = re.compile(rf"(<!-- results: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    changed: list[Path] = []
    for page in pages:
        before = page.read_text()
        after = block.sub(lambda found: found[1] + "\n" + table.strip() + "\n\n" + found[2], before)
        if after != before:
            page.write_text(after)
            changed.append(page)
    return changed
