"""The loop: act, learn, step, remember, measure. It knows verbs; no algorithm and no environment has a name here."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch

from teb.agents.protocol import Agent, Metrics, State, to_batch
from teb.config import RunConfig
from teb.envs.protocol import Task
from teb.replay.ring import Replay
from teb.replay.stacking import first_stack, last_stack, next_stack
from teb.run import checkpoint
from teb.run.logging import Display, MetricsFile, Row, Sink
from teb.run.play import average, play
from teb.run.stopping import StopWish
from teb.seeding import child_seed, numpy_generator

PARTS = ("act", "env", "sample", "update")
"""What the time of a step is split into. Of steps in another process `env` holds what they are waited for."""


def one_line(value: object) -> str:
    """How a value prints, without the line breaks of long arrays."""
    return " ".join(str(value).split())


def obs_dtype(space: gym.Space[Any]) -> type[np.generic]:
    """How observations are stored: pictures as bytes, vectors as float32."""
    return np.uint8 if space.dtype == np.uint8 else np.float32


class RunError(Exception):
    """The run cannot go on; the message says why, and from where it can."""


class Run:
    """Everything that changes while training, and that a checkpoint therefore holds."""

    def __init__(self, config: RunConfig, task: Task, agent: Agent, folder: Path) -> None:
        self.config, self.task, self.agent, self.folder = config, task, agent, folder
        self.stepper = task.stepper
        obs_space, action_space = task.env.observation_space, task.env.action_space
        assert obs_space.shape is not None and action_space.shape is not None
        self.action_dim = action_space.shape[0]
        stored = obs_dtype(obs_space)
        self.replay = Replay(
            config.replay_capacity,
            obs_space.shape,
            stored,
            self.action_dim,
            agent.skills.width,
            task.frame_stack,
        )
        self.evaluation: Task | None = None
        """The task that evaluations are played on, if there are any."""
        self.evaluated: dict[str, float] = {}
        self.uniform = numpy_generator(config.seed, "uniform actions")
        self.sampler = numpy_generator(config.seed, "replay")
        self.skill_rng = numpy_generator(config.seed, "skills")
        self.skill = np.zeros(agent.skills.width, np.float32)
        self.obs = self.first_obs = first_stack(np.zeros(obs_space.shape, stored), task.frame_stack)
        self.env_steps = self.updates = self.episodes = self.episode_steps = 0
        self.episode_return = 0.0
        self.returns: list[float] = []
        self.metrics: Metrics = {}
        self.seconds = dict.fromkeys((*PARTS, "total"), 0.0)

    def begin_episode(self) -> None:
        """Reset with a seed of its own, so that the episode can be replayed from its number and its actions."""
        obs, _ = self.task.env.reset(seed=self._episode_seed())
        self.episode_return, self.episode_steps = 0.0, 0
        self._see(obs, first_stack(obs, self.task.frame_stack))
        self.replay.begin(obs)

    def _episode_seed(self) -> int:
        return child_seed(self.config.seed, "episode", self.episodes) % 2**31

    def _see(self, obs: np.ndarray, stack: np.ndarray) -> None:
        if obs.dtype != np.uint8 and not np.isfinite(obs).all():
            raise self.broken("observation", obs)
        self.obs = stack
        if self.env_steps == 0:
            self.first_obs = stack
        self.task.meter.observe(obs, self.env_steps)

    def act(self) -> np.ndarray:
        """Uniform at first, then the agent's noisy action, under a new skill where one is due."""
        if self.agent.skills.due(self.episode_steps):
            self.skill = self.agent.skills.draw(self.skill_rng)
        if self.env_steps < self.config.uniform_steps:
            return self.uniform.uniform(-1.0, 1.0, self.action_dim).astype(np.float32)
        return self.agent.act(self.obs, self.skill, self.env_steps, explore=True)

    def take(self, action: np.ndarray) -> bool:
        """Wait for the step that was begun with this action and remember what happened; true if the episode ended."""
        obs, reward, terminated, truncated, info = self.stepper.receive()
        reward = float(reward)
        self.env_steps += 1
        self.episode_steps += 1
        if not np.isfinite(reward):
            raise self.broken("reward", reward)
        self._see(obs, next_stack(self.obs, obs))
        self.task.meter.observe_step(info, terminated or truncated)
        self.replay.add(action, reward, terminated, obs, self.skill)
        self.episode_return += reward
        if not (terminated or truncated):
            return False
        self.replay.end()
        self.returns.append(self.episode_return)
        self.episodes += 1
        return True

    def broken(self, quantity: str, value: object) -> RunError:
        """The error for a number that is not finite."""
        try:
            last = checkpoint.load_latest(self.folder)
        except checkpoint.CheckpointError:
            last = None
        good = (
            f"the last good checkpoint is {last.path} (step {last.env_steps:,})"
            if last
            else "no checkpoint yet"
        )
        return RunError(f"{quantity} is not finite at step {self.env_steps:,}: {one_line(value)}; {good}")

    def check(self) -> None:
        """Refuse an update whose losses are not finite. One synchronisation, which the CPU does not notice."""
        if not self.metrics:
            return
        values = torch.stack([value.float() for value in self.metrics.values()])
        if not torch.isfinite(values.sum()):
            bad = [
                name
                for name, value in zip(self.metrics, values.tolist(), strict=True)
                if not np.isfinite(value)
            ]
            raise self.broken("update: " + ", ".join(bad or ["the sum of its metrics"]), values.tolist())

    def row(self) -> Row:
        """What metrics.jsonl says at this step; the returns of the episodes since the last row are averaged."""
        mean_return = float(np.mean(self.returns)) if self.returns else None
        self.returns.clear()
        evaluated, self.evaluated = self.evaluated, {}
        return {
            "env_steps": self.env_steps,
            "updates": self.updates,
            "episodes": self.episodes,
            "episode_return": mean_return,
            **self.task.meter.metrics(),
            **evaluated,
            **{name: float(value) for name, value in self.metrics.items()},
            **{f"seconds_{part}": round(spent, 3) for part, spent in self.seconds.items()},
        }

    def evaluate(self) -> None:
        """Play episodes elsewhere, with the mean action; the next row says what came of them.

        Where skills can be counted, the same episodes once more, under the one that earned most in the replay.
        """
        if self.evaluation is None:
            return
        seeds = [
            child_seed(self.config.seed, "evaluation", self.env_steps, number) % 2**31
            for number in range(self.config.eval_episodes)
        ]
        skills = self.agent.skills
        best = skills.most_paid(*self.replay.earned())
        under = {"eval_": None} | ({} if best is None else {"eval_best_skill_": skills.one_hot(best)})
        self.evaluated = {
            f"{before}{name}": value
            for before, skill in under.items()
            for name, value in average([play(self.evaluation, self.agent, s, skill) for s in seeds]).items()
        }

    def state(self) -> State:
        """Everything that the next step depends on. The environment is its episode's number and actions so far."""
        return {
            "agent": self.agent.state(),
            "replay": self.replay.state(),
            "meter": self.task.meter.state(),
            "uniform": self.uniform.bit_generator.state,
            "sampler": self.sampler.bit_generator.state,
            "skill_rng": self.skill_rng.bit_generator.state,
            "skill": self.skill,
            "first_obs": self.first_obs,
            "env_steps": self.env_steps,
            "updates": self.updates,
            "episodes": self.episodes,
            "episode_steps": self.episode_steps,
            "episode_return": self.episode_return,
            "returns": self.returns,
            "evaluated": self.evaluated,
            "metrics": self.metrics,
            "seconds": self.seconds,
        }

    def load(self, state: State) -> None:
        """Take up a state that `state` gave."""
        self.agent.load(state["agent"])
        self.replay.load(state["replay"])
        self.task.meter.load(state["meter"])
        self.uniform.bit_generator.state = state["uniform"]
        self.sampler.bit_generator.state = state["sampler"]
        self.skill_rng.bit_generator.state = state["skill_rng"]
        for name in (
            "skill",
            "first_obs",
            "env_steps",
            "updates",
            "episodes",
            "episode_steps",
            "episode_return",
            "returns",
            "metrics",
            "seconds",
        ):
            setattr(self, name, state[name])
        self.evaluated = state.get("evaluated", {})  # checkpoints from before there were evaluations lack it
        if self.replay.running:
            self._replay_episode()

    def _replay_episode(self) -> None:
        """Bring the environment back to where the running episode stood."""
        obs, _ = self.task.env.reset(seed=self._episode_seed())
        for action in self.replay.current_actions():
            obs, *_ = self.task.env.step(action)
        frames = self.replay.current_obs()
        remembered = frames[-1]
        if not np.array_equal(obs, remembered):
            raise RunError(
                f"the environment did not repeat its episode: {one_line(remembered)} was seen, {one_line(obs)} "
                "now; it must be "
                "deterministic given reset(seed) and the actions for a run to be resumed"
            )
        self.obs = last_stack(frames, self.task.frame_stack)


