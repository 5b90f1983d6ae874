"""One episode of a policy without exploration noise, and what many of them come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from teb.agents.protocol import Agent
from teb.envs.protocol import Task
from teb.replay.stacking import first_stack, next_stack
from teb.seeding import child_seed


class Episode(NamedTuple):
    """One episode that was played, T steps."""

    obs: list[np.ndarray]
    """Its observations, T+1 of [D], or of [C, H, W]."""
    actions: list[np.ndarray]
    skills: list[np.ndarray]
    """Those that chose the actions, each [K]."""
    rewards: list[float]
    solved: list[bool]
    """After each step whether the task was solved by then; empty where it does not say."""
    said: Mapping[str, float]
    """Its `return`, and what the task's meter says of it."""


def play(
    task: Task,
    agent: Agent,
    seed: int,
    skill: np.ndarray | None = None,
    start: Sequence[float] | None = None,
) -> Episode:
    """One episode with the mean action, under the given skill, or under ones drawn whenever they are due."""
    frame, _ = task.env.reset(seed=seed, options=None if start is None else {"start": start})
    task.meter.observe(frame, 0)
    obs = first_stack(frame, task.frame_stack)
    skill_rng = np.random.default_rng(child_seed(seed, "skill"))
    episode = Episode([frame.copy()], [], [], [], [], {})
    acting, total, ended = skill, 0.0, False
    said: Mapping[str, float] = {}
    while not ended:
        steps = len(episode.actions)
        if acting is None or (skill is None and agent.skills.due(steps)):
            acting = agent.skills.draw(skill_rng)
        action = agent.act(obs, acting, steps, explore=False)
        frame, reward, terminated, truncated, info = task.env.step(action)
        ended = terminated or truncated
        task.meter.observe(frame, steps + 1)
        said = task.meter.observe_step(info, ended)
        obs = next_stack(obs, frame)
        total += float(reward)
        episode.obs.append(frame.copy())
        episode.actions.append(action)
        episode.skills.append(acting)
        episode.rewards.append(float(reward))
        if "success" in info:
            episode.solved.append(bool(info["success"]) or episode.solved[-1:] == [True])
    return episode._replace(said={"return": total, **said})


def average(played: Sequence[Episode]) -> dict[str, float]:
    """Means over episodes of everything that is said of each."""
    return {name: float(np.mean([episode.said[name] for episode in played])) for name in played[0].said}
