"""Several runs at once, each a process of its own: what is missing is run, what was stopped is gone on with."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from teb.run.stopping import StopWish
from teb.studies.plan import Job

Say = Callable[[str], object]

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Whose pools a run would otherwise make as large as the machine, once per worker."""


class Progress:
    """Says after each run how many are done and how long the rest may take."""

    def __init__(self, total: int, say: Say) -> None:
        self.total, self.say, self.done, self.begun = total, say, 0, time.monotonic()

    def ended(self, name: str) -> None:
        """One more run has ended."""
        self.done += 1
        left = (time.monotonic() - self.begun) / self.done * (self.total - self.done)
        self.say(f"{self.done}/{self.total} runs, about {left / 60:.0f} min left; ended: {name}")


def run_jobs(
    jobs: Sequence[Job], folder: Path, registry: Path, workers: int, wish: StopWish, say: Say
) -> list[Job]:
    """Run jobs, at most `workers` at a time; returns those that failed. On a wish to stop, runs save and end."""
    waiting, running, failed = list(jobs), dict[subprocess.Popen[bytes], Job](), list[Job]()
    progress = Progress(len(jobs), say)
    while running or (waiting and wish.signal is None):
        while waiting and len(running) < workers and wish.signal is None:
            job = waiting.pop(0)
            running[_start(job, folder, registry, workers)] = job
        time.sleep(0.2)
        for process in [process for process in running if process.poll() is not None]:
            job = running.pop(process)
            if process.returncode and wish.signal is None:
                failed.append(job)
                say(f"failed with code {process.returncode}: {job.name}; see {folder / job.name / 'log.txt'}")
            progress.ended(job.name)
        if wish.signal is not None:
            for process in running:
                process.terminate()
    return failed


def usable_cores() -> int:
    """Cores that this process may use, which a container or taskset may have made fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def train_command(job: Job, folder: Path, registry: Path, threads: int) -> list[str]:
    """The command that makes or goes on with a run in its own folder below `folder`, with so many threads."""
    out, results = (folder / job.name).resolve(), registry.resolve()
    words = [*job.words, "--threads", str(threads), "--out", str(out), "--results", str(results)]
    return [sys.executable, "-m", "teb", "train", *words]


def with_threads(threads: int) -> dict[str, str]:
    """This process's environment for a run with so many threads."""
    return os.environ | dict.fromkeys(_THREADS, str(threads))


def _start(job: Job, folder: Path, registry: Path, workers: int) -> subprocess.Popen[bytes]:
    """One run as a process with its share of the cores; its output goes to log.txt in its folder."""
    out = folder / job.name
    out.mkdir(parents=True, exist_ok=True)
    threads = max(1, usable_cores() // workers)
    with (out / "log.txt").open("ab") as log:
        return subprocess.Popen(
            train_command(job, folder, registry, threads),
            stdout=log,
            stderr=log,
            env=with_threads(threads),
            start_new_session=True,
        )
