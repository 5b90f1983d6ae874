"""Episodes of the trained policy without exploration noise, on an environment of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
    config = read_config(folder)
    loaded = checkpoint.load_latest(folder)
    if loaded is None:
        raise RunError(f"{folder} has no checkpoint yet")
    task, agent = build(config)
    agent.load(loaded.state["run"]["agent"])
    played = [play(task, agent, child_seed(seed, "evaluation", number) % 2**31) for number in range(episodes)]
    task.env.close()
    returns = [episode_return for episode_return, _ in played]
    said = {name: [float(of_episode[name]) for _, of_episode in played] for name in played[0][1]}
    result = {
        "env_steps": loaded.env_steps,
        "episodes": episodes,
        "seed": seed,
        "return_mean": float(np.mean(returns)),
        "return_std": float(np.std(returns)),
        "returns": returns,
        **task.meter.metrics(),
        **{name: float(np.mean(values)) for name, values in said.items()},
    }
    write_record(folder / "eval.json", result)
    return result


def play(task: Task, agent: Agent, seed: int) -> tuple[float, dict[str, float]]:
    """One episode with the mean action; its return, and what the task's meter says of it."""
    obs, _ = task.env.reset(seed=seed)
    task.meter.observe(obs, 0)
    skill = agent.skills.draw(np.random.default_rng(child_seed(seed, "skill")))
    total, steps, ended, info = 0.0, 0, False, {}
    while not ended:
        obs, reward, terminated, truncated, info = task.env.step(agent.act(obs, skill, steps, explore=False))
        steps += 1
        task.meter.observe(obs, steps)
        total += float(reward)
        ended = terminated or truncated
    return total, task.meter.end_episode(info)


def read_evaluation(folder: Path) -> dict[str, Any]:
    """What `evaluate` wrote last."""
    return json.loads((folder / "eval.json").read_text())
