"""Particle estimates of novelty: how far a point lies from its nearest neighbours in a sample."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from teb.maths.distances import pairwise_distance


def nearest_mean(distances: Tensor, k: int) -> Tensor:
    """Mean of the k smallest distances of each row, [B, P] -> [B].

    The particle estimate of state entropy (Singh et al. 2003; Liu & Abbeel 2021) is a sum of logarithms of such
    distances; here the distance itself is the potential.
    """
    if not 1 <= k <= distances.shape[1]:
        raise ValueError(f"k: must lie in [1, {distances.shape[1]}] (the number of particles), got {k}")
    return distances.topk(k, dim=1, largest=False, sorted=False).values.mean(1)


def particle_bonus(nearest: Tensor, scale: Tensor | float = 1.0, clip: float = 0.0) -> Tensor:
    """log(1 + mean_j max(d_j / scale - clip, 0)) of each row's nearest distances, [B, k] -> [B] (Liu & Abbeel 2021)."""
    return torch.log1p((nearest / scale - clip).clamp(min=0.0).mean(1))


def neighbour_distances(points: Tensor, k: int, *, exclude_self: bool = False) -> Tensor:
    """Distances of each point to the k nearest of the same sample, in no order, [B, D] -> [B, k].

    Each point counts as its own nearest neighbour, at distance 0, as in URLB's APT; Singh et al. 2003 leave it out.
    """
    most = points.shape[0] - exclude_self
    if not 1 <= k <= most:
        raise ValueError(f"k: must lie in [1, {most}] for {points.shape[0]} points, got {k}")
    distances = pairwise_distance(points, points).fill_diagonal_(math.inf if exclude_self else 0.0)
    return distances.topk(k, dim=1, largest=False, sorted=False).values
