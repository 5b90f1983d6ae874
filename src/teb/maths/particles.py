"""Particle estimates of novelty: how far a point lies from its nearest neighbours in a sample."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from teb.maths.distances import safe_norm

_NARROW = 32
"""Columns up to which a product in double precision costs next to nothing."""


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

    Each point counts as its own nearest neighbour, at distance 0, as in URLB's APT, CIC and CeSD; Singh et al. 2003
    leave it out. Neighbours are ranked by ||y||^2 - 2 x.y, one product about the centre of the points, of narrow ones
    in double precision, so that close points far from the centre are told apart. The distances to those found are then
    taken directly.
    """
    most = points.shape[0] - exclude_self
    if not 1 <= k <= most:
        raise ValueError(f"k: must lie in [1, {most}] for {points.shape[0]} points, got {k}")
    rows = points - points.mean(0, keepdim=True)
    rows = rows.double() if rows.shape[1] <= _NARROW else rows
    ranks = torch.addmm(rows.square().sum(1), rows, rows.T, alpha=-2.0)
    ranks.fill_diagonal_(math.inf if exclude_self else -math.inf)
    nearest = ranks.topk(k, dim=1, largest=False, sorted=False).indices
    return safe_norm(points[:, None] - points[nearest]).squeeze(-1)


def kth_nearest_distance(points: Tensor, particles: Tensor, k: int) -> Tensor:
    """Distance of each point to its k-th nearest particle, [B, D] and [P, D] -> [B] (Yarats et al. 2021).

    Neighbours are ranked by ||y||^2 - 2 x.y, one matrix product about the particles' centre. The distance to the one
    found is then taken directly, so coinciding points are at distance 0 although the product has rounded.
    """
    if not 1 <= k <= particles.shape[0]:
        raise ValueError(f"k: must lie in [1, {particles.shape[0]}] (the number of particles), got {k}")
    centre = particles.mean(0, keepdim=True)
    x, y = points - centre, particles - centre
    ranks = torch.addmm(y.square().sum(1), x, y.T, alpha=-2.0)
    kth = ranks.topk(k, dim=1, largest=False, sorted=True).indices[:, -1]
    return safe_norm(points - particles[kth]).squeeze(-1)


def drawn_by_score(scores: Tensor, rng: torch.Generator) -> Tensor:
    """One column of each row, drawn from the softmax of the row, [K, B] -> [K] (Yarats et al. 2021)."""
    return torch.multinomial(scores.softmax(1), 1, generator=rng).squeeze(1)
