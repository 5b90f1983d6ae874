"""The four verbs of `teb study`."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from rich.console import Console
from tyro.conf import Positional

from teb.envs.naming import did_you_mean
from teb.report.records import Record
from teb.run.stopping import stop_on_signals
from teb.studies import COMPUTED, STUDIES
from teb.studies.cluster import Needs, run_jobs_on_ray
from teb.studies.plan import Budget, Job, Study, jobs
from teb.studies.pool import run_jobs
from teb.studies.stored import estimate, evidence, missing, registry, stored_records


@dataclass(frozen=True)
class StudyOptions:
    """A table or figure from stored runs: plan says what is missing, run makes it, show draws it."""

    verb: Positional[Literal["list", "plan", "run", "show"]]
    """What to do."""
    name: Positional[str] = ""
    """Which study; `teb study list` names them."""
    budget: str = ""
    """How much of it: cpu for one machine, paper for the paper's sizes and steps; by default the study's first."""
    all: bool = False
    """Instead of naming one: plan all studies, a line each, or show all that have stored runs."""
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
    methods: tuple[str, ...] = ()
    """Only rows of these agents."""
    device: str = "cpu"
    """cpu, cuda or auto."""
    docs: tuple[Path, ...] = ()
    """Pages whose marked blocks `show` brings up to date."""


class Choice(NamedTuple):
    """A study at a budget, narrowed to what was asked for."""

    study: Study
    budget: Budget
    folder: str
    """Where below the results its tables go; also the name of its blocks in pages."""


def run(options: StudyOptions) -> int:
    """Do what the verb says."""
    verbs: dict[str, Callable[[StudyOptions], int]] = {
        "list": _list,
        "plan": _plan,
        "run": _run,
        "show": _show,
    }
    if options.all and options.verb not in ("plan", "show"):
        raise ValueError(f"all: goes with plan and show, not with {options.verb}")
    if options.all and (options.name or options.envs or options.methods):
        raise ValueError("all: takes no name, no --envs and no --methods beside it")
    if options.name in COMPUTED and options.verb != "list":
        return _computed(options)
    return verbs[options.verb](options)


def chosen(options: StudyOptions) -> Choice:
    """The named study at the named budget, narrowed to what was asked for."""
    study = STUDIES.get(options.name)
    if study is None:
        known = [*STUDIES, *COMPUTED]
        guess = did_you_mean(options.name, known)
        raise ValueError(f"unknown study {options.name!r}{guess} known: {', '.join(known)}")
    first, *_ = study.budgets
    asked = options.budget or first
    if asked not in study.budgets:
        raise ValueError(f"budget: study {options.name!r} has {', '.join(study.budgets)}, got {asked!r}")
    budget = study.budgets[asked]
    for what, wanted, known in (
        ("envs", options.envs, study.environments(budget)),
        ("methods", options.methods, [variant.agent for variant in study.variants]),
    ):
        for name in wanted:
            if name not in known:
                raise ValueError(
                    f"{what}: study {options.name!r} has {', '.join(dict.fromkeys(known))}, got {name!r}"
                )
    budget = dataclasses.replace(
        budget, seeds=options.seeds or budget.seeds, envs=options.envs or budget.envs, device=options.device
    )
    kept = [v for v in study.variants if not options.methods or v.agent in options.methods]
    folder = options.name if asked == first else f"{options.name}-{asked}"
    return Choice(dataclasses.replace(study, variants=kept), budget, folder)


def every_choice(options: StudyOptions) -> list[Choice]:
    """The named study, or all of them, at every budget unless one is named."""
    if not options.all:
        return [chosen(options)]
    found = []
    for name, study in STUDIES.items():
        asked = [options.budget] if options.budget else list(study.budgets)
        for budget in asked:
            if budget in study.budgets:
                found.append(chosen(dataclasses.replace(options, name=name, budget=budget)))
    return found


def _list(options: StudyOptions) -> int:
    for name, study in STUDIES.items():
        sizes = (f"{budget}: {_count(study, size)} runs" for budget, size in study.budgets.items())
        print(f"{name:<20} {study.title}; {', '.join(sizes)}")
    for name, computed in COMPUTED.items():
        print(f"{name:<20} {computed.title}; no runs")
    return 0


def _count(study: Study, budget: Budget) -> int:
    return len(study.variants) * len(study.environments(budget)) * len(budget.seeds)


def _plan(options: StudyOptions) -> int:
    records = stored_records(options.results)
    for choice in every_choice(options):
        lacking = missing(choice.study, choice.budget, records)
        for line in _told(choice, lacking, records, registry(options.results), short=options.all):
            print(line)
    return 0


def _told(
    choice: Choice, lacking: Sequence[Job], records: Sequence[Record], path: Path, *, short: bool
) -> list[str]:
    """What a plan says, in a line or in full."""
    total = len(jobs(choice.study, choice.budget))
    to_go = f"{len(lacking)} to go: {estimate(lacking, records)}" if lacking else "complete"
    if short:
        done = f"{total - len(lacking)} of {total} runs"
        return [f"{choice.folder:<28} {done:<18} {to_go}"]
    return [
        f"{choice.folder}: {total - len(lacking)} of {total} runs are in {path}",
        *(f"  missing: {shlex.join(('teb', 'train', *job.words))}" for job in lacking),
        to_go,
    ]


def _run(options: StudyOptions) -> int:
    for name in ("workers", "cpus_per_run", "gpus_per_run"):
        if getattr(options, name) <= 0:
            raise ValueError(f"{name}: must be above 0, got {getattr(options, name)}")
    choice = chosen(options)
    say = Console(stderr=True, soft_wrap=True, highlight=False).print
    lacking = missing(choice.study, choice.budget, stored_records(options.results))
    where = "on Ray" if options.ray else f"{options.workers} at a time"
    say(f"{choice.folder}: {len(lacking)} runs to go, {where}")
    places = options.runs, registry(options.results)
    with stop_on_signals() as wish:
        if options.ray:
            needs = Needs(options.cpus_per_run, options.gpus_per_run)
            failed = run_jobs_on_ray(lacking, *places, options.ray, needs, wish, say)
        else:
            failed = run_jobs(lacking, *places, options.workers, wish, say)
    if wish.signal is not None:
        say("stopped; every run was saved, and the same command goes on")
        return 128 + wish.signal
    return 1 if failed else 0


def _show(options: StudyOptions) -> int:
    from teb.report.study import write_study

    records = stored_records(options.results)
    for choice in every_choice(options):
        drawn = evidence(choice.study, choice.budget, records)
        if options.all and not drawn.records:
            print(f"{choice.folder}: no stored run")
            continue
        folder = options.results / choice.folder
        for path in write_study(drawn, folder):
            print(f"written: {path}")
        for page in refresh(options.docs, choice.folder, (folder / "table.md").read_text()):
            print(f"brought up to date: {page}")
    return 0


def _computed(options: StudyOptions) -> int:
    """Studies that need no runs: say so, make them, or show what was made."""
    computed = COMPUTED[options.name]
    folder = (options.results if computed.kept else options.runs) / options.name
    product = folder / computed.product
    if options.verb == "run" or (options.verb == "show" and computed.kept):
        return computed.make(folder, options.docs)
    print(f"{options.name}: computed by `{computed.command}`, not trained; told in {computed.page}")
    if not product.exists():
        print(f"not computed into {folder} yet: teb study run {options.name}, about a minute")
    elif options.verb == "show":
        print(product.read_text(), end="")
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
