"""Runs that see pictures: stopped and resumed, evaluated on the way, checked for memory before they start."""

from __future__ import annotations

import dataclasses
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import (
    SHRUNK,
    assert_same_run,
    differences,
    go_on,
    latest,
    learnt,
    newest_step,
    rows,
    run_words,
    shrunk,
)

from teb.agents.registry import PIXEL_AGENTS
from teb.config import Config, default_config, flat, to_json, updated
from teb.replay.saved import Pieces
from teb.run import checkpoint, session
from teb.run.evaluate import evaluate
from teb.run.play import play
from teb.run.session import build, resolved
from teb.seeding import child_seed

PROBE = "probe/near"
SCHEDULE = {
    "steps": 240,
    "seed_steps": 100,
    "uniform_steps": 60,
    "log_every": 40,
    "threads": 1,
    "precision": "fp32",
    "eval_every": 0,
    "update_every": 8,
    "replay_capacity": 160,
}


def small_config(
    agent: str,
    reading: str = "default",
    learner: dict[str, Any] | None = None,
    env: str = PROBE,
    **run: Any,
) -> Config:
    config = default_config(env, agent, "cpu", reading)
    narrow = shrunk(config.learner)
    if hasattr(narrow, "encoder"):
        narrow = updated(narrow, {"encoder": {"channels": 4, "latent_dim": 8}, **(learner or {})})
    schedule = dataclasses.replace(config.run, **{**SCHEDULE, **run})
    return resolved(dataclasses.replace(config, run=schedule, learner=narrow))


@pytest.mark.parametrize(
    ("agent", "reading", "learner"),
    [
        ("teb", "default", {}),
        ("teb", "theorem-faithful", {}),
        ("teb", "literal", {}),
        ("teb", "default", {"representation": {"rep_update": "joint", "metric_target": "ema"}}),
        ("teb", "default", {"explorer": {"anchor": "s0"}}),
        ("teb-p+rep", "default", {}),
        ("teb-no-rep", "default", {}),
        ("teb-env-metric", "default", {}),
        ("drqv2", "default", {}),
        ("drm", "default", {"drm": {"perturb_every": 48}, "backbone": {"noise": "linear(1.0,0.1,20)"}}),
        ("icm", "default", {"mixing": {"calibrate_updates": 6}}),
        ("cesd+rep", "default", {}),
        ("protorl", "default", {}),
        *(
            (name, reading, {})
            for name in ("rap", "dbc", "mico")
            for reading in ("default", *PIXEL_AGENTS[name].readings)
        ),
        ("ctrlsr", "default", {}),
        ("ctrlsr", "default", {"encoder": {"critic_grad_to_encoder": False}}),
        ("uniform", "default", {}),
    ],
)
def test_a_run_from_pixels_resumes_bit_for_bit(
    agent: str, reading: str, learner: dict[str, Any], tmp_path: Path
) -> None:
    """The replay wraps around on the way, and evaluations fall on both sides of a stop."""
    config = small_config(agent, reading, learner, eval_every=60, eval_episodes=1)
    assert go_on(config, tmp_path / "whole") == (True, [])
    for step in (33, 120, 181):
        assert go_on(config, tmp_path / "cut", step) == (False, [])
        assert newest_step(tmp_path / "cut") == step
    assert go_on(config, tmp_path / "cut") == (True, [])
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


def test_one_seed_gives_every_method_the_same_first_actions(tmp_path: Path) -> None:
    played = {}
    for agent in ("drqv2", "drm", "ctrlsr", "teb", "icm", "cesd", "uniform"):
        go_on(small_config(agent, steps=60), tmp_path / agent)
        replay = learnt(tmp_path / agent)["replay"]
        assert len(replay["action"]) == 60
        played[agent] = replay["action"], np.asarray(replay["obs"])
    for actions, frames in played.values():
        assert np.array_equal(actions, played["drqv2"][0])
        assert np.array_equal(frames, played["drqv2"][1])


