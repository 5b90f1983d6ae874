"""A probe of learning from pixels: small pictures, sparse reward, a background that moves and means nothing.

A white square moves in a box of side 1 and is paid 1 for every step that ends within reach of a goal that no picture
shows. Behind it two waves of colour wander, drawn anew in each episode. `near` is found by chance in some episodes,
`far` asks for a dozen steps in one direction and for staying there, away from walls and corners where a policy that
always pushes one way would end: noise alone finds it in about one episode of two hundred.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from teb.checks import in_range, positive
from teb.envs.protocol import Task
from teb.envs.success import SuccessMeter

SIDE = 24
"""Pixels along each axis."""
SQUARE = 5
"""Pixels of the white square along each axis."""

Frame = npt.NDArray[np.uint8]


class Probe(NamedTuple):
    """Where episodes start and where they are paid."""

    start: tuple[float, float]
    """Centre of the starts, which vary by 0.05."""
    goal: tuple[float, float]
    reach: float
    """Largest distance along either axis at which a step is paid."""
    stride: float
    """Displacement per step and axis at action 1."""


PROBES: dict[str, Probe] = {
    "near": Probe((0.5, 0.5), (0.85, 0.5), 0.15, 0.08),
    "far": Probe((0.1, 0.1), (0.6, 0.6), 0.08, 0.05),
}


@dataclass(frozen=True)
class ProbeConfig:
    """Options of the probe family."""

    horizon: int = 50
    """Steps per episode, always ended by truncation (ours)."""
    distraction: float = 0.6
    """Brightness of the background, from 0 for black to 1 (ours)."""
    frame_stack: int = 3
    """Frames that make an observation (paper table 3)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        for name in ("horizon", "frame_stack"):
            positive(name, getattr(self, name))
        in_range("distraction", self.distraction, 0.0, 1.0)


class ProbeEnv(gym.Env[np.ndarray, np.ndarray]):
    """The environment; everything in an episode follows from its seed and the actions."""

    def __init__(self, probe: Probe, config: ProbeConfig) -> None:
        self.probe, self.config = probe, config
        self.observation_space = gym.spaces.Box(0, 255, (3, SIDE, SIDE), np.uint8)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self._grid = np.linspace(0.0, 1.0, SIDE, dtype=np.float32)
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Frame, dict[str, Any]]:
        """Start an episode near the start, before a background of its own."""
        super().reset(seed=seed)
        rng = self.np_random
        self._position = np.array(self.probe.start) + rng.uniform(-0.05, 0.05, 2)
        # Two waves: frequency along both axes, phase, speed, and how much of each colour.
        self._waves = rng.uniform(-12.0, 12.0, (2, 2))
        self._phase = rng.uniform(0.0, 2 * np.pi, 2)
        self._speed = rng.uniform(-0.6, 0.6, 2)
        self._colours = rng.uniform(0.0, 1.0, (2, 3))
        self._steps = 0
        return self._frame(), {}

    def step(self, action: np.ndarray) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        """Move, and be paid within reach of the goal."""
        move = self.probe.stride * np.clip(np.asarray(action, dtype=np.float64), -1.0, 1.0)
        self._position = np.clip(self._position + move, 0.0, 1.0)
        self._steps += 1
        there = bool((np.abs(self._position - self.probe.goal) <= self.probe.reach).all())
        return self._frame(), float(there), False, self._steps >= self.config.horizon, {"success": there}

    def _frame(self) -> Frame:
        x, y = self._grid[None, None, :], self._grid[None, :, None]
        phase = (self._phase + self._speed * self._steps)[:, None, None]
        waves = 0.5 + 0.5 * np.sin(self._waves[:, :1, None] * x + self._waves[:, 1:, None] * y + phase)
        picture = np.einsum("wij,wc->cij", waves, self._colours) * (127.5 * self.config.distraction)
        frame = picture.astype(np.uint8)
        left, top = (self._position * (SIDE - SQUARE)).round().astype(int)
        frame[:, top : top + SQUARE, left : left + SQUARE] = 255
        return frame


def make_probe_task(name: str, config: ProbeConfig) -> Task:
    """Build `probe/<name>`."""
    return Task(ProbeEnv(PROBES[name], config), SuccessMeter(), "success", config.frame_stack)
