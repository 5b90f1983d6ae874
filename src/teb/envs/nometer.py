"""The meter of tasks that measure nothing beside their returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


class NoMeter:
    """A `Meter` that takes no notice of anything."""

    def observe(self, obs: np.ndarray, env_steps: int) -> None:
        """Do nothing."""

    def observe_step(self, info: Mapping[str, Any], ended: bool) -> Mapping[str, float]:
        """Nothing to say of it."""
        return {}

    def metrics(self) -> dict[str, float]:
        """No scalars."""
        return {}

    def record(self) -> dict[str, Any]:
        """Nothing to draw."""
        return {}

    def state(self) -> dict[str, np.ndarray]:
        """Nothing to save."""
        return {}

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Nothing to restore."""
