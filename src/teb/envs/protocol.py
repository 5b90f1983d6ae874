"""What a task offers the loop: a Gymnasium environment, and a meter for what the study measures about training."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np


class Meter(Protocol):
    """Watches every observation of training, those of resets and random actions included."""

    def observe(self, obs: np.ndarray, env_steps: int) -> None:
        """Take note of one observation [D], seen after `env_steps` environment steps."""
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


class Task(NamedTuple):
    """One thing to train on. Observations are flat float32 vectors, actions lie in [-1, 1]^A."""

    env: gym.Env[np.ndarray, np.ndarray]
    meter: Meter
    headline: str
    """Name of the one number that tells how a run went: a key of the log rows."""
