"""Means, intervals and aligned curves over seeds: pure functions on arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def mean_std(values: ArrayLike) -> tuple[float, float]:
    """Mean and sample standard deviation (n - 1); the deviation of a single value is NaN."""
    array = _values(values)
    return float(array.mean()), float(array.std(ddof=1)) if array.size > 1 else float("nan")


def mean_of_means(strata: Sequence[ArrayLike]) -> Floats:
    """Mean over strata (tasks) of the mean within each, so that every task counts alike; [..., n_i] -> [...]."""
    return np.mean([np.asarray(array).mean(-1) for array in strata], axis=0)


def median_of_means(strata: Sequence[ArrayLike]) -> Floats:
    """Median over strata (tasks) of the mean within each; [..., n_i] -> [...]."""
    return np.median([np.asarray(array).mean(-1) for array in strata], axis=0)


def pooled_iqm(strata: Sequence[ArrayLike]) -> Floats:
    """Interquartile mean of all values of all strata (Agarwal et al. 2021); [..., n_i] -> [...]."""
    pooled = np.sort(np.concatenate([np.asarray(array) for array in strata], axis=-1), axis=-1)
    cut = pooled.shape[-1] // 4
    return pooled[..., cut : pooled.shape[-1] - cut].mean(-1)


def improvement_probability(first: Sequence[ArrayLike], second: Sequence[ArrayLike]) -> Floats:
    """Mean over strata of P(X > Y) + P(X = Y) / 2, X from `first`, Y from `second` (Mann & Whitney 1947).

    Both list the same tasks in the same order; [..., n_i] and [..., m_i] -> [...].
    """
    if len(first) != len(second):
        raise ValueError(f"first has {len(first)} strata, second {len(second)}: they must be the same tasks")
    pairs = [
        (np.asarray(x)[..., :, None], np.asarray(y)[..., None, :]) for x, y in zip(first, second, strict=True)
    ]
    return np.mean([((x > y) + 0.5 * (x == y)).mean((-2, -1)) for x, y in pairs], axis=0)


def performance_profile(strata: Sequence[ArrayLike], thresholds: ArrayLike) -> Floats:
    """Share of runs above each threshold, every stratum counting alike (Agarwal et al. 2021); [..., thresholds]."""
    levels = np.asarray(thresholds, dtype=np.float64)
    return np.mean([(np.asarray(array)[..., :, None] > levels).mean(-2) for array in strata], axis=0)


Statistic = Callable[..., Floats]
"""A function of one or several lists of strata, along the last axis of each array."""


def bootstrap_interval(
    strata: Sequence[ArrayLike],
    *others: Sequence[ArrayLike],
    statistic: Statistic = mean_of_means,
    seed: int = 0,
    resamples: int = 10_000,
    level: float = 0.95,
) -> tuple[float, float]:
    """Percentile bootstrap interval of `statistic(strata, *others)`; by default the mean over strata of their means.

    Each stratum (a task) is resampled on its own with replacement, so resamples keep the number of seeds per
    task. `(NaN, NaN)` if a stratum has fewer than two values: one seed says nothing about its spread.
    """
    groups = [[_values(values) for values in group] for group in (strata, *others)]
    if not all(groups):
        raise ValueError("strata: expected at least one stratum, got none")
    if not 0 < level < 1:
        raise ValueError(f"level: {level}, expected a number between 0 and 1")
    if min(array.size for group in groups for array in group) < 2:
        return float("nan"), float("nan")
    random = np.random.default_rng(seed)
    drawn = [
        [array[random.integers(array.size, size=(resamples, array.size))] for array in group]
        for group in groups
    ]
    low, high = np.quantile(statistic(*drawn), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def step_values(env_steps: ArrayLike, values: ArrayLike, grid: ArrayLike) -> Floats:
    """Last known value at each point of `grid`; NaN before the first value and beyond the last step.

    A NaN in `values` means "not measured here", so the value before it still holds.
    """
    steps, series, points = (np.asarray(array, dtype=np.float64) for array in (env_steps, values, grid))
    known = np.isfinite(series)
    if not known.any():
        return np.full(points.shape, np.nan)
    index = np.searchsorted(steps[known], points, side="right") - 1
    inside = (index >= 0) & (points <= steps[-1])
    return np.where(inside, series[known][np.maximum(index, 0)], np.nan)


def measured(env_steps: Floats, values: Floats) -> tuple[Floats, Floats]:
    """The points of a curve that have a value: a line through them goes straight over the others."""
    known = np.isfinite(values)
    return env_steps[known], values[known]


def common_grid(curves: Sequence[tuple[Floats, Floats]]) -> Floats:
    """All steps at which any curve has an entry and every curve has a value (may be empty)."""
    usable = [(steps, values) for steps, values in curves if np.isfinite(values).any()]
    if not usable:
        return np.empty(0)
    first = max(steps[np.isfinite(values)][0] for steps, values in usable)
    last = min(steps[-1] for steps, _ in usable)
    grid = np.unique(np.concatenate([steps for steps, _ in usable]))
    return grid[(grid >= first) & (grid <= last)]


def align(curves: Sequence[tuple[Floats, Floats]], grid: ArrayLike) -> Floats:
    """Put `(env_steps, values)` curves on one grid, step-wise: `[curves, grid points]`."""
    return np.array([step_values(steps, values, grid) for steps, values in curves]).reshape(len(curves), -1)


def _values(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64).ravel()
    if not array.size:
        raise ValueError("values: expected at least one number, got none")
    return array
