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


def run_jobs(
    jobs: Sequence[Job], folder: Path, registry: Path, workers: int, wish: StopWish, say: Say
) -> list[Job]:
    """Run jobs, at most `workers` at a time; returns those that failed. On a wish to stop, runs save and end."""
    waiting, running, failed = list(jobs), dict[subprocess.Popen[bytes], Job](), list[Job]()
    begun, total = time.monotonic(), len(jobs)
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
            done = total - len(waiting) - len(running)
            left = (time.monotonic() - begun) / done * (total - done)
            say(f"{done}/{total} runs, about {left / 60:.0f} min left; ended: {job.name}")
        if wish.signal is not None:
            for process in running:
                process.terminate()
    return failed


def usable_cores() -> int:
    """Cores that this process may use, which a container or taskset may have made fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _start(job: Job, folder: Path, registry: Path, workers: int) -> subprocess.Popen[bytes]:
    """One run as a process with its share of the cores; its output goes to log.txt in its folder."""
    out = folder / job.name
    out.mkdir(parents=True, exist_ok=True)
    threads = str(max(1, usable_cores() // workers))
    words = ["train", *job.words, "--threads", threads, "--out", str(out), "--results", str(registry)]
    environment = os.environ | dict.fromkeys(_THREADS, threads)
    with (out / "log.txt").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "teb", *words],
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
