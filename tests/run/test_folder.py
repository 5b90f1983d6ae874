"""A run's folder belongs to one process at a time and to one configuration."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from small_runs import assert_same_run, go_on, latest, newest_step, read_record, run_words, small_config

from teb.agents.backbone import Backbone
from teb.explorers.teb import Teb
from teb.run.evaluate import evaluate, play, play_skills, read_evaluation
from teb.run.insight import trained
from teb.run.logging import read_rows
from teb.run.session import build, read_config, resolved, session
from teb.run.stopping import stop_on_signals
from teb.run.train import RunError

FAST = shlex.split("train maze2d/square-a uniform --seed 0 --log-every 50 --threads 1 --steps 100")


# --- one process --------------------------------------------------------------------------------------------------


def test_a_second_process_is_refused_with_one_line(tmp_path: Path) -> None:
    config = small_config("uniform", steps=100)
    with session(config, tmp_path):
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        second = subprocess.run(
            [sys.executable, "-m", "teb", *FAST, "--out", str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert (second.returncode, second.stdout) == (1, "")
    assert second.stderr == f"teb: {tmp_path} is in use by another process\n"


def test_the_folder_is_free_again_after_an_error(tmp_path: Path) -> None:
    config = small_config("uniform")
    with pytest.raises(KeyboardInterrupt), session(config, tmp_path):
        raise KeyboardInterrupt
    with pytest.raises(ValueError, match="another --out"):
        go_on(small_config("uniform", seed=1), tmp_path)
    assert go_on(config, tmp_path) == (True, [])


# --- one configuration --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["--seed", "1"], "its seed is 0, asked for is 1"),
        (["--uniform-steps", "7"], "its uniform_steps is 2000, asked for is 7"),
        (["--replay-capacity", "300"], "its replay_capacity is 200000, asked for is 300"),
        (["--action-limit", "0.5"], "its action_limit is 0.95, asked for is 0.5"),
        (["--preset", "paper"], "its preset is 'cpu', asked for is 'paper'"),
        (["--steps", "60"], "was planned for 100, cannot end at 60"),
    ],
)
def test_another_configuration_is_refused(
    change: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    run_words(FAST, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    capsys.readouterr()
    assert run_words([*FAST, *change], folder) == 2
    errors = capsys.readouterr().err
    assert len(errors.splitlines()) == 1
    assert said in errors and str(folder) in errors
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train maze2d/square-b uniform", "its env is 'maze2d/square-a', asked for is 'maze2d/square-b'"),
        ("train maze2d/square-a eta0", "its agent is 'uniform', asked for is 'eta0'"),
    ],
)
def test_another_task_or_agent_is_refused(
    words: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_words(FAST, tmp_path / "run")
    capsys.readouterr()
    assert run_words([*words.split(), "--steps", "100"], tmp_path / "run") == 2
    assert said in capsys.readouterr().err


def test_options_of_the_learner_are_named_with_both_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split("train maze2d/square-a eta0 --width 16 --steps 10 --threads 1")
    run_words(words, tmp_path / "run")
    capsys.readouterr()
    assert run_words([*words, "--lr", "0.5"], tmp_path / "run") == 2
    assert "its lr is 0.0004, asked for is 0.5" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change", [{"steps": 400}, {"log_every": 7}, {"checkpoint_seconds": 9.0}, {"threads": 0}]
)
def test_what_does_not_change_a_run_may_change(change: dict[str, Any], tmp_path: Path) -> None:
    config = small_config("uniform")
    go_on(config, tmp_path, 100)
    changed = dataclasses.replace(config, run=dataclasses.replace(config.run, **change))
    with session(changed, tmp_path) as opened:
        assert opened.resumed_at == 100
    assert resolved(read_config(tmp_path)) == changed


def test_the_folder_says_what_it_was_made_with(tmp_path: Path) -> None:
    config = small_config("teb-p", seed=5)
    with session(config, tmp_path):
        pass
    assert read_config(tmp_path) == config
    assert {"run_id", "started", "env", "agent", "run"} <= json.loads(
        (tmp_path / "config.json").read_text()
    ).keys()


# --- signals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_a_wish_and_the_second_acts(number: signal.Signals) -> None:
    heard: list[int] = []
    before = signal.signal(number, lambda received, frame: heard.append(received))
    try:
        with stop_on_signals() as wish:
            assert wish.signal is None
            os.kill(os.getpid(), number)
            assert (wish.signal, heard) == (number, [])
            os.kill(os.getpid(), number)
            assert heard == [number]
        os.kill(os.getpid(), number)
        assert heard == [number, number]
    finally:
        signal.signal(number, before)


# --- evaluation ---------------------------------------------------------------------------------------------------


def test_an_evaluation_plays_the_mean_action_and_changes_nothing(tmp_path: Path) -> None:
    config = small_config("eta0")
    go_on(config, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    first, second = evaluate(tmp_path, 2, seed=3), evaluate(tmp_path, 2, seed=3)
    assert first == second == read_evaluation(tmp_path)
    assert (first["env_steps"], first["episodes"], len(first["returns"])) == (300, 2, 2)
    assert evaluate(tmp_path, 2, seed=4)["coverage"] != first["coverage"]
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != "eval.json"}
    assert after == before


def test_a_run_without_a_checkpoint_cannot_be_evaluated(tmp_path: Path) -> None:
    with session(small_config("uniform"), tmp_path):
        pass
    with pytest.raises(RunError, match="has no checkpoint yet"):
        evaluate(tmp_path, 1)


@pytest.mark.parametrize(("agent", "expected"), [("diayn", np.eye(16)), ("smm", np.eye(4))])
def test_every_one_hot_skill_is_played_from_the_given_start(
    agent: str, expected: np.ndarray, tmp_path: Path
) -> None:
    go_on(small_config(agent), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    one, again = (play_skills(tmp_path, 2, 5, start=(0.25, -3.0), seed=1) for _ in range(2))
    assert one.env_steps == 300 and np.array_equal(one.skills, expected)
    paths, repeated = np.array(one.paths), np.array(again.paths)
    assert paths.shape == (len(expected), 2, 51, 2) and np.array_equal(paths, repeated)
    assert (paths[:, :, 0] == np.array((0.25, -3.0), np.float32)).all()
    assert len(np.unique(paths[:, 0], axis=0)) == len(expected), "skills act differently"
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_each_skill_is_played_with_its_mean_action(tmp_path: Path) -> None:
    config = small_config("lsd")
    go_on(config, tmp_path)
    played = play_skills(tmp_path, 1, 5)
    run = trained(tmp_path)
    task, agent = run.task, run.agent
    for skill, (path,) in zip(played.skills, played.paths, strict=True):
        task.env.reset(options={"start": path[0]})
        action = agent.act(path[0], skill, 0, explore=False)
        assert np.allclose(task.env.step(action)[0], path[1], atol=0.011), "up to what walls push back"


def test_continuous_skills_are_drawn_from_the_seed(tmp_path: Path) -> None:
    config = small_config("lsd")
    explorer = dataclasses.replace(config.learner.explorer, skill="normal")
    config = dataclasses.replace(config, learner=dataclasses.replace(config.learner, explorer=explorer))
    go_on(config, tmp_path)
    one, same, other = (play_skills(tmp_path, 1, 7, seed=seed) for seed in (1, 1, 2))
    assert one.skills.shape == (7, 2) and len(one.paths) == 7
    assert np.array_equal(one.skills, same.skills) and not np.array_equal(one.skills, other.skills)


def test_a_method_without_skills_has_none_to_play(tmp_path: Path) -> None:
    go_on(small_config("eta0"), tmp_path)
    with pytest.raises(ValueError, match="its method has no skills"):
        play_skills(tmp_path, 1, 1)


def test_an_evaluation_draws_skills_when_they_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    gym.register("Paid-v0", entry_point=lambda **options: Paid(**options), max_episode_steps=120)
    task, agent = build(small_config("diayn", "gym/Paid-v0"))
    seen: list[bytes] = []
    act = agent.act

    def spy(obs: np.ndarray, skill: np.ndarray, env_steps: int, *, explore: bool) -> np.ndarray:
        seen.append(skill.tobytes())
        return act(obs, skill, env_steps, explore=explore)

    monkeypatch.setattr(agent, "act", spy)
    for seed in range(3):
        play(task, agent, seed)
    blocks = [set(seen[e + b : min(e + b + 50, e + 120)]) for e in (0, 120, 240) for b in (0, 50, 100)]
    assert all(len(block) == 1 for block in blocks)
    assert max(len(set().union(*blocks[e : e + 3])) for e in (0, 3, 6)) > 1, "it changes within an episode"
    seen.clear()
    play(task, agent, 0, agent.skills.one_hot(3))
    assert set(seen) == {agent.skills.one_hot(3).tobytes()} and len(seen) == 120


class Paid(gym.Env[np.ndarray, np.ndarray]):
    """Five steps that pay what the seed of the episode said."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        self.pay = float(np.random.default_rng(seed).integers(100))
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), self.pay, False, False, {}


