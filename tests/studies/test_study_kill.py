"""A study whose processes are all killed, several times, and that the same command brings to its end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

STEPS = 20_000
WORDS = ("maze2d", "--methods", "uniform", "--envs", "maze2d/square-b", "--workers", "2")
RUNS = {("maze2d/square-b", seed) for seed in (0, 1, 2)}


def start(folder: Path) -> subprocess.Popen[bytes]:
    told = ["study", "run", *WORDS, "--results", str(folder), "--runs", str(folder / "runs")]
    with (folder / "log.txt").open("ab") as log:
        return subprocess.Popen([sys.executable, "-m", "teb", *told], stdout=log, stderr=log)


def children(parent: int) -> list[int]:
    """Processes that a process started, by what the kernel says."""
    path = Path(f"/proc/{parent}/task/{parent}/children")
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def kill_all(process: subprocess.Popen[bytes]) -> int:
    """SIGKILL to the study first, so that it starts nothing more, then to its runs; how many runs there were."""
    os.kill(process.pid, signal.SIGSTOP)
    runs = children(process.pid)
    process.kill()
    for run in runs:
        with contextlib.suppress(ProcessLookupError):
            os.kill(run, signal.SIGKILL)
    process.wait()
    return len(runs)


def metrics_rows(folder: Path) -> int:
    return sum(len(path.read_bytes().splitlines()) for path in folder.glob("runs/*/metrics.jsonl"))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes where Linux lists them")
def test_a_study_killed_three_times_ends_with_each_run_recorded_once(tmp_path: Path) -> None:
    killed = 0
    for _ in range(3):
        rows, process = metrics_rows(tmp_path), start(tmp_path)
        until = time.monotonic() + 120
        while metrics_rows(tmp_path) < rows + 5 and process.poll() is None:
            assert time.monotonic() < until, (tmp_path / "log.txt").read_text()
            time.sleep(0.01)
        killed += kill_all(process)
    assert killed >= 3, "the study was over before it could be killed"
    assert start(tmp_path).wait(timeout=300) == 0, (tmp_path / "log.txt").read_text()
    records = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert sorted((record["env"], record["seed"]) for record in records) == sorted(RUNS)
    assert all(record["finished"] and record["env_steps"] == STEPS for record in records)
    assert all(len(record["curves"]["env_steps"]) == STEPS // 1000 for record in records)
    assert start(tmp_path).wait(timeout=120) == 0
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == len(RUNS)
