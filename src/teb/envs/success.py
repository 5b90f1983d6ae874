"""The meter of tasks that can be solved: how many of the latest episodes were."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

RECENT = 20
"""Episodes that the success rate of training is taken over."""


class SuccessMeter:
    """An episode succeeds if `success` in the info of any of its steps is true.

    `success` is the share among the last 20 episodes, 0 before the first has ended; `successes` counts all of them.
    Both include episodes with random actions. An evaluation takes the share over its own episodes, however many.
    """

    def __init__(self) -> None:
        self._recent: deque[bool] = deque(maxlen=RECENT)
        self._successes = 0
        self._succeeded = False

    def observe(self, obs: np.ndarray, env_steps: int) -> None:
        """Nothing: pictures do not tell."""

    def observe_step(self, info: Mapping[str, Any], ended: bool) -> Mapping[str, float]:
        """Note success; at the end of an episode count it and say whether it succeeded."""
        self._succeeded |= bool(info["success"])
        if not ended:
            return {}
        succeeded, self._succeeded = self._succeeded, False
        self._recent.append(succeeded)
        self._successes += succeeded
        return {"success": float(succeeded)}

    def metrics(self) -> dict[str, float]:
        """The success rate of late, and how many episodes succeeded so far."""
        recent = sum(self._recent) / len(self._recent) if self._recent else 0.0
        return {"success": recent, "successes": float(self._successes)}

    def record(self) -> dict[str, Any]:
        """Nothing to draw."""
        return {}

    def state(self) -> dict[str, np.ndarray]:
        """The latest outcomes, the count, and whether the running episode succeeded already."""
        return {
            "recent": np.array(self._recent, dtype=np.bool_),
            "successes": np.array([self._successes]),
            "succeeded": np.array([self._succeeded]),
        }

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Take up a state that `state` gave."""
        self._recent = deque(state["recent"].tolist(), maxlen=RECENT)
        self._successes = int(state["successes"].item())
        self._succeeded = bool(state["succeeded"].item())
