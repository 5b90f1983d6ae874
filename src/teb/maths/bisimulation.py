"""The predictive bisimulation metric (TEB, section 3): reward differential, transition term, target, loss."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from teb.maths.distances import LatentDistance, latent_distance, pairwise_distance
from teb.maths.gaussian import folded_normal_mean

RewardDifferential = Literal["sample", "sample_indep", "folded", "mean"]
TransitionDistance = Literal["mean", "rap", "w2"]
Pairing = Literal["perm", "derange", "all"]


def reward_differential(
    mean_i: Tensor,
    sigma_i: Tensor,
    mean_j: Tensor,
    sigma_j: Tensor,
    noise_i: Tensor,
    noise_j: Tensor,
    kind: RewardDifferential = "sample",
) -> Tensor:
    """Predictive reward differential E|rhat_i - rhat_j| of TEB eq. (6), elementwise.

    - `sample`, `sample_indep`: |(mu_i + sigma_i xi_i) - (mu_j + sigma_j xi_j)|, one draw each. They differ in the
      caller's noise: one draw per state, permuted along with it (so a self-pair has 0), or two independent draws.
    - `folded`: the exact expectation for independent draws, E|X|, X ~ Normal(mu_i - mu_j, sigma_i^2 + sigma_j^2).
    - `mean`: |mu_i - mu_j|.
    """
    if kind == "mean":
        return (mean_i - mean_j).abs()
    if kind == "folded":
        return folded_normal_mean(mean_i - mean_j, sigma_i.square() + sigma_j.square())
    return ((mean_i + sigma_i * noise_i) - (mean_j + sigma_j * noise_j)).abs()


def transition_distance(
    mean_i: Tensor,
    sigma_i: Tensor,
    mean_j: Tensor,
    sigma_j: Tensor,
    kind: TransitionDistance = "mean",
    ground: LatentDistance = "l2",
) -> Tensor:
    """Stand-ins for W1 between predicted next latents, [..., D] -> [...] (TEB eq. 5; the paper gives no formula).

    - `mean`: the ground distance between the means; exact W1 for point predictions.
    - `w2`: sqrt(||mu_i - mu_j||^2 + ||sigma_i - sigma_j||^2), Gaussian W2, an upper bound of W1; Euclidean only.
    - `rap`: mean_d sqrt((mu_i - mu_j)_d^2 + (sigma_i - sigma_j)_d^2) (Chen & Pan 2022).
    """
    if kind == "rap":
        return ((mean_i - mean_j).square() + (sigma_i - sigma_j).square() + 1e-8).sqrt().mean(-1)
    if kind == "w2":
        return latent_distance(torch.cat([mean_i, sigma_i], -1), torch.cat([mean_j, sigma_j], -1), "l2")
    return latent_distance(mean_i, mean_j, ground)


def w2_per_dimension(mean_i: Tensor, sigma_i: Tensor, mean_j: Tensor, sigma_j: Tensor) -> Tensor:
    """W2 of normals in each dimension, sqrt((mu_i - mu_j)_d^2 + (sigma_i - sigma_j)_d^2), [..., D] -> [..., D].

    Their root of the sum of squares is W2 of diagonal normals, their mean RAP's distance between next latents (Chen &
    Pan 2022). For targets: exactly 0 for equal predictions, where it has no gradient.
    """
    return torch.hypot(mean_i - mean_j, sigma_i - sigma_j)


def pairwise_transition_distance(
    mean_i: Tensor,
    sigma_i: Tensor,
    mean_j: Tensor,
    sigma_j: Tensor,
    kind: TransitionDistance = "mean",
    ground: LatentDistance = "l2",
) -> Tensor:
    """`transition_distance` of every i with every j, [B, D] and [P, D] -> [B, P]."""
    if kind == "rap":
        return transition_distance(mean_i[:, None], sigma_i[:, None], mean_j[None], sigma_j[None], "rap")
    if kind == "w2":
        return pairwise_distance(torch.cat([mean_i, sigma_i], -1), torch.cat([mean_j, sigma_j], -1), "l2")
    return pairwise_distance(mean_i, mean_j, ground)


def metric_target(delta_r: Tensor, w1: Tensor, c_r: float, c_t: float) -> Tensor:
    """One application of the predictive operator (TEB eq. 5), without gradient: c_R Delta_R + c_T W1."""
    if delta_r.shape != w1.shape:
        raise ValueError(
            f"delta_r and w1 must have one shape, got {tuple(delta_r.shape)} and {tuple(w1.shape)}"
        )
    return (c_r * delta_r + c_t * w1).detach()


def bisim_loss(distance: Tensor, target: Tensor, kind: Literal["squared", "huber"] = "squared") -> Tensor:
    """L_bisim = mean (d_omega(s_i, s_j) - sg[target])^2 (TEB eq. 10); `huber` as in Chen & Pan 2022."""
    if distance.shape != target.shape:
        raise ValueError(
            f"distance {tuple(distance.shape)} and target {tuple(target.shape)} must have one shape"
        )
    if kind == "huber":
        return torch.nn.functional.smooth_l1_loss(distance, target.detach())
    return (distance - target.detach()).square().mean()


def pair_indices(
    batch: int, kind: Pairing, rng: torch.Generator, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Which elements of a batch are compared: (i, j), each [B], or [B * B] for `all`.

    - `perm`: j is a random permutation of i; a self-pair occurs once per batch on average (TEB algorithm 1).
    - `derange`: a random cyclic shift of a random order, so no element meets itself.
    - `all`: every ordered pair.
    """
    order = torch.randperm(batch, generator=rng, device=device)
    if kind == "perm":
        return torch.arange(batch, device=device), order
    if kind == "derange":
        if batch < 2:
            raise ValueError("pairing='derange' needs a batch of at least 2")
        shift = torch.randint(1, batch, (), generator=rng, device=device)
        return order, order[(torch.arange(batch, device=device) + shift) % batch]
    every = torch.arange(batch, device=device)
    return every.repeat_interleave(batch), every.repeat(batch)


def scaled_gradient(x: Tensor, factor: float) -> Tensor:
    """`x` itself, whose gradient is multiplied by `factor` on its way back: sg[x] + factor (x - sg[x])."""
    if factor == 1.0:
        return x
    return x.detach() + factor * (x - x.detach()) if factor else x.detach()
