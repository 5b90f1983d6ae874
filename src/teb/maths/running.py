"""Moments of a stream of values."""

from __future__ import annotations

from torch import Tensor


def updated_moments(
    mean: Tensor, variance: Tensor, count: Tensor, values: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Moments (M, S, c) after m further values of mean b and unbiased variance v, with delta = b - M (URLB).

    M <- M + delta m / (c + m),  S <- [S c + v m + delta^2 c m / (c + m)] / (c + m),  c <- c + m
    """
    if values.numel() < 2:
        raise ValueError(f"updated_moments: needs at least 2 values, got {values.numel()}")
    m = values.numel()
    total = count + m
    delta = values.mean() - mean
    spread = variance * count + values.var() * m + delta.square() * count * m / total
    return (mean + delta * m / total).to(mean.dtype), (spread / total).to(variance.dtype), total
