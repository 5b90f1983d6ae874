"""The runs of a study on a Ray cluster: each is one task, and a lost one goes on elsewhere from its last checkpoint."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from teb.run.record import append_once
from teb.run.stopping import StopWish
from teb.studies.plan import Job
from teb.studies.pool import SAVING_SECONDS, Progress, Say, is_free, start_run, train_command

RETRIES = 20
"""How often one run may lose its machine before it counts as failed."""


class Needs(NamedTuple):
    """What one run takes of a machine."""

    cpus: int = 1
    """Cores; the run computes with as many threads."""
    gpus: float = 1.0
    """GPUs of a run on cuda; 0.25 lets four share one. Runs on the CPU take none."""


def run_jobs_on_ray(
    jobs: Sequence[Job],
    folder: Path,
    registry: Path,
    address: str,
    needs: Needs,
    wish: StopWish,
    say: Say,
) -> list[Job]:
    """Run jobs wherever the cluster has room; returns those that failed. On a wish to stop, runs save and end.

    `folder` must be the same storage on every machine: there a run finds its checkpoints when its machine was lost.
    Only this process writes to the registry.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _connected(address) as ray, _landmark(folder) as landmark:
        total = {name: ray.cluster_resources().get(name, 0) for name in ("CPU", "GPU")}
        say(f"cluster: {_machines(ray)} machines, {total['CPU']:g} CPUs, {total['GPU']:g} GPUs")
        for what, needed in (("CPU", needs.cpus), ("GPU", _gpus(jobs, needs))):
            if needed > total[what]:
                say(f"no machine has {needed:g} {what}s now; runs wait until one joins the cluster")
        task = ray.remote(max_retries=RETRIES)(_train)
        pending = {
            task.options(num_cpus=needs.cpus, num_gpus=_gpus([job], needs), name=job.name).remote(
                train_command(job, folder, folder / job.name / "finished.jsonl", needs.cpus),
                (folder / job.name).resolve(),
                needs.cpus,
                landmark,
            ): job
            for job in jobs
        }
        return _gathered(ray, pending, folder, registry, wish, say)


def _gpus(jobs: Sequence[Job], needs: Needs) -> float:
    return needs.gpus if any(job.config.run.device.startswith("cuda") for job in jobs) else 0.0


def _machines(ray: Any) -> int:
    return sum(node["Alive"] for node in ray.nodes())


def _gathered(
    ray: Any, pending: dict[Any, Job], folder: Path, registry: Path, wish: StopWish, say: Say
) -> list[Job]:
    """Wait for the tasks and store what they return, as they end."""
    failed: list[Job] = []
    progress = Progress(len(pending), say)
    stopped_at = None
    while pending:
        ended, _ = ray.wait(list(pending), timeout=0.5)
        for reference in ended:
            job = pending.pop(reference)
            try:
                record, machine = ray.get(reference)
            except (ray.exceptions.RayError, KeyboardInterrupt) as error:
                if wish.signal is None:
                    failed.append(job)
                    log = folder / job.name / "log.txt"
                    say(f"failed: {job.name}: {_reason(error)}; see {log}")
            else:
                append_once(registry, record)
                progress.ended(f"{job.name} on {machine}")
        if wish.signal is not None and stopped_at is None:
            stopped_at = time.monotonic()
            for reference in pending:
                ray.cancel(reference)
        if stopped_at is not None and time.monotonic() - stopped_at > SAVING_SECONDS:
            say(f"{len(pending)} runs did not end in {SAVING_SECONDS} s and were left to the cluster")
            break
    return failed


def _reason(error: BaseException) -> str:
    """The last line of an error; what Ray wraps around it is for its own log."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Ray, connected to a cluster; it must not take the signals that stop a study."""
    try:
        import ray
    except ImportError:
        raise ValueError('ray: Ray is not installed; pip install "teb[cluster]" brings it') from None
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        _knock(address)
        ray.init(
            address=address, log_to_driver=False, include_dashboard=False if address == "local" else None
        )
    except (OSError, ValueError) as error:
        raise ValueError(
            f"ray: no cluster at {address!r} ({_reason(error)}); start one with `ray start --head`"
        ) from None
    for number, handler in handlers.items():
        signal.signal(number, handler)
    try:
        yield ray
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Whether somebody listens at `host:port`; Ray itself tries for minutes before it says so."""
    host, colon, port = address.rpartition(":")
    if colon and "/" not in address:
        socket.create_connection((host, int(port)), timeout=10).close()


@contextmanager
def _landmark(folder: Path) -> Iterator[Path]:
    """A file by which workers see that they share the folder's storage."""
    path = folder.resolve() / f".shared-{os.getpid()}"
    path.touch()
    try:
        yield path
    finally:
        path.unlink()


# --- on a worker ---------------------------------------------------------------------------------------------------


def _train(command: Sequence[str], out: Path, threads: int, landmark: Path) -> tuple[dict[str, Any], str]:
    """One run as a process of its own; returns its record and the machine's name.

    Cancelling the task raises KeyboardInterrupt here: the run is asked to save and end.
    """
    machine = os.uname().nodename
    if not landmark.exists():
        raise RuntimeError(f"{landmark.parent} is not shared with {machine}")
    _wait_until_free(out)
    process = start_run(command, out, threads)
    try:
        while process.poll() is None:
            time.sleep(0.1)
    except BaseException:
        process.terminate()
        process.wait(SAVING_SECONDS)
        raise
    if process.returncode:
        raise RuntimeError(f"ended with code {process.returncode} on {machine}")
    return json.loads((out / "record.json").read_text()), machine


def _wait_until_free(out: Path) -> None:
    """A run whose worker was lost may still be saving."""
    until = time.monotonic() + SAVING_SECONDS
    while not is_free(out):
        if time.monotonic() > until:
            raise RuntimeError(f"{out} is still in use by another process")
        time.sleep(0.2)
