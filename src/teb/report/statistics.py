"""Means, intervals and aligned curves over seeds: pure functions on arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def mean_std(values: ArrayLike) -> tuple[float, float]:
    """Mean and sample standard deviation (n - 1); the deviation of a single value is NaN."""
    array = _values(values)
    return float(array.mean()), float(array.std(ddof=1)) if array.size > 1 else float("nan")


def interquartile_mean(values: ArrayLike) -> float:
    """Mean of the middle half: floor(n / 4) values are cut off at each end."""
    array = np.sort(_values(values))
    cut = array.size // 4
    return float(array[cut : array.size - cut].mean())


def bootstrap_interval(
    strata: Sequence[ArrayLike], seed: int = 0, resamples: int = 10_000, level: float = 0.95
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean over strata of the mean within each stratum.

    Each stratum (a task) is resampled on its own with replacement, so resamples keep the number of seeds per
    task. `(NaN, NaN)` if a stratum has fewer than two values: one seed says nothing about its spread.
    """
    arrays = [_values(values) for values in strata]
    if not arrays:
        raise ValueError("strata: expected at least one stratum, got none")
    if not 0 < level < 1:
        raise ValueError(f"level: {level}, expected a number between 0 and 1")
    if min(array.size for array in arrays) < 2:
        return float("nan"), float("nan")
    random = np.random.default_rng(seed)
    means = np.zeros(resamples)
    for array in arrays:
        picks = random.integers(array.size, size=(resamples, array.size))
        means += array[picks].mean(axis=1)
    low, high = np.quantile(means / len(arrays), [(1 - level) / 2, (1 + level) / 2])
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