def kill_words(agent: str) -> list[str]:
    """A short run of narrow networks that writes a checkpoint whenever it can."""
    words = shlex.split(
        f"train {PROBE} {agent} --steps 240 --seed-steps 60 --uniform-steps 40 --log-every 20 --eval-every 0 "
        "--update-every 8 --checkpoint-seconds 0.05 --precision fp32 --threads 1"
    )
    known = {path.rpartition(".")[2] for path, _ in flat(to_json(default_config(PROBE, agent))["learner"])}
    narrow = {**SHRUNK, "channels": 4, "latent_dim": 8}
    options = [(name, value) for name, value in narrow.items() if name in known]
    return [
        *words,
        *(word for name, value in options for word in (f"--{name.replace('_', '-')}", str(value))),
    ]


QUICK = ("teb", "icm+rep")


@pytest.mark.parametrize(
    "agent",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in PIXEL_AGENTS
        if name != "uniform"  # it ends before it can be killed
    ],
)
def test_a_killed_run_goes_on_bit_for_bit(agent: str, tmp_path: Path) -> None:
    words, folder = kill_words(agent), tmp_path / "cut"
    command = [sys.executable, "-m", "teb", *words, "--out", str(folder)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 90
    while newest_step(folder) < 90 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.kill()
    process.wait()
    assert 90 <= newest_step(folder) < 240
    assert run_words(words, folder) == 0
    assert run_words(words, tmp_path / "whole") == 0
    assert_same_run(folder, tmp_path / "whole")


def test_every_agent_starts_with_the_same_random_actions(tmp_path: Path) -> None:
    for agent in ("uniform", "drqv2", "teb", "rap", "dbc", "mico"):
        go_on(small_config(agent, steps=58), tmp_path / agent)
    actions = {
        agent: learnt(tmp_path / agent)["replay"]["action"].tobytes()
        for agent in ("drqv2", "teb", "rap", "dbc", "mico")
    }
    assert len(set(actions.values())) == 1


# --- evaluation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", ["drqv2", "uniform"])
def test_evaluations_do_not_touch_training(agent: str, tmp_path: Path) -> None:
    go_on(small_config(agent), tmp_path / "without")
    go_on(small_config(agent, eval_every=40, eval_episodes=2), tmp_path / "with")
    parted = differences(learnt(tmp_path / "without"), learnt(tmp_path / "with"))
    assert [path for path in parted if not path.startswith("/agent/evaluating")] == []
    plain, evaluated = rows(tmp_path / "without"), rows(tmp_path / "with")
    assert [{k: v for k, v in row.items() if not k.startswith("eval_")} for row in evaluated] == plain
    assert all({"eval_return", "eval_success"} <= row.keys() for row in evaluated)
    assert not any(name.startswith("eval_") for row in plain for name in row)


def test_an_evaluation_is_the_mean_over_its_episodes_with_the_mean_action(tmp_path: Path) -> None:
    config = small_config("drqv2", steps=80, eval_every=80, eval_episodes=3)
    go_on(config, tmp_path)
    task, agent = build(config)
    agent.load(latest(tmp_path).state["run"]["agent"])
    played = [play(task, agent, child_seed(0, "evaluation", 80, number) % 2**31) for number in range(3)]
    row = rows(tmp_path)[-1]
    assert row["eval_return"] == pytest.approx(np.mean([episode.said["return"] for episode in played]))
    assert row["eval_success"] == pytest.approx(np.mean([episode.said["success"] for episode in played]))
    result = evaluate(tmp_path, 25)
    assert 25 * result["success"] == pytest.approx(round(25 * result["success"]))
    assert evaluate(tmp_path, 25) == result


def test_an_evaluation_waits_for_its_row_across_a_stop(tmp_path: Path) -> None:
    config = small_config("uniform", eval_every=60, eval_episodes=1, log_every=100, steps=200)
    go_on(config, tmp_path / "whole")
    go_on(config, tmp_path / "cut", 75)
    go_on(config, tmp_path / "cut")
    assert ["eval_return" in row for row in rows(tmp_path / "cut")] == [True, True]
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


# --- memory ---------------------------------------------------------------------------------------------------------


def test_a_replay_that_does_not_fit_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "available_memory", lambda: 100_000)
    assert run_words(["train", PROBE, "drqv2", "--replay-capacity", "1000"], tmp_path / "run") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("teb: replay_capacity: 1,000 transitions take 0.0 GiB of memory")
    assert not (tmp_path / "run").exists()


