"""Where the numbers of a run go: metrics.jsonl always, TensorBoard if asked, a line or a bar for whoever watches."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

Row = dict[str, float | int | None]


class MetricsFile:
    """Append-only rows of JSON. A resumed run cuts the file back to where its checkpoint saw it."""

    def __init__(self, path: Path, length: int) -> None:
        path.touch()
        if path.stat().st_size < length:
            raise ValueError(
                f"{path}: {path.stat().st_size} bytes, but the checkpoint was written after {length}"
            )
        self._file = path.open("r+b")
        self._file.truncate(length)
        self._file.seek(length)

    def write(self, row: Row) -> None:
        """Add one row and hand it to the operating system."""
        self._file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
        self._file.flush()

    @property
    def length(self) -> int:
        """Bytes written so far: what a checkpoint notes down."""
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_rows(path: Path) -> list[Row]:
    """All rows of a metrics file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


class Sink(Protocol):
    """A further place for rows."""

    def write(self, row: Row) -> None:
        """Take one row."""
        ...

    def close(self) -> None:
        """No more rows will come."""
        ...


class TensorBoard:
    """Every number of a row as a scalar over environment steps."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ValueError("tensorboard: not installed; install it with: pip install 'teb[log]'") from error
        self._writer: Any = SummaryWriter(str(folder))

    def write(self, row: Row) -> None:
        """Add one row."""
        for name, value in row.items():
            if name != "env_steps" and value is not None:
                self._writer.add_scalar(name, value, row["env_steps"])

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


class Display(Protocol):
    """What someone who watches a run sees."""

    def __enter__(self) -> Self:
        """Begin."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        ...

    def advance(self, row: Row) -> None:
        """A row was written."""
        ...


class Bar:
    """A progress bar with ETA, for terminals."""

    def __init__(self, console: Console, title: str, total: int, start: int, headline: str) -> None:
        self._headline = headline
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[headline]}"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._progress.add_task(title, total=total, completed=start, headline="")

    def __enter__(self) -> Self:
        """Show the bar."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the bar where it is."""
        self._progress.stop()

    def advance(self, row: Row) -> None:
        """Move the bar to the row's step."""
        text = f"{self._headline} {row[self._headline]:.3f}" if row.get(self._headline) is not None else ""
        self._progress.update(self._task, completed=row["env_steps"], headline=text)


class Lines:
    """One plain line every twentieth of the run, for logs."""

    def __init__(self, console: Console, title: str, total: int, start: int, headline: str) -> None:
        self._console, self._title, self._total, self._headline = console, title, total, headline
        self._start, self._begun, self._next = start, time.monotonic(), start

    def __enter__(self) -> Self:
        """Nothing to prepare."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to clean up."""

    def advance(self, row: Row) -> None:
        """Print a line if one is due."""
        done = int(row["env_steps"] or 0)
        if done < self._next and done < self._total:
            return
        self._next = done + max(self._total // 20, 1)
        rate = (done - self._start) / max(time.monotonic() - self._begun, 1e-9)
        left = f"{(self._total - done) / rate:,.0f} s left" if rate > 0 else "starting"
        value = row.get(self._headline)
        shown = f"{self._headline} {value:.3f}  " if value is not None else ""
        self._console.print(
            f"{self._title}  {done:,}/{self._total:,} steps  {shown}{rate:,.0f} steps/s  {left}",
            highlight=False,
        )


def display(title: str, total: int, start: int, headline: str, *, quiet: bool = False) -> Display:
    """A bar where someone watches, lines where a file does, nothing if `quiet`."""
    console = Console(stderr=True, soft_wrap=True, quiet=quiet)
    return (Bar if sys.stderr.isatty() else Lines)(console, title, total, start, headline)
