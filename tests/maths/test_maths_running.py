from __future__ import annotations

import numpy as np
import pytest
import torch

from teb.maths.running import updated_moments
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
