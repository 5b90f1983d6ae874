"""Several runs at once, each a process of its own: what is missing is run, what was stopped is gone on with."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
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
SAVING_SECONDS = 120
"""How long runs have to save themselves when they are to end, and with that to let go of their folders."""
_PARENT_DEATH_SIGNAL = 1
"""What Linux's `prctl` calls it."""


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
    """Run jobs, at most `workers` at a time; returns those that failed. On a wish to stop, runs save and end.

    Runs of a study that was killed may still be saving: theirs wait, and after `SAVING_SECONDS` are tried all the same.
    """
    waiting, running, failed = list(jobs), dict[subprocess.Popen[bytes], Job](), list[Job]()
    progress = Progress(len(jobs), say)
    threads = max(1, usable_cores() // workers)
    while running or (waiting and wish.signal is None):
        patient = time.monotonic() - progress.begun < SAVING_SECONDS
        ready = [job for job in waiting if not patient or is_free(folder / job.name)]
        for job in ready[: workers - len(running)] if wish.signal is None else []:
            waiting.remove(job)
            out = folder / job.name
            running[start_run(train_command(job, folder, registry, threads), out, threads)] = job
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


def start_run(command: Sequence[str], out: Path, threads: int) -> subprocess.Popen[bytes]:
    """A run as a process that saves and ends when this one dies; its output goes to log.txt in its folder."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / "log.txt").open("ab") as log:
        return subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            env=os.environ | dict.fromkeys(_THREADS, str(threads)),
            start_new_session=True,
            preexec_fn=_ending_with(os.getpid()),
        )


def is_free(out: Path) -> bool:
    """Whether no process trains in a run's folder."""
    if not (out / "lock").exists():
        return True
    with (out / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _ending_with(parent: int) -> Callable[[], None] | None:
    """What a new process does on Linux so that it is asked to end when its parent dies, however that happens."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is None:
        return None

    def tie() -> None:
        prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)
        if os.getppid() != parent:  # it died before this was set
            os.kill(os.getpid(), signal.SIGTERM)

    return tie
