"""The meter of tasks that can be solved: how many of the latest episodes were."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

RECENT = 20
"""Episodes that the success rate of training is taken over."""


class SuccessMeter:
    """Counts episodes that succeeded, which the `success` in the last step's info says.

    `success` is the share among the latest episodes, `successes` counts all of them, those with random
    actions included. Both are 0 before the first episode has ended.
    """

    def __init__(self) -> None:
        """Begin with no episode."""
        self._latest: deque[bool] = deque(maxlen=RECENT)
        self._successes = 0

    def observe(self, obs: np.ndarray, env_steps: int) -> None:
        """Nothing: only ends of episodes count."""

    def end_episode(self, info: Mapping[str, Any]) -> dict[str, float]:
        """Count an episode; returns whether it succeeded."""
        succeeded = bool(info["success"])
        self._latest.append(succeeded)
        self._successes += succeeded
        return {"success": float(succeeded)}

    def metrics(self) -> dict[str, float]:
        """The success rate of late, and how many episodes succeeded so far."""
        recent = sum(self._latest) / len(self._latest) if self._latest else 0.0
        return {"success": recent, "successes": float(self._successes)}

    def record(self) -> dict[str, Any]:
        """Nothing to draw."""
        return {}

    def state(self) -> dict[str, np.ndarray]:
        """The latest outcomes and the count."""
        return {"latest": np.array(self._latest, dtype=np.bool_), "successes": np.array([self._successes])}

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Take up a state that `state` gave."""
        self._latest = deque(state["latest"].tolist(), maxlen=RECENT)
        self._successes = int(state["successes"].item())
