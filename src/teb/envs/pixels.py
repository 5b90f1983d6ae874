"""Pictures as observations: one layout, one size, and stacks of the latest few."""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from teb.envs.rendering import SIZE

Frame = npt.NDArray[np.uint8]
CHANNELS = (1, 3, 4)
"""Sizes of an axis that are taken for channels: grey, colour, colour with transparency."""


def is_image(space: gym.Space[Any]) -> bool:
    """Whether observations are pictures: bytes [H, W, C] or [C, H, W] with 1, 3 or 4 channels."""
    return (
        isinstance(space, gym.spaces.Box)
        and space.dtype == np.uint8
        and len(space.shape) == 3
        and (space.shape[2] in CHANNELS or space.shape[0] in CHANNELS)
    )


class Frames(gym.ObservationWrapper[np.ndarray, np.ndarray, np.ndarray], gym.utils.RecordConstructorArgs):
    """Pictures of any size and layout as bytes [C, H, W] of at most 84 x 84 pixels."""

    def __init__(self, env: gym.Env[np.ndarray, np.ndarray]) -> None:
        """Wrap an environment whose observations are pictures, see `is_image`."""
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.ObservationWrapper.__init__(self, env)
        shape = env.observation_space.shape
        assert shape is not None and len(shape) == 3
        self._channels_last = shape[2] in CHANNELS
        channels, height, width = (shape[2], *shape[:2]) if self._channels_last else shape
        sides = min(height, SIZE), min(width, SIZE)
        self.observation_space = gym.spaces.Box(0, 255, (channels, *sides), np.uint8)

    def observation(self, observation: np.ndarray) -> Frame:
        """One frame, channels first."""
        frame = observation.transpose(2, 0, 1) if self._channels_last else observation
        return shrink(frame, SIZE)


def shrink(frame: Frame, size: int) -> Frame:
    """A copy of a frame [C, H, W] whose sides longer than `size` are brought to `size` by averaging areas."""
    _, height, width = frame.shape
    if height <= size and width <= size:
        return frame.copy()
    rows, columns = _overlaps(height, min(height, size)), _overlaps(width, min(width, size))
    return np.rint(rows @ frame.astype(np.float32) @ columns.T).astype(np.uint8)


@cache
def _overlaps(before: int, after: int) -> npt.NDArray[np.float32]:
    """Which share of each new pixel comes from each old one, [after, before]; rows sum to one."""
    edges = np.arange(after + 1) * before / after
    low, high = edges[:-1, None], edges[1:, None]
    old = np.arange(before)
    shared = np.minimum(high, old + 1) - np.maximum(low, old)
    return (shared.clip(0.0) * after / before).astype(np.float32)


class FrameStack(
    gym.Wrapper[np.ndarray, np.ndarray, np.ndarray, np.ndarray], gym.utils.RecordConstructorArgs
):
    """The latest frames [C, H, W] as one observation [count * C, H, W], oldest first.

    An episode begins with its first frame repeated (DrQ-v2). The loop of this project does without: its
    replay keeps each frame once and stacks when it samples.
    """

    def __init__(self, env: gym.Env[np.ndarray, np.ndarray], count: int) -> None:
        """Stack `count` frames of `env`."""
        gym.utils.RecordConstructorArgs.__init__(self, count=count)
        gym.Wrapper.__init__(self, env)
        space = env.observation_space
        assert space.shape is not None
        self.observation_space = gym.spaces.Box(0, 255, (count * space.shape[0], *space.shape[1:]), np.uint8)
        self._frames: deque[np.ndarray] = deque(maxlen=count)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Frame, dict[str, Any]]:
        """Start an episode with its first frame repeated."""
        frame, info = self.env.reset(seed=seed, options=options)
        assert self._frames.maxlen is not None
        self._frames.extend([frame] * self._frames.maxlen)
        return self._stacked(), info

    def step(self, action: np.ndarray) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        """Take a step; its frame takes the place of the oldest."""
        frame, reward, terminated, truncated, info = self.env.step(action)
        self._frames.append(frame)
        return self._stacked(), float(reward), terminated, truncated, info

    def _stacked(self) -> Frame:
        return np.concatenate(self._frames)