class Steered(Paid):
    """Pays the action."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), float(action[0]), False, False, {}


def test_the_skill_that_earned_most_is_evaluated_beside_those_that_are_drawn(tmp_path: Path) -> None:
    gym.register("Steered-v0", entry_point=lambda **options: Steered(**options), max_episode_steps=20)
    go_on(small_config("diayn", "gym/Steered-v0", eval_every=300, eval_episodes=3), tmp_path)
    run = trained(tmp_path)
    skill, reward = (run.saved["replay"][name] for name in ("skill", "reward"))
    taken = {k: reward[skill[:, k] == 1].mean() for k in range(16) if skill[:, k].any()}
    best = max(taken, key=lambda k: taken[k])
    earned = play(run.task, run.agent, 0, run.agent.skills.one_hot(best)).said["return"]
    result = evaluate(tmp_path, 4)
    assert result["best_skill"] == best and result["best_skill_return"] == pytest.approx(earned)
    assert result["return_mean"] != pytest.approx(earned)
    evaluated = run.saved["evaluated"] | read_rows(tmp_path / "metrics.jsonl")[-1]
    assert evaluated["eval_best_skill_return"] == pytest.approx(earned)


def test_the_returns_of_an_evaluation_are_sums_of_rewards(tmp_path: Path) -> None:
    gym.register("Paid-v0", entry_point=lambda **options: Paid(**options), max_episode_steps=5)
    go_on(small_config("uniform", "gym/Paid-v0"), tmp_path)
    result = evaluate(tmp_path, 6)
    assert all(value % 5 == 0 for value in result["returns"])
    assert len(set(result["returns"])) > 1
    assert result["return_mean"] == pytest.approx(np.mean(result["returns"]))
    assert result["return_std"] == pytest.approx(np.std(result["returns"]))


# --- Gymnasium's own ----------------------------------------------------------------------------------------------

PENDULUM = shlex.split(
    "train gym/Pendulum-v1 teb --seed 2 --steps 1200 --seed-steps 400 --uniform-steps 200 --update-every 8 "
    "--width 32 --batch-size 32 --pred-hidden 16 --log-every 250 --precision fp32 --threads 1 --eta 0.5"
)


def test_pendulum_is_learnt_from_reward_plus_eta_times_bonus_and_resumes_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid: list[Any] = []
    learnt_from: list[Any] = []
    pay, learn = Teb.reward, Backbone.critic_loss

    def reward(self: Teb, batch: Any, policy: Any, rng: Any) -> Any:
        payment = pay(self, batch, policy, rng)
        paid.append((batch.reward.clone(), payment.bonus.clone()))
        return payment

    def critic_loss(self: Backbone, batch: Any, reward: Any, *others: Any) -> Any:
        learnt_from.append(reward.clone())
        return learn(self, batch, reward, *others)

    with monkeypatch.context() as patch:
        patch.setattr(Teb, "reward", reward)
        patch.setattr(Backbone, "critic_loss", critic_loss)
        assert run_words(PENDULUM, tmp_path / "whole") == 0
    assert len(paid) == len(learnt_from) == 100
    for (extrinsic, bonus), both in zip(paid, learnt_from, strict=True):
        assert (extrinsic < 0).all()  # Pendulum only ever costs
        assert bonus.abs().sum() > 0
        assert (both == extrinsic + 0.5 * bonus).all()
    record = read_record(tmp_path / "whole")
    assert record["headline"] == "episode_return"
    assert all(value < 0 for value in record["curves"]["episode_return"])
    assert record["map"] == {}

    config = resolved(read_config(tmp_path / "whole"))
    for step in (650, 1000):  # with a return that no row reports yet, and between two episodes
        assert go_on(config, tmp_path / "cut", step) == (False, [])
        assert newest_step(tmp_path / "cut") == step
    go_on(config, tmp_path / "cut")
    assert_same_run(tmp_path / "cut", tmp_path / "whole")
    assert latest(tmp_path / "cut").env_steps == 1200
