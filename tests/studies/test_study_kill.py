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
LINUX = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="finds processes where Linux lists them"
)
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


def check_recorded_once(folder: Path) -> None:
    records = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    assert sorted((record["env"], record["seed"]) for record in records) == sorted(RUNS)
    assert all(record["finished"] and record["env_steps"] == STEPS for record in records)
    assert all(len(record["curves"]["env_steps"]) == STEPS // 1000 for record in records)


def wait_for_rows(folder: Path, rows: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 120
    while metrics_rows(folder) < rows and process.poll() is None:
        assert time.monotonic() < until, (folder / "log.txt").read_text()
        time.sleep(0.01)


@LINUX
def test_a_study_killed_three_times_ends_with_each_run_recorded_once(tmp_path: Path) -> None:
    killed = 0
    for _ in range(3):
        rows, process = metrics_rows(tmp_path), start(tmp_path)
        wait_for_rows(tmp_path, rows + 5, process)
        killed += kill_all(process)
    assert killed >= 3, "the study was over before it could be killed"
    assert start(tmp_path).wait(timeout=300) == 0, (tmp_path / "log.txt").read_text()
    check_recorded_once(tmp_path)
    assert start(tmp_path).wait(timeout=120) == 0
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == len(RUNS)


@LINUX
def test_runs_end_with_a_study_that_is_killed_alone_and_the_next_waits_for_them(tmp_path: Path) -> None:
    process = start(tmp_path)
    wait_for_rows(tmp_path, 5, process)
    runs = children(process.pid)
    process.kill()
    process.wait()
    assert runs, "the study was over before it could be killed"
    assert start(tmp_path).wait(timeout=300) == 0, (tmp_path / "log.txt").read_text()
    check_recorded_once(tmp_path)
    assert not any(Path(f"/proc/{run}").exists() for run in runs)
    logs = [path.read_text() for path in tmp_path.glob("runs/*/log.txt")]
    assert any("saved" in log for log in logs), logs
    assert not any("in use" in log for log in logs), logs
