"""Every agent, interrupted and taken up again; checkpoints that are damaged or cannot be written."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import random
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import gymnasium as gym
import numpy as np
import pytest
from small_runs import (
    SMALL,
    assert_same_run,
    checkpoint_files,
    differences,
    go_on,
    latest,
    learnt,
    newest_step,
    read_record,
    registered,
    rows,
    run_words,
    small_config,
)

from teb.agents.registry import AGENTS
from teb.config import updated
from teb.run import checkpoint
from teb.run.checkpoint import CheckpointError
from teb.run.record import append_once
from teb.run.session import session
from teb.run.train import RunError

MAZE = "maze2d/square-a"


# --- stopped and resumed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent", "reading"),
    [(agent, reading) for agent, spec in AGENTS.items() for reading in ("default", *spec.readings)],
)
def test_every_agent_resumes_bit_for_bit(agent: str, reading: str, tmp_path: Path) -> None:
    config = small_config(agent, reading=reading)
    moments = random.Random(f"{agent} {reading}")
    # While actions are uniform, soon after the first updates, and late; even, so never just before a row.
    steps = [2 * moments.randrange(low, high) for low, high in ((5, 30), (52, 70), (90, 145))]
    assert go_on(config, tmp_path / "whole") == (True, [])
    for step in steps:
        assert go_on(config, tmp_path / "cut", step) == (False, [])
        assert newest_step(tmp_path / "cut") == step
        assert not read_record(tmp_path / "cut")["finished"]
    assert go_on(config, tmp_path / "cut") == (True, [])
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


@pytest.mark.parametrize(
    ("why", "step"),
    [
        ("before the first step of training", 1),
        ("at the end of an episode", 150),
        ("at the first update", 100),
        ("between an update and the row that reports it", 149),
        ("one step before the end", 299),
    ],
)
def test_there_is_no_bad_moment_to_stop(why: str, step: int, tmp_path: Path) -> None:
    config = small_config("eta0")
    go_on(config, tmp_path / "whole")
    go_on(config, tmp_path / "cut", step)
    go_on(config, tmp_path / "cut")
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


def test_a_bonus_without_weight_covers_a_maze_as_no_bonus_does(tmp_path: Path) -> None:
    plain, weightless = small_config("eta0"), small_config("teb")
    weightless = dataclasses.replace(
        weightless, learner=updated(weightless.learner, {"explorer": {"eta": 0.0}})
    )
    for name, config in (("plain", plain), ("weightless", weightless)):
        go_on(config, tmp_path / name)
        assert not np.any(learnt(tmp_path / name)["replay"]["reward"])
    one, other = (read_record(tmp_path / name) for name in ("plain", "weightless"))
    assert one["map"] == other["map"]
    assert one["final"]["coverage"] == other["final"]["coverage"] > 0


def test_rows_written_after_the_last_checkpoint_are_written_once(tmp_path: Path) -> None:
    config = small_config("eta0")
    go_on(config, tmp_path / "whole")
    go_on(config, tmp_path / "cut", 120)
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as file:
        file.write('{"env_steps": 150, "updates": 25}\n{"env_steps": 200, "upd')
    go_on(config, tmp_path / "cut")
    assert [row["env_steps"] for row in rows(tmp_path / "cut")] == [50, 100, 150, 200, 250, 300]
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


def test_a_session_says_where_it_goes_on(tmp_path: Path) -> None:
    config = small_config("uniform")
    with session(config, tmp_path) as opened:
        assert (opened.resumed_at, opened.run.env_steps) == (None, 0)
    go_on(config, tmp_path, 70)
    with session(config, tmp_path) as opened:
        assert (opened.resumed_at, opened.run.env_steps, opened.run.episodes) == (70, 70, 1)


def test_the_identity_of_a_run_is_made_once(tmp_path: Path) -> None:
    config = small_config("uniform")
    go_on(config, tmp_path, 70)
    first = read_record(tmp_path)
    go_on(config, tmp_path)
    second = read_record(tmp_path)
    assert (first["run_id"], first["started"]) == (second["run_id"], second["started"])
    assert (first["finished"], second["finished"]) == (False, True)


def test_time_goes_on_counting_where_it_stood(tmp_path: Path) -> None:
    config = small_config("uniform")
    go_on(config, tmp_path, 200)
    data = latest(tmp_path).state
    data["run"]["seconds"]["total"] += 1000.0
    checkpoint.save(tmp_path, 200, data)
    go_on(config, tmp_path)
    assert 1000.0 < read_record(tmp_path)["wall_seconds"] < 1100.0
    assert sum(read_record(tmp_path)["time_split"].values()) == pytest.approx(
        read_record(tmp_path)["wall_seconds"], abs=0.01
    )


# --- finished runs ------------------------------------------------------------------------------------------------

FAST = shlex.split("train maze2d/square-a uniform --seed 0 --log-every 50 --threads 1 --steps")


def test_a_finished_run_called_again_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert run_words([*FAST, "200"], folder) == 0
    before = (rows(folder), learnt(folder), registered(tmp_path / "results.jsonl"))
    assert run_words([*FAST, "200"], folder) == 0
    after = (rows(folder), learnt(folder), registered(tmp_path / "results.jsonl"))
    assert before[0] == after[0] and before[2] == after[2]
    assert differences(before[1], after[1]) == []


def test_a_run_that_ended_before_it_was_registered_is_registered_by_the_next_call(tmp_path: Path) -> None:
    folder, registry = tmp_path / "run", tmp_path / "results.jsonl"
    run_words([*FAST, "200"], folder)
    registry.unlink()
    run_words([*FAST, "200"], folder)
    assert [record["env_steps"] for record in registered(registry)] == [200]


def test_more_steps_go_on_as_if_they_had_been_asked_for_at_first(tmp_path: Path) -> None:
    short, long = small_config("eta0", steps=200), small_config("eta0", steps=300)
    go_on(long, tmp_path / "whole")
    assert go_on(short, tmp_path / "extended") == (True, [])
    assert go_on(long, tmp_path / "extended") == (True, [])
    assert_same_run(tmp_path / "extended", tmp_path / "whole")


def test_a_run_that_was_extended_is_registered_with_its_new_length(tmp_path: Path) -> None:
    folder, registry = tmp_path / "run", tmp_path / "results.jsonl"
    for steps in ("200", "300", "300"):
        assert run_words([*FAST, steps], folder) == 0
    lengths = [record["env_steps"] for record in registered(registry)]
    assert lengths.count(300) == 1
    assert set(lengths) <= {200, 300}


# --- damage -------------------------------------------------------------------------------------------------------


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) * 2 // 3] ^= 4
    path.write_bytes(data)


def lose_the_checksum(path: Path) -> None:
    path.with_suffix(".sha256").unlink()


@pytest.mark.parametrize("harm", [truncate, flip_a_bit, lose_the_checksum])
def test_a_damaged_checkpoint_costs_time_only(harm: Callable[[Path], None], tmp_path: Path) -> None:
    config = small_config("eta0")
    go_on(config, tmp_path / "whole")
    folder = tmp_path / "cut"
    for step in (130, 230):
        go_on(config, folder, step)
    older, newer = checkpoint_files(folder)
    harm(newer)
    ended, warnings = go_on(config, folder)
    assert ended
    assert len(warnings) == 1 and newer.name in warnings[0]
    assert_same_run(folder, tmp_path / "whole")
    assert older.name == "checkpoint-000000130.safetensors"


def test_the_command_line_warns_of_a_damaged_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    run_words([*FAST, "200"], folder)
    shutil.copytree(folder, tmp_path / "kept")
    run_words([*FAST, "300"], folder)
    flip_a_bit(checkpoint_files(folder)[-1])
    capsys.readouterr()
    assert run_words([*FAST, "300"], folder) == 0
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith("passed over a damaged checkpoint: checkpoint-000000300.safetensors: ")
    assert second == f"resuming {folder} at step 200"
    run_words([*FAST, "300"], tmp_path / "kept")
    assert_same_run(folder, tmp_path / "kept")


def test_if_all_checkpoints_are_damaged_one_line_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    for steps in ("200", "300"):
        run_words([*FAST, steps], folder)
    for path in checkpoint_files(folder):
        truncate(path)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    capsys.readouterr()
    assert run_words([*FAST, "300"], folder) == 1
    errors = capsys.readouterr().err
    assert errors.startswith(f"teb: no usable checkpoint in {folder}: ")
    assert len(errors.splitlines()) == 1
    assert all(path.name in errors for path in checkpoint_files(folder))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_metrics_file_that_lost_rows_is_not_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_words([*FAST, "200"], tmp_path / "run")
    truncate(tmp_path / "run" / "metrics.jsonl")
    capsys.readouterr()
    assert run_words([*FAST, "300"], tmp_path / "run") in (1, 2)
    errors = capsys.readouterr().err
    assert len(errors.splitlines()) == 1 and "metrics.jsonl" in errors


# --- a full disk --------------------------------------------------------------------------------------------------


def no_space(*arguments: Any) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_the_old_checkpoint_and_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config("uniform")
    go_on(config, tmp_path / "whole")
    folder = tmp_path / "cut"
    go_on(config, folder, 130)
    before = learnt(folder)
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", no_space)
        with pytest.raises(CheckpointError, match=r"could not write .*No space left.* bytes needed"):
            go_on(config, folder, 210)
    assert newest_step(folder) == 130
    assert differences(learnt(folder), before) == []
    assert [path for path in folder.iterdir() if "tmp" in path.name] == []
    go_on(config, folder)
    assert_same_run(folder, tmp_path / "whole")


def test_a_full_disk_is_one_line_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "fsync", no_space)
    assert run_words([*FAST, "200"], tmp_path / "run") == 1
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("teb: could not write checkpoint-000000200.safetensors")
    assert "No space left on device" in last
    assert not (tmp_path / "results.jsonl").exists()


# --- environments that do not repeat themselves -------------------------------------------------------------------


class Forgetful(gym.Env[np.ndarray, np.ndarray]):
    """Goes elsewhere every time, whatever the seed says."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    calls: ClassVar[int] = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        return self.somewhere(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return self.somewhere(), 0.0, False, False, {}

    def somewhere(self) -> np.ndarray:
        Forgetful.calls += 1
        return np.full(2, Forgetful.calls, np.float32)