class Reporting(NamedTuple):
    """Who hears of a run while it goes on."""

    metrics: MetricsFile
    sinks: Sequence[Sink]
    display: Display
    save: Callable[[Run, MetricsFile], Any]
    """Write a checkpoint and the record."""


def train(run: Run, reporting: Reporting, wish: StopWish) -> bool:
    """Train to the end, or to the wish to stop; true if the end was reached. A finished run is left as it is."""
    config, agent, clock, seconds = run.config, run.agent, time.perf_counter, run.seconds
    sampling, device = agent.sampling, torch.device(config.device)
    if run.env_steps >= config.steps:
        return True
    begun, saved = clock() - seconds["total"], clock()
    while run.env_steps < config.steps and wish.signal is None:
        if not run.replay.running:
            run.begin_episode()
        t0 = clock()
        action = run.act()
        t1 = clock()
        run.stepper.send(action)  # nothing until `take` depends on what comes of it
        t2 = t3 = t4 = clock()
        if sampling and run.env_steps >= config.seed_steps and run.env_steps % config.update_every == 0:
            batch = to_batch(run.replay.sample(*sampling, run.sampler), run.first_obs, device)
            t3 = clock()
            run.metrics = agent.update(batch, run.env_steps)
            run.updates += 1
            if device.type == "cpu":
                run.check()
            t4 = clock()
        run.take(action)
        t5 = clock()
        if config.eval_every and run.env_steps % config.eval_every == 0:
            run.evaluate()
        for part, spent in zip(PARTS, (t1 - t0, t2 - t1 + t5 - t4, t3 - t2, t4 - t3), strict=True):
            seconds[part] += spent
        if run.env_steps % config.log_every == 0 or run.env_steps == config.steps:
            seconds["total"] = clock() - begun
            run.check()
            row = run.row()
            for sink in (reporting.metrics, *reporting.sinks):
                sink.write(row)
            reporting.display.advance(row)
        if clock() - saved > config.checkpoint_seconds and run.env_steps < config.steps:
            seconds["total"] = clock() - begun
            run.check()
            reporting.save(run, reporting.metrics)
            saved = clock()
    seconds["total"] = clock() - begun
    run.check()
    reporting.save(run, reporting.metrics)
    return run.env_steps >= config.steps
