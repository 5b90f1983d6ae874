from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest
from gymnasium.spaces import Box, Discrete
from hypothesis import given
from hypothesis import strategies as st

from teb.envs.pixels import Frames, FrameStack, is_image, shrink


class Film(gym.Env[np.ndarray, np.ndarray]):
    """Observes given pictures, one after the other; each episode begins with the first."""

    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, pictures: npt.NDArray[np.uint8]) -> None:
        self.pictures = pictures
        self.observation_space = Box(0, 255, pictures.shape[1:], np.uint8)
        self.at = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = 0
        return self.pictures[0], {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.at += 1
        return self.pictures[self.at], 0.0, False, False, {}


def noise(*shape: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (Box(0, 255, (96, 96, 3), np.uint8), True),
        (Box(0, 255, (3, 64, 64), np.uint8), True),
        (Box(0, 255, (210, 160, 1), np.uint8), True),
        (Box(0, 255, (96, 96), np.uint8), False),
        (Box(0, 255, (96, 96, 7), np.uint8), False),
        (Box(0.0, 1.0, (96, 96, 3), np.float32), False),
        (Box(0, 255, (3,), np.uint8), False),
        (Discrete(3), False),
    ],
)
def test_what_counts_as_a_picture(space: gym.Space[Any], expected: bool) -> None:
    assert is_image(space) == expected


@given(
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    size=st.integers(1, 12),
    seed=st.integers(0, 2**31),
)
def test_shrinking_averages_areas(height: int, width: int, size: int, seed: int) -> None:
    frame = noise(3, height, width, seed=seed)
    rows, columns = min(height, size), min(width, size)
    # Each old pixel as a block of rows x columns small ones: a new pixel then is a block of height x width.
    small = frame.astype(np.int64).repeat(rows, axis=1).repeat(columns, axis=2)
    exact = small.reshape(3, rows, height, columns, width).mean(axis=(2, 4))
    shrunk = shrink(frame, size)
    assert shrunk.shape == (3, rows, columns) and shrunk.dtype == np.uint8
    assert np.abs(shrunk - exact).max() <= 0.5 + 1e-3


def test_small_frames_stay_as_they_are_but_are_copied() -> None:
    frame = noise(3, 20, 84)
    same = shrink(frame, 84)
    np.testing.assert_array_equal(same, frame)
    assert not np.shares_memory(same, frame)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((168, 252, 3), (3, 84, 84)),
        ((3, 168, 168), (3, 84, 84)),
        ((60, 100, 1), (1, 60, 84)),
        ((64, 64, 4), (4, 64, 64)),
    ],
)
def test_frames_have_one_layout(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    pictures = noise(2, *shape)
    env = Frames(Film(pictures))
    assert env.observation_space == Box(0, 255, expected, np.uint8)
    for picture, frame in zip(pictures, (env.reset()[0], env.step(np.zeros(1))[0]), strict=True):
        channels_first = picture if shape[0] == 3 else np.moveaxis(picture, -1, 0)
        assert frame in env.observation_space
        np.testing.assert_array_equal(frame, shrink(channels_first, 84))


def test_a_stack_begins_with_the_first_frame_repeated_and_has_the_oldest_first() -> None:
    pictures = noise(6, 3, 5, 4)
    env = FrameStack(Film(pictures), 3)
    assert env.observation_space == Box(0, 255, (9, 5, 4), np.uint8)
    for _ in range(2):
        seen = [env.reset()[0], *(env.step(np.zeros(1))[0] for _ in range(5))]
        for at, stack in enumerate(seen):
            wanted = [pictures[max(0, at - 2)], pictures[max(0, at - 1)], pictures[at]]
            np.testing.assert_array_equal(stack, np.concatenate(wanted))
            assert stack in env.observation_space
