"""Episodes of the trained policy without exploration noise, on an environment of their own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from teb.agents.protocol import Agent
from teb.envs.protocol import Task
from teb.run import checkpoint
from teb.run.record import write_record
from teb.run.session import build, read_config
from teb.run.train import RunError
from teb.seeding import child_seed


def evaluate(folder: Path, episodes: int, seed: int = 0) -> dict[str, Any]:
    """Load the newest intact checkpoint of a run and play `episodes` with it; writes eval.json and returns it."""
    task, agent, env_steps = trained(folder)
    played = [play(task, agent, child_seed(seed, "evaluation", number) % 2**31) for number in range(episodes)]
    task.env.close()
    returns = [episode.total for episode in played]
    said = {name: float(np.mean([episode.said[name] for episode in played])) for name in played[0].said}
    result = {
        "env_steps": env_steps,
        "episodes": episodes,
        "seed": seed,
        "return_mean": float(np.mean(returns)),
        "return_std": float(np.std(returns)),
        "returns": returns,
        **task.meter.metrics(),
        **said,
    }
    write_record(folder / "eval.json", result)
    return result


class SkillEpisodes(NamedTuple):
    """Episodes of a trained policy, skill by skill."""

    env_steps: int
    """How long the policy was trained."""
    skills: np.ndarray
    """The skills that were played, [S, K]."""
    paths: list[list[np.ndarray]]
    """For each skill the observations of each of its episodes, [T+1, D]."""


def play_skills(
    folder: Path, episodes: int, drawn: int, start: Sequence[float] | None = None, seed: int = 0
) -> SkillEpisodes:
    """Play `episodes` under each skill of a run's policy, or under `drawn` ones where there are more than can be named.

    `start` is handed to the environment's reset as an option. Episodes of the same number share their seed.
    """
    task, agent, env_steps = trained(folder)
    if agent.skills.width == 0:
        raise ValueError(f"{folder}: its method has no skills")
    skills = agent.skills.examples(drawn, np.random.default_rng(child_seed(seed, "shown skills")))
    seeds = [child_seed(seed, "evaluation", number) % 2**31 for number in range(episodes)]
    paths = [[play(task, agent, number, skill, start).obs for number in seeds] for skill in skills]
    task.env.close()
    return SkillEpisodes(env_steps, skills, paths)


def trained(folder: Path) -> tuple[Task, Agent, int]:
    """A fresh task and the agent of a run's newest intact checkpoint, with the steps that it was trained for."""
    config = read_config(folder)
    loaded = checkpoint.load_latest(folder)
    if loaded is None:
        raise RunError(f"{folder} has no checkpoint yet")
    task, agent = build(config)
    agent.load(loaded.state["run"]["agent"])
    return task, agent, loaded.env_steps


class Episode(NamedTuple):
    """One episode that was played."""

    obs: np.ndarray
    """Its observations, [T+1, D]."""
    total: float
    """Its return."""
    said: dict[str, float]
    """What the task's meter says of it."""


def play(
    task: Task,
    agent: Agent,
    seed: int,
    skill: np.ndarray | None = None,
    start: Sequence[float] | None = None,
) -> Episode:
    """One episode with the mean action, under the given skill, or under ones drawn whenever they are due."""
    obs, _ = task.env.reset(seed=seed, options=None if start is None else {"start": start})
    task.meter.observe(obs, 0)
    skill_rng = np.random.default_rng(child_seed(seed, "skill"))
    acting, path, total, ended, info = skill, [obs], 0.0, False, {}
    while not ended:
        steps = len(path) - 1
        if acting is None or (skill is None and agent.skills.due(steps)):
            acting = agent.skills.draw(skill_rng)
        obs, reward, terminated, truncated, info = task.env.step(agent.act(obs, acting, steps, explore=False))
        path.append(obs)
        task.meter.observe(obs, steps + 1)
        total += float(reward)
        ended = terminated or truncated
    return Episode(np.stack(path), total, task.meter.end_episode(info))


def read_evaluation(folder: Path) -> dict[str, Any]:
    """What `evaluate` wrote last."""
    return json.loads((folder / "eval.json").read_text())