def test_an_environment_that_ignores_its_seed_cannot_be_resumed_within_an_episode(tmp_path: Path) -> None:
    gym.register("Forgetful-v0", entry_point=lambda **options: Forgetful(**options), max_episode_steps=20)
    config = small_config("uniform", "gym/Forgetful-v0")
    go_on(config, tmp_path, 40)
    go_on(config, tmp_path, 50)  # from the end of an episode, where there is nothing to repeat
    with pytest.raises(RunError, match=r"did not repeat its episode.*deterministic given reset\(seed\)"):
        go_on(config, tmp_path)
    assert newest_step(tmp_path) == 50


# --- what must not matter -----------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_run_and_another_seed_another(tmp_path: Path) -> None:
    for name, seed in (("one", 3), ("two", 3), ("other", 4)):
        go_on(small_config("teb", seed=seed), tmp_path / name)
    assert_same_run(tmp_path / "one", tmp_path / "two")
    different = differences(learnt(tmp_path / "one"), learnt(tmp_path / "other"))
    for part in (
        "/agent/modules/backbone",
        "/agent/generators/acting",
        "/replay/action",
        "/uniform",
        "/sampler",
    ):
        assert any(place.startswith(part) for place in different), part


@pytest.mark.parametrize(
    "change", [{"log_every": 1}, {"log_every": 1000}, {"checkpoint_seconds": 0.01}], ids=str
)
def test_reporting_does_not_change_what_is_learnt(change: dict[str, Any], tmp_path: Path) -> None:
    go_on(small_config("eta0"), tmp_path / "one")
    go_on(small_config("eta0", **change), tmp_path / "two")
    assert differences(learnt(tmp_path / "one"), learnt(tmp_path / "two")) == []


