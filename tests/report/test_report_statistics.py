"""Statistics against scipy and against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from teb.report.statistics import (
    align,
    bootstrap_interval,
    common_grid,
    improvement_probability,
    mean_of_means,
    mean_std,
    median_of_means,
    performance_profile,
    pooled_iqm,
    step_values,
)

numbers = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20)


def test_mean_and_std():
    assert mean_std([1, 2, 3]) == (2.0, 1.0)
    mean, std = mean_std([4])
    assert mean == 4.0 and np.isnan(std)
    with pytest.raises(ValueError, match="at least one number"):
        mean_std([])


@settings(max_examples=50, deadline=None)
@given(numbers)
def test_interquartile_mean_is_scipys_trimmed_mean(values):
    half = len(values) // 2
    strata = [values[:half], values[half:]] if half else [values]
    assert pooled_iqm(strata) == pytest.approx(scipy.stats.trim_mean(values, 0.25), abs=1e-9)


def test_aggregates_worked_out_by_hand():
    strata = [[0.0, 0.2], [0.5, 0.7, 0.9], [1.0]]
    assert mean_of_means(strata) == pytest.approx((0.1 + 0.7 + 1.0) / 3)
    assert median_of_means(strata) == pytest.approx(0.7)
    assert pooled_iqm(strata) == pytest.approx((0.2 + 0.5 + 0.7 + 0.9) / 4)
    np.testing.assert_allclose(
        performance_profile(strata, [0.1, 0.7, 1.0]), [(0.5 + 1 + 1) / 3, (0 + 1 / 3 + 1) / 3, 0]
    )


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=8), st.lists(st.integers(0, 5), min_size=1, max_size=8)
)
def test_probability_of_improvement_is_mann_and_whitneys_u(first, second):
    u = scipy.stats.mannwhitneyu(first, second, method="asymptotic").statistic if set(first + second) else 0
    assert improvement_probability([first], [second]) == pytest.approx(u / (len(first) * len(second)))


def test_probability_of_improvement_counts_tasks_alike():
    assert improvement_probability([[1, 1, 1], [0]], [[0, 0], [0]]) == pytest.approx((1 + 0.5) / 2)
    with pytest.raises(ValueError, match="same tasks"):
        improvement_probability([[1.0]], [[1.0], [2.0]])


def test_the_interval_of_an_improvement_agrees_with_scipy():
    random = np.random.default_rng(0)
    first, second = random.normal(0.6, 0.2, size=10), random.normal(0.5, 0.2, size=10)
    ours = bootstrap_interval([first], [second], statistic=improvement_probability, resamples=20_000)
    theirs = scipy.stats.bootstrap(
        (first, second),
        lambda a, b, axis: (a[..., :, None] > b[..., None, :]).mean((-2, -1)),
        n_resamples=20_000,
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(1),
    )
    np.testing.assert_allclose(ours, theirs.confidence_interval, atol=0.011)


def test_bootstrap_agrees_with_scipy():
    values = np.random.default_rng(0).normal(0.7, 0.1, size=10)
    ours = bootstrap_interval([values], resamples=40_000)
    random = np.random.default_rng(1)
    theirs = scipy.stats.bootstrap((values,), np.mean, n_resamples=40_000, method="percentile", rng=random)
    np.testing.assert_allclose(ours, theirs.confidence_interval, atol=2e-3)


def test_stratified_bootstrap_agrees_with_scipy():
    random = np.random.default_rng(0)
    first, second = random.normal(0.9, 0.02, size=5), random.normal(0.3, 0.1, size=8)
    ours = bootstrap_interval([first, second], resamples=40_000, level=0.9)
    theirs = scipy.stats.bootstrap(
        (first, second),
        lambda a, b, axis: (a.mean(axis=axis) + b.mean(axis=axis)) / 2,
        n_resamples=40_000,
        method="percentile",
        confidence_level=0.9,
        vectorized=True,
        rng=np.random.default_rng(1),
    )
    np.testing.assert_allclose(ours, theirs.confidence_interval, atol=2e-3)


def test_bootstrap_is_seeded_and_refuses_to_guess():
    values = list(np.random.default_rng(0).normal(size=(2, 6)))
    assert bootstrap_interval(values, seed=3) == bootstrap_interval(values, seed=3)
    assert bootstrap_interval(values, seed=3) != bootstrap_interval(values, seed=4)
    assert np.isnan(bootstrap_interval([[0.1, 0.5], [0.7]])).all()
    with pytest.raises(ValueError, match="strata"):
        bootstrap_interval([])
    with pytest.raises(ValueError, match="level: 95"):
        bootstrap_interval(values, level=95)


def test_step_values_hold_the_last_value_and_go_nowhere_else():
    got = step_values([10, 20, 30], [1.0, 2.0, 3.0], [5, 10, 19, 20, 30, 31])
    np.testing.assert_array_equal(got, [np.nan, 1, 1, 2, 3, np.nan])


def test_step_values_look_through_nulls():
    got = step_values([10, 20, 30], [np.nan, 2.0, np.nan], [10, 20, 25, 30, 31])
    np.testing.assert_array_equal(got, [np.nan, 2, 2, 2, np.nan])
    assert np.isnan(step_values([1, 2], [np.nan, np.nan], [1, 2])).all()


def test_aligning_two_seeds():
    a = (np.array([10.0, 20, 30]), np.array([1.0, 2, 3]))
    b = (np.array([15.0, 25]), np.array([5.0, 6]))
    grid = common_grid([a, b])
    np.testing.assert_array_equal(grid, [15, 20, 25])
    np.testing.assert_array_equal(align([a, b], grid), [[1, 2, 2], [5, 5, 6]])


def test_common_grid_may_be_empty():
    a = (np.array([1.0, 2]), np.array([1.0, 2]))
    late = (np.array([5.0, 6]), np.array([1.0, 2]))
    assert common_grid([a, late]).size == 0
    assert common_grid([]).size == 0
