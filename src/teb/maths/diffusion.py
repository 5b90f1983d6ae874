"""A variance-preserving noise schedule, and how a level of noise is told to a network (Ho et al. 2020)."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def retained_signal(levels: int, beta_min: float, beta_max: float) -> Tensor:
    """abar_k = exp(-beta_min k / T - (beta_max - beta_min) k^2 / (2 T^2)) for k = 1 ... T, [T] (Song et al. 2021).

    What is left of a signal's variance at level k: that much of the product of all 1 - beta, in closed form.
    """
    passed = torch.arange(1, levels + 1, dtype=torch.float64) / levels
    return torch.exp(-beta_min * passed - 0.5 * (beta_max - beta_min) * passed.square()).float()


def noised(clean: Tensor, retained: Tensor, noise: Tensor) -> Tensor:
    """sqrt(abar_k) x_j + sqrt(1 - abar_k) eps_{k,j}: [B, D], [T] and [T, B, D] -> [T, B, D].

    There is one draw for each level and row, which everything that meets the row at that level shares.
    """
    kept = retained.view(-1, 1, 1)
    return kept.sqrt() * clean + (1.0 - kept).sqrt() * noise


def sinusoidal_embedding(steps: Tensor, width: int) -> Tensor:
    """Cosines, then sines, of k w_i with w_i = 10000^(-i / (h - 1)), i = 0 ... h - 1, h = width / 2.

    [T] -> [T, width], after Vaswani et al. 2017.
    """
    if width < 4 or width % 2:
        raise ValueError(f"sinusoidal_embedding: width must be even and at least 4, got {width}")
    half = width // 2
    speeds = torch.exp(-math.log(10_000.0) * torch.arange(half, device=steps.device) / (half - 1))
    angles = steps.unsqueeze(-1) * speeds
    return torch.cat([angles.cos(), angles.sin()], -1)
