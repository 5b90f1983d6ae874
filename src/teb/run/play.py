"""One episode of a policy without exploration noise, and what many of them come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from teb.agents.protocol import Agent
from teb.envs.protocol import Task
from teb.replay.stacking import first_stack, next_stack
from teb.seeding import child_seed


def play(task: Task, agent: Agent, seed: int) -> dict[str, float]:
    """One episode with the mean action: its `return`, and what the task's meter says of it."""
    frame, _ = task.env.reset(seed=seed)
    task.meter.observe(frame, 0)
    obs = first_stack(frame, task.frame_stack)
    skill = agent.skills.draw(np.random.default_rng(child_seed(seed, "skill")))
    total, steps, ended = 0.0, 0, False
    said: Mapping[str, float] = {}
    while not ended:
        action = agent.act(obs, skill, steps, explore=False)
        frame, reward, terminated, truncated, info = task.env.step(action)
        steps += 1
        ended = terminated or truncated
        task.meter.observe(frame, steps)
        said = task.meter.observe_step(info, ended)
        obs = next_stack(obs, frame)
        total += float(reward)
    return {"return": total, **said}


def average(played: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Means over episodes of everything that `play` says of each."""
    return {name: float(np.mean([episode[name] for episode in played])) for name in played[0]}
