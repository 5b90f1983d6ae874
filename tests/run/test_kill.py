"""Runs in a process of their own that is killed or asked to stop, and that the same command takes up again."""

from __future__ import annotations

import random
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from small_runs import (
    SMALL,
    assert_same_run,
    latest,
    newest_step,
    read_record,
    registered,
    run_words,
)

from teb.cli import run_command

OFTEN = ("--checkpoint-seconds", "0.05")


@contextmanager
def started(words: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The command in a process that does not outlive the test."""
    process = subprocess.Popen(
        [sys.executable, "-m", "teb", *words, "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_checkpoint(process: subprocess.Popen[str], folder: Path, beyond: int) -> None:
    """Until there is a checkpoint of a later step than `beyond`."""
    until = time.monotonic() + 120
    while newest_step(folder) <= beyond:
        if process.poll() is not None:
            pytest.fail(f"ended before it could be stopped: {process.communicate()}")
        assert time.monotonic() < until, f"no checkpoint beyond step {beyond}"
        time.sleep(0.005)


def kill_and_resume(words: Sequence[str], folder: Path, kills: int, longest_wait: float) -> None:
    """Kill the command at random moments, then let it come to its end."""
    moments = random.Random(0)
    for _ in range(kills):
        before = newest_step(folder)
        with started(words, folder) as process:
            wait_for_checkpoint(process, folder, before)
            time.sleep(moments.uniform(0.0, longest_wait))
            process.kill()
            process.communicate()
        assert process.returncode == -signal.SIGKILL, "it ended before it was killed"
        assert newest_step(folder) > before
    assert run_words(words, folder) == 0


def test_a_run_killed_three_times_ends_as_if_nothing_had_happened(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    kill_and_resume([*SMALL, *OFTEN], folder, kills=3, longest_wait=0.1)
    assert_same_run(folder, whole)
    assert [record["run_id"] for record in registered(tmp_path / "results.jsonl")] == [
        read_record(folder)["run_id"]
    ]


@pytest.mark.slow
def test_the_default_preset_killed_three_times_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    words = shlex.split("train maze2d/square-a teb --seed 0 --steps 6000 --threads 1")
    assert run_words(words, tmp_path / "whole") == 0
    kill_and_resume([*words, "--checkpoint-seconds", "0.3"], tmp_path / "killed", kills=3, longest_wait=2.0)
    assert_same_run(tmp_path / "killed", tmp_path / "whole")
    assert len(registered(tmp_path / "results.jsonl")) == 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_the_command_it_prints_goes_on(
    number: signal.Signals, code: int, whole: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "a run's folder"
    with started([*SMALL, *OFTEN], folder) as process:
        wait_for_checkpoint(process, folder, 0)
        process.send_signal(number)
        out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, "")
    assert "Traceback" not in errors
    said = re.fullmatch(r"stopped at step ([\d,]+) and saved; to go on: (teb .*)", errors.splitlines()[-1])
    assert said, errors
    assert latest(folder).env_steps == int(said[1].replace(",", "")) == read_record(folder)["env_steps"]
    assert not read_record(folder)["finished"]
    assert not (tmp_path / "results.jsonl").exists()

    assert run_command(shlex.split(said[2])[1:]) == 0
    assert_same_run(folder, whole)
    assert len(registered(tmp_path / "results.jsonl")) == 1