def test_what_a_large_replay_takes_is_said_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    config = default_config(PROBE, "uniform", "cpu")
    large = dataclasses.replace(config.run, replay_capacity=2_000_000, steps=2_000_000)
    task, _ = build(resolved(config))
    monkeypatch.setattr(session, "available_memory", lambda: 2**40)
    said = session._check_memory(dataclasses.replace(config, run=large), task)
    assert said == ["replay: 2,000,000 transitions take 3.2 GiB of memory"]
    assert session._check_memory(config, task) == []


def test_a_checkpoint_streams_its_frames(tmp_path: Path) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (40, 3, 8, 8), dtype=np.uint8)
    state = {"obs": Pieces([frames[25:], frames[:25]]), "other": torch.arange(3)}
    checkpoint.save(tmp_path, 7, state)
    loaded = latest(tmp_path).state
    assert np.array_equal(loaded["obs"], np.concatenate([frames[25:], frames[:25]]))
    chunks = list(checkpoint._chunks(b"", [state["obs"]]))
    assert [np.shares_memory(np.frombuffer(chunk, np.uint8), frames) for chunk in chunks[1:]] == [True, True]


def test_large_arrays_stay_in_the_file_until_they_are_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "MAPPED_BYTES", 1000)
    values = np.random.default_rng(0).normal(size=1000)
    checkpoint.save(tmp_path, 1, {"large": values, "small": values[:3].copy()})
    cloned: list[int] = []
    clone = torch.Tensor.clone
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "clone", lambda self: (cloned.append(self.nbytes), clone(self))[1])
        state = latest(tmp_path).state
    assert cloned == [24]
    assert np.array_equal(state["large"], values) and np.array_equal(state["small"], values[:3])


# --- slow: who learns the probe ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("probe", "agent"), [("near", "drqv2"), ("near", "teb"), ("far", "teb")])
def test_the_probe_is_solved(probe: str, agent: str, tmp_path: Path) -> None:
    words = [*shlex.split(f"train probe/{probe} {agent} --steps 5000 --eval-every 1000"), "--threads", "1"]
    assert run_words(words, tmp_path / agent) == 0
    evaluated = [row["eval_success"] for row in rows(tmp_path / agent) if "eval_success" in row]
    assert evaluated[0] < 0.5 and max(evaluated) >= 0.9


@pytest.mark.slow
def test_the_far_probe_tells_teb_its_halves_and_drqv2_apart(tmp_path: Path) -> None:
    """Who is paid finds the goal, and whose encoder learns the metric has latents that agree with it."""
    last = {}
    for agent in ("teb", "teb-no-rep", "teb-no-int", "drqv2"):
        words = shlex.split(f"train probe/far {agent} --steps 4000 --eval-every 0 --threads 1")
        assert run_words(words, tmp_path / agent) == 0
        last[agent] = rows(tmp_path / agent)[-1]
    found = {agent: row["successes"] for agent, row in last.items()}
    assert min(found["teb"], found["teb-no-rep"]) >= 10 and found["teb-no-int"] == found["drqv2"] == 0
    error = {agent: row.get("bisim_loss") for agent, row in last.items()}
    assert 0 < max(error["teb"], error["teb-no-int"]) < 0.2 * error["teb-no-rep"]
    assert error["drqv2"] is None
