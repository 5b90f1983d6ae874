"""What a task offers the loop: a Gymnasium environment, and a meter for what the study measures about training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, SupportsFloat, runtime_checkable

import gymnasium as gym
import numpy as np


class Meter(Protocol):
    """Watches every observation and every step of training, those with random actions included."""

    def observe(self, obs: np.ndarray, env_steps: int) -> None:
        """Take note of one observation, seen after `env_steps` environment steps; of pictures a single frame."""
        ...

    def observe_step(self, info: Mapping[str, Any], ended: bool) -> Mapping[str, float]:
        """Take note of one step: its info, and whether the episode ended with it.

        Returns:
            At an episode's end what there is to say of this one episode, for an evaluation to average; else nothing.
        """
        ...

    def metrics(self) -> dict[str, float]:
        """The scalars that belong into each log row."""
        ...

    def record(self) -> dict[str, Any]:
        """What pictures and tables need later, as JSON; empty if there is nothing."""
        ...

    def state(self) -> dict[str, np.ndarray]:
        """Everything that `load` needs to go on as if nothing had happened."""
        ...

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Take up a state that `state` gave."""
        ...


Outcome = tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]
"""What a step of a Gymnasium environment returns."""


@runtime_checkable
class Stepper(Protocol):
    """Steps that are begun now and waited for later."""

    def send(self, action: np.ndarray) -> None:
        """Begin a step."""
        ...

    def receive(self) -> Outcome:
        """What came of the step that was begun."""
        ...


class InTurn:
    """Steps of an environment that has no process of its own: they happen when they are waited for."""

    def __init__(self, env: gym.Env[np.ndarray, np.ndarray]) -> None:
        self._env = env

    def send(self, action: np.ndarray) -> None:
        """Note the action."""
        self._action = action

    def receive(self) -> Outcome:
        """Take the step."""
        return self._env.step(self._action)


class Task(NamedTuple):
    """One thing to train on. Observations are float32 [D] or frames uint8 [C, H, W], actions lie in [-1, 1]^A."""

    env: gym.Env[np.ndarray, np.ndarray]
    meter: Meter
    headline: str
    """Name of the one number that tells how a run went: a key of the log rows."""
    frame_stack: int = 1
    """How many of the latest frames an agent sees at once; the environment delivers single ones."""

    @property
    def stepper(self) -> Stepper:
        """The environment as something whose steps need not be waited for at once."""
        return self.env if isinstance(self.env, Stepper) else InTurn(self.env)