def test_tensorboard_does_not_change_what_is_learnt(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    go_on(small_config("eta0"), tmp_path / "one")
    go_on(small_config("eta0"), tmp_path / "two", tensorboard=True)
    assert_same_run(tmp_path / "one", tmp_path / "two")
    (events,) = (tmp_path / "two" / "tensorboard").iterdir()
    assert b"coverage" in events.read_bytes()


def test_reporting_may_change_between_two_sessions(tmp_path: Path) -> None:
    config = small_config("eta0")
    go_on(config, tmp_path / "whole")
    go_on(config, tmp_path / "cut", 100)
    other = dataclasses.replace(config.run, checkpoint_seconds=0.01, log_every=25)
    go_on(dataclasses.replace(config, run=other), tmp_path / "cut")
    assert [row["env_steps"] for row in rows(tmp_path / "cut")] == [50, 100, *range(125, 301, 25)]
    assert differences(learnt(tmp_path / "cut"), learnt(tmp_path / "whole")) == []


def test_the_record_in_the_registry_is_the_one_in_the_folder(whole: Path) -> None:
    (registered_record,) = registered(whole.parent / "results.jsonl")
    assert registered_record == read_record(whole)
    assert not append_once(whole.parent / "results.jsonl", read_record(whole))
    assert registered_record["curves"]["env_steps"] == [row["env_steps"] for row in rows(whole)]
    assert registered_record["updates"] == len(range(504, 3000, 8))
    assert json.loads((whole / "config.json").read_text())["run_id"] == registered_record["run_id"]
    assert SMALL[1] == registered_record["env"]
