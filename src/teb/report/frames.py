"""Frames that an agent has seen, and which of them it takes for alike."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Frames(NamedTuple):
    """N frames, and how far an agent holds them from each other."""

    pictures: NDArray[np.uint8]
    """[N, C, H, W]."""
    episode: NDArray[np.integer]
    """The episode that each comes from, [N]."""
    step: NDArray[np.integer]
    """And where in it, [N]."""
    distances: NDArray[np.floating]
    """[N, N]."""
    metric: str
    """What the distances are."""
    env_steps: int
    """How long the agent was trained."""


class Neighbours(NamedTuple):
    """Indices of frames, the most extreme first."""

    nearest: NDArray[np.integer]
    farthest: NDArray[np.integer]


def neighbours(
    distances: NDArray[np.floating], episode: NDArray[np.integer], frame: int, count: int
) -> Neighbours:
    """The nearest and the farthest frames of other episodes, of each at most one: frames in a row look alike."""
    row = distances[frame]

    def one_each(order: NDArray[np.integer]) -> NDArray[np.integer]:
        abroad = order[episode[order] != episode[frame]]
        _, first = np.unique(episode[abroad], return_index=True)
        return abroad[np.sort(first)][:count]

    return Neighbours(one_each(np.argsort(row, kind="stable")), one_each(np.argsort(-row, kind="stable")))


def chosen_frames(episode: NDArray[np.integer], count: int, seed: int = 0) -> list[int]:
    """Random frames, each of another episode as long as there are enough."""
    order = np.random.default_rng(seed).permutation(len(episode))
    _, first = np.unique(episode[order], return_index=True)
    return order[np.sort(first)][:count].tolist()
