"""Gaussian heads: bounded standard deviations, likelihoods, and what differences of Gaussians amount to."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

SigmaParam = Literal["affine_sigmoid", "clamp", "bounded_log"]


def bounded_sigma(raw: Tensor, low: float, high: float, kind: SigmaParam = "affine_sigmoid") -> Tensor:
    """Map a head's raw output to a standard deviation in [low, high].

    - `affine_sigmoid`: low + (high - low) sigmoid(raw), "scaled to the interval" (TEB after eq. 8; Chen & Pan 2022).
    - `clamp`: clip(raw, low, high); no gradient outside.
    - `bounded_log`: exp(log low + (log high - log low) sigmoid(raw)), the same on a logarithmic scale.
    """
    if kind == "clamp":
        return raw.clamp(low, high)
    if kind == "bounded_log":
        log_low, log_high = math.log(low), math.log(high)
        return (log_low + (log_high - log_low) * torch.sigmoid(raw)).exp().clamp(low, high)
    return low + (high - low) * torch.sigmoid(raw)


def gaussian_nll(target: Tensor, mean: Tensor, sigma: Tensor) -> Tensor:
    """Negative log-likelihood without its constant, elementwise (TEB eq. 8).

    (target - mean)^2 / (2 sigma^2) + log sigma
    """
    return 0.5 * ((target - mean) / sigma).square() + sigma.log()


def folded_normal_mean(mean: Tensor, variance: Tensor) -> Tensor:
    """E|X| for X ~ Normal(mean, variance), elementwise (Leone, Nelson & Nottingham 1961).

    sqrt(2 v / pi) exp(-m^2 / (2 v)) + m erf(m / sqrt(2 v)); the limit |m| at v = 0 is taken exactly.
    """
    safe = variance.clamp(min=torch.finfo(variance.dtype).tiny)
    spread = (2.0 * safe / math.pi).sqrt() * torch.exp(-mean.square() / (2.0 * safe))
    return torch.where(variance > 0, spread + mean * torch.erf(mean / (2.0 * safe).sqrt()), mean.abs())


def gaussian_kl(mean_q: Tensor, sigma_q: Tensor, mean_p: Tensor, sigma_p: Tensor) -> Tensor:
    """KL(q || p) of normals with diagonal covariance, summed over the last axis, [..., D] -> [...].

    sum_j [ log(sigma_p / sigma_q) + (sigma_q^2 + (mu_q - mu_p)^2) / (2 sigma_p^2) - 1/2 ]
    """
    ratio = (sigma_q / sigma_p).square()
    shift = ((mean_q - mean_p) / sigma_p).square()
    return (0.5 * (ratio + shift - 1.0) - 0.5 * ratio.log()).sum(-1)


def equal_spread_kl(mean_q: Tensor, mean_p: Tensor, sigma: float) -> Tensor:
    """KL of normals that share one standard deviation, summed over the last axis, [..., D] -> [...].

    ||mu_q - mu_p||^2 / (2 sigma^2), symmetric in both.
    """
    return (mean_q - mean_p).square().sum(-1) / (2.0 * sigma**2)


def surprise_loss(kl: Tensor, target: Tensor, decoded: Tensor, beta: float) -> Tensor:
    """Negative evidence bound beta KL(q || p) - log Normal(target; decoded, 1), [B] and twice [B, D] -> [B].

    That of a latent forward model whose decoder has unit variance (Mazzaglia et al. 2022). If the outcome is
    Normal(m(o, a), diag(lambda)), the best linear model has KL = 1/2 sum_j max(0, log(lambda_j / beta)): a direction
    whose variance is below beta is not worth encoding.
    """
    squared = (target - decoded).square().sum(-1)
    return beta * kl + 0.5 * squared + 0.5 * target.shape[-1] * math.log(2.0 * math.pi)
