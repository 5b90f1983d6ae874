"""Metrics between states by how an agent fares there: the targets of LIBERTY and EME, and what EME scales them by."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

DiversityScale = Literal["clamp", "mean"]


def inverse_dynamic_target(
    reward_i: Tensor,
    reward_j: Tensor,
    transition: Tensor,
    inverse_i: Tensor,
    inverse_j: Tensor,
    c_t: float,
    c_inv: float,
) -> Tensor:
    """One application of LIBERTY's operator, [..., 1] or [..., A] arguments and [...] -> [...] (Wang et al. 2023).

    |r_i - r_j| + c_T W2(d)(P_i, P_j) + c_inv ||I_i - I_j||_1, both weights gamma; `transition` is the W2 term and
    I = I(s, s') the action that inverse dynamics see between a state and the next. Without gradient.
    """
    reward = (reward_i - reward_j).abs().sum(-1)
    if reward.shape != transition.shape:
        raise ValueError(f"transition: expected shape {tuple(reward.shape)}, got {tuple(transition.shape)}")
    inverse = (inverse_i - inverse_j).abs().sum(-1)
    return (reward + c_t * transition + c_inv * inverse).detach()


def effective_target(reward_gap: Tensor, next_distance: Tensor, kl: Tensor, gamma: float) -> Tensor:
    """One application of EME's operator, all of one shape (Wang et al. 2024).

    |E r_i - E r_j| + gamma E d(s'_i, s'_j) + gamma KL(pi_i || pi_j), next states drawn apart. Without gradient.
    """
    if not reward_gap.shape == next_distance.shape == kl.shape:
        shapes = ", ".join(str(tuple(x.shape)) for x in (reward_gap, next_distance, kl))
        raise ValueError(f"effective_target: arguments must have one shape, got {shapes}")
    return (reward_gap + gamma * next_distance + gamma * kl).detach()


def squared_gap_of_means(mean_square: Tensor, variance_i: Tensor, variance_j: Tensor) -> Tensor:
    """(E X - E Y)^2 of independent X and Y, elementwise: E(X - Y)^2 - Var X - Var Y (Chen & Pan 2022).

    Without bias, so an estimate from one draw each may be negative.
    """
    return mean_square - variance_i - variance_j


def gap_of_means(mean_square: Tensor, variance_i: Tensor, variance_j: Tensor) -> Tensor:
    """|E X - E Y| of independent X and Y from E(X - Y)^2 and their variances, elementwise (Chen & Pan 2022).

    sqrt(E(X - Y)^2 - Var X - Var Y); estimates that put a negative number under the root count as 0.
    """
    return squared_gap_of_means(mean_square, variance_i, variance_j).clamp(min=0.0).sqrt()


def diversity_scale(zeta: Tensor, largest: float, kind: DiversityScale = "clamp") -> Tensor:
    """What EME multiplies a distance by, elementwise; zeta is the variance over an ensemble of reward models.

    - `clamp`: min(max(zeta, 1), M), never below 1 (Wang et al. 2024).
    - `mean`: min(zeta / mean zeta, M), relative to the batch; 0 where no member differs.
    """
    if kind == "clamp":
        return zeta.clamp(1.0, largest)
    return (zeta / zeta.mean().clamp(min=torch.finfo(zeta.dtype).tiny)).clamp(max=largest)
