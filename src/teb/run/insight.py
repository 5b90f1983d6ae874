"""What a trained agent makes of single states: along an episode, and between frames that it remembers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from teb.agents.protocol import Agent, Batch, Measured, states_batch, to_batch
from teb.config import Config
from teb.envs.protocol import Task
from teb.replay.ring import Replay
from teb.replay.saved import some_episodes
from teb.replay.stacking import last_stack
from teb.report.frames import Frames
from teb.run import checkpoint
from teb.run.play import Episode
from teb.run.session import build, read_config
from teb.run.train import RunError
from teb.seeding import numpy_generator

EPISODES = 32
"""Episodes of the replay that stand for all: a replay of pictures may be too large to read for this."""
AT_ONCE = 256
"""States that are appraised together; an episode may be long."""


class Trained(NamedTuple):
    """A run's newest intact checkpoint, taken up."""

    folder: Path
    config: Config
    task: Task
    """A fresh one."""
    agent: Agent
    env_steps: int
    """How long the agent was trained."""
    saved: dict[str, Any]
    """The run's state; large arrays are still in the file."""


def trained(folder: Path) -> Trained:
    """A fresh task and the agent of a run's newest intact checkpoint."""
    config = read_config(folder)
    loaded = checkpoint.load_latest(folder)
    if loaded is None:
        raise RunError(f"{folder} has no checkpoint yet")
    task, agent = build(config)
    saved = loaded.state["run"]
    agent.load(saved["agent"])
    return Trained(folder, config, task, agent, loaded.env_steps, saved)


def remembered(run: Trained, seed: int) -> dict[str, Any]:
    """Some finished episodes of the run's replay, in a random order."""
    replay = run.saved["replay"]
    finished = len(replay["length"]) - int(replay["running"])
    if finished == 0:
        raise ValueError(f"{run.folder}: no episode of its replay has ended yet")
    rng = numpy_generator(seed, "remembered episodes")
    return some_episodes(replay, rng.permutation(finished)[:EPISODES])


def experience(run: Trained, seed: int) -> Batch | None:
    """A batch as training would sample it; None for an agent that does not ask for one to appraise states."""
    if run.agent.sampling is None or not hasattr(run.agent, "appraise"):
        return None
    episodes = remembered(run, seed)
    frames, actions, skills = (episodes[name] for name in ("obs", "action", "skill"))
    replay = Replay(
        len(frames), frames.shape[1:], frames.dtype, actions.shape[1], skills.shape[1], run.task.frame_stack
    )
    replay.load(episodes)
    sample = replay.sample(*run.agent.sampling, numpy_generator(seed, "remembered windows"))
    return to_batch(sample, run.saved["first_obs"], torch.device(run.config.run.device))


def appraised(run: Trained, episode: Episode, over: Batch | None) -> Measured | None:
    """What the agent makes of each state of an episode, [T+1], beside a batch of its `experience`."""
    appraise: Callable[[Batch, Batch], Measured] | None = getattr(run.agent, "appraise", None)
    if over is None or appraise is None:
        return None
    frames = np.stack(episode.obs)
    actions = np.stack([*episode.actions, np.full_like(episode.actions[0], np.nan)])
    skills = np.stack([*episode.skills, episode.skills[-1]])
    pieces: list[Measured] = []
    for begin in range(0, len(frames), AT_ONCE):
        steps = range(begin, min(begin + AT_ONCE, len(frames)))
        stacks = np.stack([_stack(run, frames, step) for step in steps])
        pieces.append(appraise(_states(run, stacks, actions[steps], skills[steps]), over))
    return Measured(pieces[0].name, torch.cat([piece.values for piece in pieces]))


def _states(run: Trained, obs: np.ndarray, action: np.ndarray, skill: np.ndarray) -> Batch:
    return states_batch(obs, action, skill, run.saved["first_obs"], torch.device(run.config.run.device))


def _stack(run: Trained, frames: np.ndarray, step: int) -> np.ndarray:
    return last_stack(frames[: step + 1], run.task.frame_stack)


def remembered_frames(folder: Path, count: int = 384, seed: int = 0) -> Frames:
    """About so many random frames of a run's replay, with their distances in the metric of its agent."""
    run = trained(folder)
    run.task.env.close()
    distances: Callable[[Batch], Measured] | None = getattr(run.agent, "distances", None)
    if distances is None:
        raise ValueError(f"{folder}: its agent does not say how far states are from each other")
    episodes = remembered(run, seed)
    if episodes["obs"].ndim != 4:
        raise ValueError(f"{folder}: its agent sees no pictures")
    rng = numpy_generator(seed, "remembered frames")
    per_episode = -(-count // len(episodes["length"]))
    first = np.cumsum(episodes["length"]) - episodes["length"]
    places = [
        (number, step)
        for number, length in enumerate(episodes["length"])
        for step in sorted(rng.choice(length, min(per_episode, length), replace=False))
    ]
    number, step = np.array(places).T
    slots = first[number] + step
    stacks = [
        _stack(run, episodes["obs"][begin : begin + length], at)
        for begin, length, at in zip(first[number], episodes["length"][number], step, strict=True)
    ]
    measured = distances(_states(run, np.stack(stacks), episodes["action"][slots], episodes["skill"][slots]))
    between = measured.values.cpu().numpy()
    return Frames(episodes["obs"][slots], number, step, between, measured.name, run.env_steps)
