"""`teb report`: all studies and all runs of a registry as one HTML file."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from teb.config import default_config, flat, from_json, to_json
from teb.envs.naming import did_you_mean
from teb.report.document import Chapter, document
from teb.report.html import write_page
from teb.report.records import Record, RecordError, RecordWarning
from teb.studies import STUDIES
from teb.studies.command import StudyOptions, chosen
from teb.studies.plan import jobs
from teb.studies.stored import evidence, missing, registry, stored_records


@dataclass(frozen=True)
class ReportOptions:
    """Write one HTML file with the tables, curves, coverage maps and runs of a registry; it needs no network."""

    results: Path = Path("results")
    """Folder of the registry runs.jsonl."""
    out: Path = Path("report.html")
    """The file to write."""
    studies: tuple[str, ...] = ()
    """Only these studies; all runs of the registry stand in the page in any case."""


def run(options: ReportOptions) -> int:
    """Write the page and say where it is."""
    wanted = _chosen(options.studies)
    path = registry(options.results)
    if not path.is_file():
        raise RecordError(f"{path}: no such registry; --results names the folder of runs.jsonl")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RecordWarning)
        records = stored_records(options.results)
        chapters = [_chapter(name, budget, records) for name, budget in wanted]
        data, maps = document(chapters, records, command)
    said = list(dict.fromkeys(str(warning.message) for warning in caught))
    for line in said:
        print(f"warning: {line}", file=sys.stderr)
    write_page(data | {"warnings": said}, maps, options.out)
    size = options.out.stat().st_size / 1e6
    print(
        f"written: {options.out} ({size:.1f} MB, {len(records)} runs, {len(chapters)} studies); open it in a browser"
    )
    return 0


def command(record: Record) -> str:
    """The command that repeats a run; empty if its configuration cannot be read any more."""
    try:
        config = from_json(record.config)
    except (ValueError, KeyError, TypeError):
        return ""
    start = dict(flat(to_json(default_config(config.env, config.agent, config.preset, config.reading))))
    words = ["teb", "train", config.env, config.agent, "--preset", config.preset]
    words += [] if config.reading == "default" else ["--reading", config.reading]
    for name, value in flat(to_json(config)):
        if value != start[name]:
            words += _option(name.rpartition(".")[2], value)
    return shlex.join(words)


def _option(name: str, value: Any) -> list[str]:
    word = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{word}" if value else f"--no-{word}"]
    return [f"--{word}", *(map(str, value) if isinstance(value, list | tuple) else [str(value)])]


def _chosen(names: Sequence[str]) -> list[tuple[str, str]]:
    """Every study at every budget, or those that are named."""
    for name in names:
        if name not in STUDIES:
            raise ValueError(
                f"studies: unknown study {name!r}{did_you_mean(name, STUDIES)} known: {', '.join(STUDIES)}"
            )
    wanted = [name for name in STUDIES if not names or name in names]
    return [(name, budget) for name in wanted for budget in STUDIES[name].budgets]


def _chapter(name: str, asked: str, records: Sequence[Record]) -> Chapter:
    study, budget, folder = chosen(StudyOptions("plan", name, asked))
    planned = len(jobs(study, budget))
    return Chapter(
        name=folder,
        title=study.title,
        preset=budget.preset,
        steps=budget.steps,
        planned=planned,
        stored=planned - len(missing(study, budget, records)),
        table=evidence(study, budget, records),
        command=f"teb study plan {name} --budget {asked}",
    )
