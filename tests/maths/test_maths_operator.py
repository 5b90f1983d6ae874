"""The tabular operator on small finite decision processes, with exact optimal transport from POT."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import ot
import pytest
import torch

from teb.maths.bisimulation import RewardDifferential, metric_target, reward_differential

Operator = Callable[[np.ndarray], np.ndarray]


def w1(cost: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """W1 with ground cost `cost` between all rows of a transition kernel."""
    states = len(kernel)
    found = np.zeros((states, states))
    for i in range(states):
        for j in range(states):
            found[i, j] = ot.emd2(kernel[i], kernel[j], np.ascontiguousarray(cost))
    return found


def operator(delta: np.ndarray, kernel: np.ndarray, c_r: float, c_t: float) -> Operator:
    return lambda d: metric_target(torch.from_numpy(delta), torch.from_numpy(w1(d, kernel)), c_r, c_t).numpy()


def fixed_point(apply: Operator, start: np.ndarray, applications: int) -> np.ndarray:
    for _ in range(applications):
        start = apply(start)
    return start


def kernel_of(rng: np.random.Generator, states: int) -> np.ndarray:
    return rng.dirichlet(np.full(states, 0.5), size=states)


def differential(means: np.ndarray, sigmas: np.ndarray, kind: RewardDifferential) -> np.ndarray:
    mean, sigma = torch.from_numpy(means), torch.from_numpy(sigmas)
    noise = torch.zeros_like(mean)
    every = (mean[:, None], sigma[:, None], mean[None], sigma[None], noise[:, None], noise[None])
    return reward_differential(*every, kind=kind).numpy()


@pytest.mark.parametrize("c_t", [0.5, 0.9])
def test_operator_contracts_by_its_transition_weight(c_t: float) -> None:
    rng = np.random.default_rng(0)
    kernel, delta = kernel_of(rng, 5), rng.uniform(0, 1, (5, 5))
    apply = operator(delta, kernel, 1.0, c_t)
    for _ in range(10):
        left, right = rng.uniform(0, 3, (2, 5, 5))
        before = np.abs(left - right).max()
        assert np.abs(apply(left) - apply(right)).max() <= c_t * before + 1e-9


def test_operator_reaches_one_fixed_point_from_two_starts() -> None:
    rng = np.random.default_rng(1)
    kernel = kernel_of(rng, 4)
    delta = differential(rng.normal(size=4), rng.uniform(0.1, 0.5, 4), "folded")
    apply = operator(delta, kernel, 1.0, 0.8)
    low = fixed_point(apply, np.zeros((4, 4)), 90)
    high = fixed_point(apply, rng.uniform(0, 50, (4, 4)), 90)
    assert np.allclose(low, high, atol=1e-5)
    assert np.allclose(apply(low), low, atol=1e-6)
    assert np.allclose(low, low.T, atol=1e-6)


def test_independent_noise_makes_all_states_of_a_ring_equally_far() -> None:
    ring = np.roll(np.eye(6), 1, axis=1)
    delta = differential(np.zeros(6), np.full(6, 0.5), "folded")
    d = fixed_point(operator(delta, ring, 1.0, 0.97), np.full((6, 6), 18.0), 250)
    assert np.allclose(d, 18.806, atol=2e-3)


def test_sigma_at_its_floor_sets_the_scale_of_the_fixed_point() -> None:
    ring = np.roll(np.eye(6), 1, axis=1)
    delta = differential(np.zeros(6), np.full(6, 1e-4), "folded")
    assert delta[0, 1] == pytest.approx(1.128e-4, rel=1e-3)
    d = fixed_point(operator(delta, ring, 1.0, 0.97), np.zeros((6, 6)), 250)
    assert d.mean() == pytest.approx(3.76e-3, rel=2e-2)


def value_gaps_and_metrics(weight: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """|V(s_i) - V(s_j)| and the metric of the exact operator with reward weight `weight`, on random processes."""
    rng, gamma = np.random.default_rng(2), 0.8
    found = []
    for _ in range(6):
        kernel, reward = kernel_of(rng, 4), rng.normal(size=4)
        value = np.linalg.solve(np.eye(4) - gamma * kernel, reward)
        delta = differential(reward, np.zeros(4), "mean")
        d = fixed_point(operator(delta, kernel, weight, gamma), np.zeros((4, 4)), 60)
        found.append((np.abs(value[:, None] - value[None]), d))
    return found


def test_exact_metric_bounds_differences_of_value() -> None:
    for gap, d in value_gaps_and_metrics(1.0):
        assert bool((gap <= d + 1e-4).all())


def test_a_small_reward_weight_breaks_the_value_bound() -> None:
    assert any(bool((gap > d + 1e-2).any()) for gap, d in value_gaps_and_metrics(0.1))
