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
from teb.run.play import average, play
from teb.run.record import write_record
from teb.run.session import build, read_config
from teb.run.train import RunError
from teb.seeding import child_seed


def evaluate(folder: Path, episodes: int, seed: int = 0) -> dict[str, Any]:
    """Load the newest intact checkpoint of a run and play `episodes` with it; writes eval.json and returns it."""
    task, agent, env_steps = trained(folder)
    played = [play(task, agent, child_seed(seed, "evaluation", number) % 2**31) for number in range(episodes)]
    task.env.close()
    returns = [episode.said["return"] for episode in played]
    said = {name: value for name, value in average(played).items() if name != "return"}
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
    paths = [[np.stack(play(task, agent, number, skill, start).obs) for number in seeds] for skill in skills]
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


def read_evaluation(folder: Path) -> dict[str, Any]:
    """What `evaluate` wrote last."""
    return json.loads((folder / "eval.json").read_text())
