"""Positive pairs within a batch, and the share of a positive among all other items (InfoNCE)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

PositiveRule = Literal["random", "first"]

SHARE_FLOOR = 1e-6
"""Added to the sum under a share, and to the share under a logarithm (Yang et al. 2023, released code)."""


def group_positives(groups: Tensor, rule: PositiveRule, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """For each item another one of its group, [B] whole numbers -> (its index [B], whether there is one [B]).

    `random` draws uniformly among the others of the group; `first` takes the first of them in batch order. An item
    alone in its group is handed its own index.
    """
    items = torch.arange(groups.shape[0], device=groups.device)
    order = groups.argsort(stable=True)
    counts = torch.bincount(groups)
    count, first = counts[groups], (counts.cumsum(0) - counts)[groups]
    rank = torch.empty_like(order)
    rank[order] = items
    rank = rank - first
    if rule == "first":
        step = torch.where(rank == 0, 1, -rank)
    else:
        others = (count - 1).clamp(min=1)
        drawn = torch.rand(groups.shape, generator=rng, device=groups.device) * others
        step = 1 + torch.minimum(drawn.long(), others - 1)
    return order[first + (rank + step) % count], count > 1


def positive_share(features: Tensor, positive: Tensor, temperature: float) -> Tensor:
    """w_i = e^{s_ip} / (sum_{j != i} e^{s_ij} + 1e-6), s the cosines over T, [B, D] and [B] -> [B] (Yang et al. 2023).

    The row's largest s_ij, j != i, is subtracted first, which keeps the exponentials in [0, 1]. The sum runs over all
    others, those of the same group included. An item that is its own positive has share 0.
    """
    if features.shape[0] < 2:
        raise ValueError(f"positive_share: needs at least 2 items, got {features.shape[0]}")
    unit = torch.nn.functional.normalize(features, dim=-1)
    scores = (unit @ unit.T).div_(temperature).fill_diagonal_(-torch.inf)
    weights = scores.sub_(scores.detach().amax(1, keepdim=True)).exp_()
    return weights.gather(1, positive.unsqueeze(1)).squeeze(1) / (weights.sum(1) + SHARE_FLOOR)


def group_cosines(features: Tensor, member: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cosine of pairs within a group and across groups, features [B, D], one-hot groups [B, K] -> two scalars.

    Without all pairs: with unit rows u and S_k the sum of group k, sum_{i != j in k} u_i.u_j = |S_k|^2 - n_k.
    Where there is no such pair the mean is 0.
    """
    unit = torch.nn.functional.normalize(features, dim=-1)
    size, total = member.sum(0), features.shape[0]
    within = (member.T @ unit).square().sum(1) - size
    same_pairs = (size * (size - 1)).sum()
    across = unit.sum(0).square().sum() - total - within.sum()
    cross_pairs = total * (total - 1) - same_pairs
    return within.sum() / same_pairs.clamp(min=1), across / cross_pairs.clamp(min=1)
