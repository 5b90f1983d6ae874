"""A replay as slow lists, written straight from the definition: what the ring is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from teb.replay.ring import Replay
from teb.replay.saved import Pieces

SKILLS = 3


@dataclass
class NaiveEpisode:
    """o_t = (number, t); actions, rewards and skills are functions of (number, t), so that mix-ups show."""

    number: int
    terminal: list[bool] = field(default_factory=list[bool])

    def __len__(self) -> int:
        return len(self.terminal)

    def obs(self, t: int) -> np.ndarray:
        return np.array([self.number, t], dtype=np.float32)

    def action(self, t: int) -> np.ndarray:
        return np.array([self.number + 0.25, t + 0.5, self.number - t], dtype=np.float32)

    def reward(self, t: int) -> float:
        return float(t + 100 * (self.number % 7))

    def skill(self, t: int) -> np.ndarray:
        return np.eye(SKILLS, dtype=np.float32)[(self.number + t // 2) % SKILLS]

    def rewards(self, start: int, count: int) -> list[float]:
        earned: list[float] = []
        over = False
        for t in range(start, start + count):
            earned.append(0.0 if over or t >= len(self) else self.reward(t))
            over = over or (t < len(self) and self.terminal[t])
        return earned

    def n_step(self, start: int, n_step: int, gamma: float) -> tuple[float, float]:
        total, weight = 0.0, 1.0
        for t in range(start, start + n_step):
            total += weight * self.reward(t)
            weight *= gamma * (not self.terminal[t])
        return total, weight


class NaiveReplay:
    """Lists of episodes; drives a `Replay` alongside."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.finished: list[NaiveEpisode] = []
        self.running: NaiveEpisode | None = None
        self.begun = 0

    def begin(self, replay: Replay) -> None:
        self.running = NaiveEpisode(self.begun)
        self.begun += 1
        replay.begin(self.running.obs(0))

    def add(self, replay: Replay, terminal: bool = False) -> None:
        episode = self.running
        assert episode is not None
        t = len(episode)
        replay.add(episode.action(t), episode.reward(t), terminal, episode.obs(t + 1), episode.skill(t))
        episode.terminal.append(terminal)
        while sum(map(len, self.finished)) + len(episode) > self.capacity:
            self.finished.pop(0)

    def end(self, replay: Replay) -> None:
        assert self.running is not None
        self.finished.append(self.running)
        self.running = None
        replay.end()

    def episode(self, replay: Replay, length: int, terminal: bool = False) -> None:
        self.begin(replay)
        for t in range(length):
            self.add(replay, terminal and t == length - 1)
        self.end(replay)


def new_replay(capacity: int) -> Replay:
    return Replay(capacity, (2,), np.float32, 3, SKILLS)


def check_content(replay: Replay, naive: NaiveReplay) -> None:
    """Everything stored is what the lists hold, in the same order."""
    assert replay.episodes == len(naive.finished)
    assert replay.transitions == sum(map(len, naive.finished))
    stored = [*naive.finished, *([naive.running] if naive.running is not None else [])]
    places = [(episode, t) for episode in stored for t in range(len(episode))]
    state = {
        name: value.joined() if isinstance(value, Pieces) else value for name, value in replay.state().items()
    }
    assert state["length"].tolist() == [len(episode) for episode in stored]
    assert bool(state["running"]) == (naive.running is not None) == replay.running
    assert state["obs"].tolist() == [episode.obs(t).tolist() for episode, t in places]
    assert state["final_obs"].tolist() == [episode.obs(len(episode)).tolist() for episode in stored]
    assert state["action"].tolist() == [episode.action(t).tolist() for episode, t in places]
    assert state["reward"].tolist() == [episode.reward(t) for episode, t in places]
    assert state["terminal"].tolist() == [episode.terminal[t] for episode, t in places]
    assert state["skill"].tolist() == [episode.skill(t).tolist() for episode, t in places]
    assert replay.nbytes == sum(
        array.nbytes for name, array in state.items() if name not in {"length", "running"}
    )
    running = naive.running
    actions = [running.action(t).tolist() for t in range(len(running))] if running is not None else []
    assert replay.current_actions().tolist() == actions
    observations = [running.obs(t).tolist() for t in range(len(running) + 1)] if running is not None else []
    assert replay.current_obs().tolist() == observations


def check_sample(
    replay: Replay, naive: NaiveReplay, n_step: int, horizon: int, gamma: float, rng: np.random.Generator
) -> None:
    """Every sampled window is one that the lists allow, and carries what they say."""
    batch = replay.sample(32, n_step, horizon, gamma, rng)
    eligible = {episode.number: episode for episode in naive.finished if len(episode) >= n_step}
    for i in range(32):
        number, t = batch.obs[i].astype(int).tolist()
        episode = eligible[number]
        assert 0 <= t <= len(episode) - n_step
        total, discount = episode.n_step(t, n_step, gamma)
        np.testing.assert_allclose(batch.reward[i], [total], rtol=1e-6)
        np.testing.assert_allclose(batch.discount[i], [discount], rtol=1e-6)
        assert batch.rewards[i].tolist() == episode.rewards(t, horizon)
        window = [episode.obs(t + k).tolist() for k in range(n_step + 1)]
        assert batch.window_obs[i].tolist() == window
        assert batch.next_obs[i].tolist() == window[-1]
        actions = [episode.action(t + k) for k in range(n_step + 1)]
        if t + n_step == len(episode):
            actions[-1] = np.full(3, np.nan, dtype=np.float32)
        np.testing.assert_array_equal(batch.window_action[i], actions)
        assert batch.action[i].tolist() == episode.action(t).tolist()
        assert batch.skill[i].tolist() == episode.skill(t).tolist()
