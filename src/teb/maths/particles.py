"""Particle estimates of novelty: how far a point lies from its nearest neighbours in a sample."""

from __future__ import annotations

import torch
from torch import Tensor


def nearest_mean(distances: Tensor, k: int) -> Tensor:
    """Mean of the k smallest distances of each row, [B, P] -> [B].

    The particle estimate of state entropy (Singh et al. 2003; Liu & Abbeel 2021) is a sum of logarithms of such
    distances; here the distance itself is the potential.
    """
    if not 1 <= k <= distances.shape[1]:
        raise ValueError(f"k: must lie in [1, {distances.shape[1]}] (the number of particles), got {k}")
    return distances.topk(k, dim=1, largest=False, sorted=False).values.mean(1)


def nearest_distances(x: Tensor, k: int) -> Tensor:
    """Euclidean distances of each row to the k nearest rows of the same set, itself among them, [n, D] -> [n, k].

    ||x||^2 - 2 x.y + ||y||^2 as one matrix product, in float64: in float32 it cancels where rows nearly coincide, and
    what is paid for such distances may be divided by something small.
    """
    if not 1 <= k <= x.shape[0]:
        raise ValueError(f"k: must lie in [1, {x.shape[0]}] (the number of rows), got {k}")
    rows = (x - x.mean(0, keepdim=True)).double()
    norms = rows.square().sum(1, keepdim=True)
    ones = torch.ones_like(norms)
    squared = (torch.cat([rows, norms, ones], 1) @ torch.cat([-2.0 * rows, ones, norms], 1).T).to(x.dtype)
    nearest = squared.fill_diagonal_(0.0).topk(k, dim=1, largest=False, sorted=False).values
    return nearest.clamp(min=0.0).sqrt()


def particle_bonus(nearest: Tensor, scale: Tensor | float = 1.0, clip: float = 0.0) -> Tensor:
    """log(1 + mean_j max(d_j / scale - clip, 0)) of each row's nearest distances, [B, k] -> [B] (Liu & Abbeel 2021)."""
    return torch.log1p((nearest / scale - clip).clamp(min=0.0).mean(1))
