"""The loop, driven with an agent that only counts and an environment whose observations say where they belong."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
import torch
from small_runs import differences, latest, learnt, newest_step, rows, run_words, wish_at

from teb.agents.protocol import Batch, Metrics, Sampling, Skills, State
from teb.config import RunConfig
from teb.envs.protocol import Task
from teb.run import checkpoint
from teb.run.logging import Lines, MetricsFile, Row
from teb.run.stopping import StopWish
from teb.run.train import Reporting, Run, RunError, train
from teb.seeding import numpy_generator

GAMMA, N_STEP = 0.9, 3
MARK = np.array([0.25, -0.75], np.float32)
"""The action of the agent; nothing uniform comes out like it."""


class Probe(gym.Env[np.ndarray, np.ndarray]):
    """Observes (episode, step of the episode); notes down what it is asked."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, events: list[tuple[str, Any]], length: int, terminal: bool) -> None:
        self.events, self.length, self.terminal = events, length, terminal
        self.episode: float = -1
        self.t = 0
        self.spoil: Callable[[int, np.ndarray, float], tuple[np.ndarray, float]] = lambda k, obs, r: (obs, r)
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        self.events.append(("reset", seed))
        self.episode, self.t = self.episode + 1, 0
        return self.obs(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.events.append(("step", action.copy()))
        self.t += 1
        self.steps += 1
        over = self.t == self.length
        obs, reward = self.spoil(self.steps, self.obs(), 1.0)
        return obs, reward, over and self.terminal, over and not self.terminal, {"step": self.steps}

    def obs(self) -> np.ndarray:
        return np.array([self.episode, self.t], np.float32)


class CountingAgent:
    """Learns nothing and notes down what it is asked."""

    skills = Skills()

    def __init__(self, events: list[tuple[str, Any]], batch_size: int = 8) -> None:
        self.events = events
        self.sampling: Sampling | None = Sampling(batch_size, N_STEP, N_STEP, GAMMA)
        self.spoil: Callable[[int], float] = lambda env_steps: 0.5

    def act(self, obs: np.ndarray, skill: np.ndarray, env_steps: int, *, explore: bool) -> np.ndarray:
        assert explore
        self.events.append(("act", env_steps))
        return MARK

    def update(self, batch: Batch, env_steps: int) -> Metrics:
        self.events.append(("update", (env_steps, batch)))
        return {"sound": torch.tensor(1.0), "loss": torch.tensor(self.spoil(env_steps))}

    def state(self) -> State:
        return {}

    def load(self, state: State) -> None:
        pass


class CountingMeter:
    """Keeps what it was shown."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, list[float]]] = []
        self.ends: list[Mapping[str, Any]] = []
        self.steps: list[bool] = []

    def observe(self, obs: np.ndarray, env_steps: int) -> None:
        self.seen.append((env_steps, obs.tolist()))

    def observe_step(self, info: Mapping[str, Any], ended: bool) -> dict[str, float]:
        self.steps.append(ended)
        if ended:
            self.ends.append(info)
        return {}

    def metrics(self) -> dict[str, float]:
        return {"seen": float(len(self.seen))}

    def record(self) -> dict[str, Any]:
        return {}

    def state(self) -> dict[str, np.ndarray]:
        return {}

    def load(self, state: dict[str, np.ndarray]) -> None:
        pass


class Silent(Lines):
    """Says nothing."""

    def __init__(self) -> None:
        pass

    def advance(self, row: Row) -> None:
        pass


class Sides(NamedTuple):
    """A run and whatever can be watched about it."""

    run: Run
    reporting: Reporting
    events: list[tuple[str, Any]]
    env: Probe
    agent: CountingAgent
    meter: CountingMeter

    def go(self) -> bool:
        return train(self.run, self.reporting, StopWish())

    def of(self, kind: str) -> list[Any]:
        return [what for name, what in self.events if name == kind]


@pytest.fixture
def sides(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """Makes runs with an environment of episodes of `length` steps; checkpoints go to the test's folder."""

    def make(*, length: int = 10, terminal: bool = False, batch_size: int = 8, **schedule: Any) -> Sides:
        config = RunConfig(
            **{"steps": 200, "seed_steps": 40, "uniform_steps": 20, "log_every": 50, **schedule}
        )
        events: list[tuple[str, Any]] = []
        env, agent, meter = (
            Probe(events, length, terminal),
            CountingAgent(events, batch_size),
            CountingMeter(),
        )
        run = Run(config, Task(env, meter, "seen"), agent, tmp_path)
        metrics = MetricsFile(tmp_path / "metrics.jsonl", 0)
        request.addfinalizer(metrics.close)

        def save(run: Run, metrics: MetricsFile) -> None:
            checkpoint.save(run.folder, run.env_steps, {"run": run.state(), "metrics_bytes": metrics.length})

        return Sides(run, Reporting(metrics, [], Silent(), save), events, env, agent, meter)

    return make


MakeSides = Callable[..., Sides]


# --- how often ----------------------------------------------------------------------------------------------------


def test_the_maze_schedule_makes_48_000_updates(sides: MakeSides, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = {name: getattr(RunConfig(), name) for name in ("steps", "seed_steps", "uniform_steps")}
    assert schedule == {"steps": 100_000, "seed_steps": 4000, "uniform_steps": 2000}
    made = sides(length=50, batch_size=1, **schedule, log_every=1000)
    updates: list[int] = []
    actions = [0]

    def count(batch: Any, env_steps: int) -> Metrics:
        updates.append(env_steps)
        return {}

    def act(*arguments: Any, **options: Any) -> np.ndarray:
        actions[0] += 1
        return MARK

    # What costs time and is looked at elsewhere: windows, checks, notes.
    monkeypatch.setattr(made.agent, "update", count)
    monkeypatch.setattr(made.agent, "act", act)
    monkeypatch.setattr(made.run, "check", lambda: None)
    monkeypatch.setattr(made.run.replay, "sample", lambda *arguments: [np.zeros((1, 1), np.float32)] * 9)
    assert made.go()
    assert updates == list(range(4000, 100_000, 2))
    assert made.run.updates == len(updates) == 48_000
    assert (made.run.env_steps, made.env.steps, actions[0]) == (100_000, 100_000, 98_000)
    assert (made.run.episodes, made.env.episode + 1, made.run.replay.transitions) == (2000, 2000, 100_000)


@pytest.mark.parametrize(
    ("seed_steps", "update_every", "expected"),
    [
        (40, 2, range(40, 200, 2)),
        (41, 2, range(42, 200, 2)),
        (40, 1, range(40, 200)),
        (40, 3, range(42, 200, 3)),
        (40, 7, range(42, 200, 7)),
        (198, 2, range(198, 200, 2)),
        (200, 2, range(0)),
        (1000, 2, range(0)),
    ],
)
def test_updates_come_at_multiples_from_the_seed_steps_on(
    seed_steps: int, update_every: int, expected: range, sides: MakeSides
) -> None:
    made = sides(seed_steps=seed_steps, update_every=update_every)
    assert made.go()
    assert [env_steps for env_steps, _ in made.of("update")] == list(expected)
    assert (made.run.updates, made.run.env_steps, made.run.episodes) == (len(expected), 200, 20)


def test_an_agent_without_sampling_is_never_updated(sides: MakeSides) -> None:
    made = sides()
    made.agent.sampling = None
    assert made.go()
    assert (made.of("update"), made.run.updates, made.env.steps) == ([], 0, 200)


def test_an_agent_may_have_nothing_to_report(sides: MakeSides, monkeypatch: pytest.MonkeyPatch) -> None:
    made = sides()
    monkeypatch.setattr(made.agent, "update", lambda batch, env_steps: {})
    assert made.go()
    assert made.run.updates == 80


def test_the_schedule_is_a_prefix_of_a_longer_one(sides: MakeSides) -> None:
    short, long = sides(steps=120), sides(steps=200)
    assert short.go() and long.go()
    assert [name for name, _ in long.events][: len(short.events)] == [name for name, _ in short.events]


# --- in which order -----------------------------------------------------------------------------------------------


def test_each_step_acts_then_learns_then_steps(sides: MakeSides) -> None:
    made = sides(seed_steps=40, uniform_steps=0)
    made.go()
    expected: list[str] = []
    for t in range(200):
        expected += ["reset"] * (t % 10 == 0) + ["act"] + ["update"] * (t >= 40 and t % 2 == 0) + ["step"]
    assert [name for name, _ in made.events] == expected
    assert made.of("act") == list(range(200))


def test_an_update_sees_finished_episodes_only(sides: MakeSides) -> None:
    made = sides(batch_size=64)
    made.go()
    seen: set[float] = set()
    for env_steps, batch in made.of("update"):
        episodes = batch.window_obs[..., 0]
        assert episodes.max() < env_steps // 10, "the running episode was sampled"
        seen |= set(episodes.flatten().tolist())
    assert seen == set(range(19))


def test_windows_reach_the_last_observation_and_carry_what_was_acted(sides: MakeSides) -> None:
    made = sides(batch_size=64)
    made.go()
    batches = [batch for _, batch in made.of("update")]
    assert {t for batch in batches for t in batch.next_obs[:, 1].tolist()} == set(range(N_STEP, 11))
    taken = np.array(made.of("step"))
    for batch in batches:
        episode, t = batch.obs[:, 0].long(), batch.obs[:, 1].long()
        assert np.array_equal(batch.action.numpy(), taken[episode * 10 + t])
        assert torch.equal(batch.next_obs[:, 1], batch.obs[:, 1] + N_STEP)
        assert torch.allclose(batch.reward, torch.tensor(1 + GAMMA + GAMMA**2, dtype=torch.float32))
        assert torch.equal(batch.first_obs, torch.tensor([[0.0, 0.0]]))


# --- actions, resets, endings -------------------------------------------------------------------------------------


def test_actions_are_uniform_at_first_and_the_agents_afterwards(sides: MakeSides) -> None:
    made = sides(uniform_steps=30, seed=5)
    made.go()
    actions = made.of("step")
    draws = numpy_generator(5, "uniform actions")
    for action in actions[:30]:
        assert action.dtype == np.float32
        assert np.array_equal(action, draws.uniform(-1.0, 1.0, 2).astype(np.float32))
    assert all(np.array_equal(action, MARK) for action in actions[30:])
    assert made.of("act") == list(range(30, 200))


def test_uniform_actions_fill_the_whole_square(sides: MakeSides) -> None:
    made = sides(uniform_steps=2000, steps=2000, seed_steps=2000)
    made.go()
    actions = np.array(made.of("step"))
    assert np.abs(actions).max() <= 1.0
    counts, *_ = np.histogram2d(actions[:, 0], actions[:, 1], bins=4, range=[[-1, 1], [-1, 1]])
    assert counts.min() > 80  # 125 expected


def test_every_episode_is_reset_with_a_seed_of_its_own(sides: MakeSides) -> None:
    made = sides(seed=1)
    made.go()
    again, other = sides(seed=1), sides(seed=2)
    assert again.go() and other.go()
    seeds = made.of("reset")
    assert len(set(seeds)) == len(seeds) == 20
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert again.of("reset") == seeds
    assert not set(other.of("reset")) & set(seeds)


def test_a_time_limit_keeps_the_discount(sides: MakeSides) -> None:
    made = sides(terminal=False, batch_size=64)
    made.go()
    for _, batch in made.of("update"):
        assert torch.equal(batch.discount, torch.full((64, 1), GAMMA**N_STEP))


def test_a_termination_ends_the_discount_of_exactly_its_windows(sides: MakeSides) -> None:
    made = sides(terminal=True, batch_size=64)
    made.go()
    terminal = 0
    for _, batch in made.of("update"):
        ended = batch.next_obs[:, 1:] == 10
        terminal += int(ended.sum())
        assert torch.equal(batch.discount, torch.where(ended, 0.0, GAMMA**N_STEP))
    assert terminal > 100


def test_the_meter_sees_resets_and_steps_with_their_time(sides: MakeSides) -> None:
    made = sides(steps=25, seed_steps=100)
    made.go()
    expected = []
    for t in range(25):
        expected += [(t, [t // 10, 0])] * (t % 10 == 0)
        expected += [(t + 1, [t // 10, t % 10 + 1])]
    assert made.meter.seen == expected
    assert made.meter.steps == [t % 10 == 9 for t in range(25)]


@pytest.mark.parametrize("terminal", [False, True])
def test_the_meter_hears_of_each_end_with_the_last_step_s_info(sides: MakeSides, terminal: bool) -> None:
    made = sides(steps=35, seed_steps=100, terminal=terminal)
    made.go()
    assert made.meter.ends == [{"step": 10}, {"step": 20}, {"step": 30}]


def test_rows_hold_counts_returns_measures_and_the_latest_metrics(sides: MakeSides) -> None:
    made = sides(steps=60, log_every=25)
    made.agent.spoil = float
    made.go()
    made.reporting.metrics.close()
    names = ("env_steps", "updates", "episodes", "episode_return", "seen", "loss")
    assert [{name: row.get(name) for name in names} for row in rows(made.run.folder)] == [
        {"env_steps": 25, "updates": 0, "episodes": 2, "episode_return": 10.0, "seen": 28.0, "loss": None},
        {"env_steps": 50, "updates": 5, "episodes": 5, "episode_return": 10.0, "seen": 55.0, "loss": 48.0},
        {"env_steps": 60, "updates": 10, "episodes": 6, "episode_return": 10.0, "seen": 66.0, "loss": 58.0},
    ]


def test_a_wish_is_granted_at_the_end_of_the_step_and_saved(
    sides: MakeSides, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, wish = sides(), StopWish()
    wish_at(made.run, 73, wish, monkeypatch)
    assert not train(made.run, made.reporting, wish)
    assert made.run.env_steps == made.env.steps == newest_step(made.run.folder) == 73


# --- numbers that are not finite ----------------------------------------------------------------------------------

BAD = [math.nan, math.inf, -math.inf]


def expect_broken(made: Sides, quantity: str, step: int) -> None:
    """The run ends with an error that says what, when, and from where one may go on, and saves nothing more."""
    with pytest.MonkeyPatch.context() as patch:
        wish = StopWish()
        wish_at(made.run, 60, wish, patch)
        train(made.run, made.reporting, wish)
    before = learnt(made.run.folder)
    with pytest.raises(RunError) as caught:
        made.go()
    message = str(caught.value)
    assert quantity in message
    assert f"step {step}:" in message
    assert f"the last good checkpoint is {latest(made.run.folder).path} (step 60)" in message
    assert newest_step(made.run.folder) == 60
    assert differences(learnt(made.run.folder), before) == []


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_observation_ends_the_run(bad: float, sides: MakeSides) -> None:
    made = sides()
    made.env.spoil = lambda step, obs, r: (obs if step != 123 else np.array([1.0, bad], np.float32), r)
    expect_broken(made, "observation", 123)
    assert made.meter.seen[-1][0] == 122
    assert len(made.run.replay.current_actions()) == 2


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_reward_ends_the_run(bad: float, sides: MakeSides) -> None:
    made = sides()
    made.env.spoil = lambda step, obs, r: (obs, r if step != 123 else bad)
    expect_broken(made, "reward", 123)  # the step whose observation came with it
    assert len(made.run.replay.current_actions()) == 2


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_metric_ends_the_run(bad: float, sides: MakeSides) -> None:
    made = sides()
    made.agent.spoil = lambda env_steps: bad if env_steps == 124 else 0.0
    expect_broken(made, "update: loss is not finite", 124)
    assert "sound" not in made.run.broken("reward", 0.0).args[0]
    assert made.env.steps == 124


def test_a_bad_first_observation_is_told_without_a_checkpoint(sides: MakeSides) -> None:
    made = sides()
    made.env.episode = math.nan
    with pytest.raises(RunError, match=r"observation is not finite at step 0: .*no checkpoint yet"):
        made.go()
    assert newest_step(made.run.folder) == -1


class Broken(gym.Env[np.ndarray, np.ndarray]):
    """Observes NaN from the 150th step of the process on."""

    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, width: int = 3, reward: bool = False) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (width,), np.float32)
        self.reward, self.steps = reward, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(self.observation_space.shape or (), np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        bad = math.nan if self.steps >= 150 else 0.0
        obs = np.full(self.observation_space.shape or (), 0.0 if self.reward else bad, np.float32)
        return obs, bad if self.reward else 1.0, False, False, {}


@pytest.mark.parametrize(
    ("options", "quantity"),
    [({}, "observation"), ({"reward": True}, "reward"), ({"width": 40}, "observation")],
    ids=["observation", "reward", "an observation of many numbers"],
)
def test_the_command_ends_with_one_line(
    options: dict[str, Any], quantity: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gym.register(
        "Broken-v0", entry_point=lambda **given: Broken(**given), max_episode_steps=20, kwargs=options
    )
    words = shlex.split("train gym/Broken-v0 uniform --log-every 1000 --threads 1 --steps")
    assert run_words([*words, "100"], tmp_path / "run") == 0
    capsys.readouterr()
    assert run_words([*words, "400"], tmp_path / "run") == 1
    first, *rest = capsys.readouterr().err.splitlines()
    assert first == f"resuming {tmp_path / 'run'} at step 100"
    assert len(rest) == 1
    assert rest[0].startswith(f"teb: {quantity} is not finite at step 250: ")
    assert rest[0].endswith(f"the last good checkpoint is {latest(tmp_path / 'run').path} (step 100)")
    assert newest_step(tmp_path / "run") == 100
