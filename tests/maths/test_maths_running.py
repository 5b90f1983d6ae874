from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from teb.maths.running import standardised, updated_moments
from teb.nets.memory import RunningMoments


def test_moments_of_many_batches_are_those_of_all_values_together() -> None:
    rng, running, seen = np.random.default_rng(0), RunningMoments(), []
    for _ in range(100):
        batch = rng.normal(3.0, 2.0, size=int(rng.integers(2, 300)))
        running.take(torch.from_numpy(batch).float())
        seen.append(batch)
    pooled = np.concatenate(seen)
    assert float(running.mean) == pytest.approx(pooled.mean(), rel=1e-4)
    # Within-batch variances are unbiased ones, so the pooled one is exceeded by at most m / (m - 1).
    assert float(running.variance) == pytest.approx(pooled.var(), rel=0.02)
    assert float(running.count) == pytest.approx(len(pooled) + 1e-4, rel=1e-9)


def test_moments_are_those_of_the_recursion_over_many_calls() -> None:
    rng, running = np.random.default_rng(1), RunningMoments()
    mean, variance, count = 0.0, 1.0, 1e-4
    for _ in range(100):
        x = rng.normal(rng.uniform(-2, 2), rng.uniform(0.1, 3), int(rng.integers(2, 300)))
        m, delta = len(x), x.mean() - mean
        mean += delta * m / (count + m)
        variance = (count * variance + m * x.var(ddof=1) + delta**2 * count * m / (count + m)) / (count + m)
        count += m
        running.take(torch.from_numpy(x).float())
        assert float(running.variance) == pytest.approx(variance, rel=1e-4)
        assert float(running.mean) == pytest.approx(mean, abs=1e-4)
    assert float(running.count) == pytest.approx(count, rel=1e-9)


def test_one_step_of_the_recursion_by_hand() -> None:
    mean, variance, count = updated_moments(
        torch.tensor(1.0), torch.tensor(2.0), torch.tensor(3.0), torch.tensor([4.0, 6.0])
    )
    # b = 5, v = 2, delta = 4: M = 1 + 4 * 2/5, S = (2*3 + 2*2 + 16*3*2/5) / 5
    assert (float(mean), float(variance), float(count)) == pytest.approx((2.6, 5.84, 5.0))


def test_first_batch_takes_over_from_the_start_values() -> None:
    running = RunningMoments()
    running.take(torch.tensor([10.0, 14.0]))
    assert float(running.mean) == pytest.approx(12.0, rel=1e-3)
    assert float(running.variance) == pytest.approx(8.0, rel=2e-3)


def test_a_single_value_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 values, got 1"):
        RunningMoments().take(torch.tensor([1.0]))


def test_columns_have_moments_of_their_own() -> None:
    rng, running = np.random.default_rng(1), RunningMoments(3)
    batches = rng.normal([0.0, 5.0, -2.0], [1.0, 0.1, 4.0], size=(40, 200, 3))
    for batch in batches:
        running.take(torch.from_numpy(batch).float())
    assert np.allclose(running.mean.numpy(), batches.mean((0, 1)), rtol=1e-4, atol=1e-4)
    assert np.allclose(running.variance.numpy(), batches.var((0, 1)), rtol=0.01)
    alone = RunningMoments()
    for batch in batches:
        alone.take(torch.from_numpy(batch[:, 1]).float())
    assert float(running.variance[1]) == pytest.approx(float(alone.variance), rel=1e-4)
    assert float(running.deviation()[1]) == pytest.approx(batches[..., 1].std(), rel=0.01)


def test_a_scalar_counts_every_entry_whatever_the_shape() -> None:
    flat, shaped = RunningMoments(), RunningMoments()
    values = torch.arange(12.0)
    flat.take(values)
    shaped.take(values.view(4, 3))
    assert torch.equal(flat.mean, shaped.mean) and torch.equal(flat.count, shaped.count)
    assert torch.allclose(flat.variance, shaped.variance)


def test_a_single_row_is_refused_although_it_has_many_columns() -> None:
    with pytest.raises(ValueError, match="at least 2 values, got 1"):
        RunningMoments(5).take(torch.ones(1, 5))


@given(seed=st.integers(0, 10_000), limit=st.floats(0.5, 6.0))
def test_standardised_columns_have_mean_zero_and_variance_one_before_the_clip(
    seed: int, limit: float
) -> None:
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(rng.normal(size=3) * 10, [0.5, 2.0, 30.0], size=(400, 3)))
    moments = x.mean(0), x.var(0, correction=0)
    free = standardised(x, *moments, float("inf")).numpy()
    assert np.allclose(free.mean(0), 0, atol=1e-9) and np.allclose(free.var(0), 1, rtol=1e-4)
    clipped = standardised(x, *moments, limit).numpy()
    assert np.array_equal(clipped, free.clip(-limit, limit))


def test_a_column_that_never_varies_is_standardised_to_zero() -> None:
    x = torch.full((4, 1), 7.0)
    assert torch.equal(standardised(x, x.mean(0), x.var(0), 5.0), torch.zeros(4, 1))
