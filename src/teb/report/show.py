"""`teb show`: the table and the picture of some runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from teb.report.records import Record, read_record
from teb.report.tables import summary_table

RESUME_COMMAND = "teb train --from {folder} --out {folder}"


def show(run_folders: Sequence[Path], out: Path | None = None, console: Console | None = None) -> list[Path]:
    """Print the table of the runs and write `show.png` and `show.svg` into the first run or `out`."""
    folders = list(dict.fromkeys(Path(folder) for folder in run_folders))
    if not folders:
        raise ValueError("run_folders: expected at least one run folder, got none")
    records = [read_record(folder) for folder in folders]
    console = console or Console()
    console.print(summary_table(records, by="run" if len(records) <= 8 else "label"))
    for folder, record in zip(folders, records, strict=True):
        if not record.finished:
            console.print(Text(unfinished_note(folder, record)), soft_wrap=True)
    # Drawing needs matplotlib, which takes a second to load; a wrong folder should be told before that.
    from teb.report.pictures import show_runs

    return show_runs(records, (Path(out) if out is not None else folders[0]) / "show")


def unfinished_note(folder: Path, record: Record) -> str:
    """How far an unfinished run is, and how to go on with it."""
    total = f" of {record.planned_steps:,}" if record.planned_steps is not None else ""
    command = RESUME_COMMAND.format(folder=shlex.quote(str(folder)))
    return f"unfinished: {record.env_steps:,}{total} steps; go on with: {command}"
