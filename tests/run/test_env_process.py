"""Runs whose environment steps in a process of its own: the same run as the serial one, stopped and resumed alike."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from small_runs import assert_same_run, go_on, newest_step, run_words
from test_pixel_runs import small_config

from teb.config import config_hash, default_config, overrides, updated
from teb.envs import RemoteEnv
from teb.run.session import session, steps_elsewhere
from teb.run.stopping import StopWish
from teb.run.train import train

WORDS = shlex.split(
    "train probe/near teb --steps 240 --seed-steps 60 --uniform-steps 40 --log-every 20 --eval-every 60 "
    "--eval-episodes 1 --width 16 --update-every 4 --batch-size 8 --channels 4 --pred-hidden 16 "
    "--precision fp32 --threads 1"
)
ELSEWHERE = ("--env-process", "yes")
OFTEN = ("--checkpoint-seconds", "0.05")


def children(process: int) -> list[int]:
    """Processes that one started and that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state != "Z" and int(parent) == process:
                found.append(int(entry.name))
    return found


def gone(process: int) -> bool:
    until = time.monotonic() + 20
    while Path(f"/proc/{process}").exists() and time.monotonic() < until:
        time.sleep(0.02)
    return not Path(f"/proc/{process}").exists()


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of `WORDS` in one process, never interrupted."""
    folder = tmp_path_factory.mktemp("serial") / "run"
    assert run_words(WORDS, folder, "--env-process", "no") == 0
    return folder


def started(words: Sequence[str], folder: Path, beyond: int) -> subprocess.Popen[Any]:
    """The command in a process group of its own, after a checkpoint of a later step than `beyond`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "teb", *words, "--out", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until = time.monotonic() + 90
    while newest_step(folder) <= beyond and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    assert process.poll() is None, process.communicate()
    return process


def test_stepping_beside_learning_changes_nothing(serial: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert run_words(WORDS, folder, *ELSEWHERE) == 0
    assert_same_run(folder, serial)
    assert not children(os.getpid())


@pytest.mark.metaworld
@pytest.mark.rendering
def test_nor_does_it_where_pictures_are_drawn(tmp_path: Path) -> None:
    for place in ("yes", "no"):
        config = small_config(
            "teb", env="metaworld/reach", steps=60, seed_steps=30, uniform_steps=20, env_process=place
        )
        config = updated(config, {"task": {"render_quality": "fast", "horizon": 20}})
        assert go_on(config, tmp_path / place) == (True, [])
    assert_same_run(tmp_path / "yes", tmp_path / "no")


def test_the_step_is_under_way_while_the_agent_learns(tmp_path: Path) -> None:
    """At the time of an update the environment has already been told to step."""
    config = small_config("drqv2", env_process="yes", steps=120)
    order: list[str] = []
    with session(config, tmp_path) as opened, pytest.MonkeyPatch.context() as patch:
        run = opened.run
        assert isinstance(run.stepper, RemoteEnv)
        for owner, name in ((run.stepper, "send"), (run.agent, "update"), (run.stepper, "receive")):
            patch.setattr(owner, name, noted(order, name, getattr(owner, name)))
        assert train(run, opened.reporting, StopWish())
        assert run.updates == order.count("update") > 1
    pairs = {(order[at - 1], order[at + 1]) for at, name in enumerate(order) if name == "update"}
    assert pairs == {("send", "receive")}


def noted(order: list[str], name: str, call: Any) -> Any:
    def noting(*args: Any) -> Any:
        order.append(name)
        return call(*args)

    return noting


def test_stopped_and_resumed_in_turns_with_the_serial_loop(tmp_path: Path) -> None:
    """The middle of an episode is found again through the process, and the option may change from stop to stop."""
    assert go_on(small_config("teb"), tmp_path / "whole") == (True, [])
    for step, place in ((33, "yes"), (120, "no"), (181, "yes")):
        assert go_on(small_config("teb", env_process=place), tmp_path / "cut", step) == (False, [])
        assert newest_step(tmp_path / "cut") == step
    assert go_on(small_config("teb", env_process="yes"), tmp_path / "cut") == (True, [])
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


def test_killed_it_leaves_no_process_and_goes_on(serial: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with started([*WORDS, *ELSEWHERE, *OFTEN], folder, 80) as process:
        (child,) = children(process.pid)
        process.kill()
        process.communicate()
    assert gone(child)
    assert newest_step(folder) < 240
    assert run_words(WORDS, folder, *ELSEWHERE) == 0
    assert_same_run(folder, serial)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_all_its_processes_saves_first(
    number: signal.Signals, code: int, serial: Path, tmp_path: Path
) -> None:
    """Terminals and schedulers signal whole groups or sessions, not the command alone."""
    folder = tmp_path / "run"
    with started([*WORDS, *ELSEWHERE, *OFTEN], folder, 60) as process:
        (child,) = children(process.pid)
        os.kill(child, number)
        os.killpg(process.pid, number)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in errors) == (code, False)
    assert gone(child)
    assert run_words(WORDS, folder, *ELSEWHERE) == 0
    assert_same_run(folder, serial)


def test_a_lost_process_ends_the_run_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    send = RemoteEnv.send

    def lost(self: RemoteEnv, action: Any) -> None:
        self._process.kill()
        self._process.wait()
        send(self, action)

    monkeypatch.setattr(RemoteEnv, "send", lost)
    assert run_words(WORDS, tmp_path / "run", *ELSEWHERE) == 1
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert line == "teb: the environment's process ended with exit code -9"


def test_an_error_of_the_environment_is_said_as_without_a_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for place in ("yes", "no"):
        words = [*shlex.split("train gym/Pendulum-v7 uniform --env-process"), place]
        assert run_words(words, tmp_path / place) == 2
        said.append(capsys.readouterr().err)
    assert said[0] == said[1] and said[0].startswith("teb: gym/Pendulum-v7: unknown to Gymnasium")


def test_where_it_is_used_and_that_it_names_no_variant() -> None:
    def asked(env: str, place: str) -> Any:
        return updated(default_config(env, "uniform"), {"run": {"env_process": place}})

    assert steps_elsewhere(asked("metaworld/reach", "auto"))
    assert not steps_elsewhere(asked("maze2d/square-a", "auto"))
    assert not steps_elsewhere(asked("metaworld/reach", "no"))
    assert steps_elsewhere(asked("maze2d/square-a", "yes"))
    for env in ("metaworld/reach", "maze2d/square-a"):
        assert config_hash(asked(env, "yes")) == config_hash(asked(env, "no"))
        assert overrides(asked(env, "yes")) == {}
    with pytest.raises(ValueError, match="env_process: must be one of"):
        asked("maze2d/square-a", "maybe")
