"""Distances between latents: the ground metric of the bisimulation operator."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

LatentDistance = Literal["l2", "l1", "l1_mean", "huber_mean", "mico"]

_FLOOR = 1e-8
"""Added under square roots: the gradient of the bare Euclidean norm is NaN at zero."""

MICO_BETA = 0.1
"""Weight of the angle between latents (Castro et al. 2021)."""


def angle(x: Tensor, y: Tensor) -> Tensor:
    """Angle between vectors, theta = atan2(sqrt(1 - c^2), c) with c their cosine, [..., D] -> [...].

    The arctangent form keeps its gradient finite for parallel vectors (Castro et al. 2021, appendix).
    """
    cosine = torch.cosine_similarity(x, y, dim=-1, eps=1e-9)
    return _arc(cosine)


def _arc(cosine: Tensor) -> Tensor:
    return torch.atan2((1.0 - cosine.square()).clamp(min=1e-9).sqrt(), cosine)


def diffuse_distance(x: Tensor, y: Tensor, share: float, beta: float) -> Tensor:
    """U(x, y) = share (||x||^2 + ||y||^2) + beta theta(x, y), [..., D] -> [...]; U(x, x) = 2 share ||x||^2.

    Share 1/2 and beta 0.1 in MICo (Castro et al. 2021); 1 and 1e-6 in RAP (Chen & Pan 2022, released code).
    """
    return share * (x.square().sum(-1) + y.square().sum(-1)) + beta * angle(x, y)


def pairwise_diffuse_distance(x: Tensor, y: Tensor, share: float, beta: float) -> Tensor:
    """`diffuse_distance` of every x with every y, [B, D] and [P, D] -> [B, P]: all cosines are one product."""
    cosine = unit(x) @ unit(y).T
    return share * (x.square().sum(-1).unsqueeze(1) + y.square().sum(-1)) + beta * _arc(cosine)


def capped(x: Tensor, radius: float) -> Tensor:
    """Vectors moved into the ball of radius M: x / max(1, ||x||_2 / M), [..., D] -> [..., D].

    Those within stay what they are (Kemertas & Aumentado-Armstrong 2021).
    """
    return x / (safe_norm(x) / radius).clamp(min=1.0)


def huber(x: Tensor) -> Tensor:
    """x^2 / 2 where |x| < 1, |x| - 1/2 elsewhere, elementwise."""
    magnitude = x.abs()
    return torch.where(magnitude < 1.0, 0.5 * x.square(), magnitude - 0.5)


def safe_norm(x: Tensor) -> Tensor:
    """||x||_2 along the last axis, [..., D] -> [..., 1]: exactly 0 at 0, with gradient 0 there."""
    squared = x.square().sum(-1, keepdim=True)
    positive = squared > 0
    return torch.where(positive, torch.where(positive, squared, 1.0).sqrt(), 0.0)


def unit(x: Tensor) -> Tensor:
    """The unit vector x / ||x||_2 along the last axis, of the shape of x: 0 at 0, with a finite gradient there."""
    norm = safe_norm(x)
    return x / torch.where(norm > 0, norm, 1.0)


def latent_distance(x: Tensor, y: Tensor, kind: LatentDistance = "l2") -> Tensor:
    """Distance between latents along the last axis, [..., D] and [..., D] -> [...].

    - `l2`: ||x - y||_2, the bare norm of TEB eq. (10).
    - `l1`: sum_d |x_d - y_d|; `l1_mean`: the same divided by D.
    - `huber_mean`: mean_d h(x_d - y_d), h the Huber function with knee 1 (Zhang et al. 2021, released code).
    - `mico`: (||x||^2 + ||y||^2) / 2 + 0.1 theta(x, y); d(x, x) > 0 (Castro et al. 2021).
    """
    if kind == "mico":
        return diffuse_distance(x, y, 0.5, MICO_BETA)
    difference = x - y
    if kind == "l2":
        return (difference.square().sum(-1) + _FLOOR).sqrt()
    if kind == "l1":
        return difference.abs().sum(-1)
    if kind == "l1_mean":
        return difference.abs().mean(-1)
    return huber(difference).mean(-1)


def pairwise_distance(x: Tensor, y: Tensor, kind: LatentDistance = "l2") -> Tensor:
    """All distances between two sets of latents, [B, D] and [P, D] -> [B, P].

    The same as `latent_distance(x[:, None], y[None], kind)`; the Euclidean case goes through one matrix product, on
    points moved to their common centre, since ||x||^2 - 2 x.y + ||y||^2 cancels far from the origin. Near coinciding
    points it is good to about 1e-3 of the spread of the points, and exactly 0 there.
    """
    if kind != "l2":
        return latent_distance(x.unsqueeze(1), y.unsqueeze(0), kind)
    centre = y.mean(0, keepdim=True)
    return torch.cdist(x - centre, y - centre)
