"""Moments of a stream of values."""

from __future__ import annotations

from torch import Tensor


def updated_moments(
    mean: Tensor, variance: Tensor, count: Tensor, values: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Moments (M, S, c) after m further values of mean b and unbiased variance v, with delta = b - M (URLB).

    M <- M + delta m / (c + m),  S <- [S c + v m + delta^2 c m / (c + m)] / (c + m),  c <- c + m

    With a scalar `mean` every entry of `values` counts; with one of shape [D] each column of `values` [..., D] has
    moments of its own.
    """
    rows = values.reshape(-1, *mean.shape)
    m = rows.shape[0]
    if m < 2:
        raise ValueError(f"updated_moments: needs at least 2 values, got {m}")
    total = count + m
    delta = rows.mean(0) - mean
    spread = variance * count + rows.var(0) * m + delta.square() * count * m / total
    return (mean + delta * m / total).to(mean.dtype), (spread / total).to(variance.dtype), total


def standardised(values: Tensor, mean: Tensor, variance: Tensor, limit: float) -> Tensor:
    """clip((x - M) / sqrt(S + 1e-5), -limit, limit), [..., D] -> [..., D] (Burda et al. 2019; the 1e-5: URLB)."""
    return ((values - mean) / (variance + 1e-5).sqrt()).clamp(-limit, limit)
