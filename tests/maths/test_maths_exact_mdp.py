"""Averages, values and reward differentials of finite processes against other ways to compute them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from teb.maths.exact_mdp import (
    mean_differential,
    n_step_reward,
    optimal_action_values,
    policy_kernel,
    policy_reward,
    predictive_differential,
    state_values,
)


def process(seed: int, states: int = 4, actions: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.ones(states), (states, actions))
    return transitions, rng.normal(size=(states, actions)), rng.dirichlet(np.ones(actions), states)


def test_values_are_what_rollouts_of_the_chain_sum_to() -> None:
    transitions, rewards, policy = process(0)
    kernel, reward = policy_kernel(transitions, policy), policy_reward(rewards, policy)
    assert np.allclose(kernel.sum(1), 1.0)
    s, total = 2, np.zeros(())
    mass = np.eye(4)[s]
    for t in range(600):
        total = total + 0.95**t * sum(
            mass[x] * policy[x, a] * rewards[x, a] for x in range(4) for a in range(3)
        )
        mass = np.einsum("s,sa,sat->t", mass, policy, transitions)
    assert state_values(kernel, reward, 0.95)[s] == pytest.approx(float(total), abs=1e-9)


def test_n_step_reward_is_the_value_less_its_tail() -> None:
    transitions, rewards, policy = process(1)
    kernel, reward = policy_kernel(transitions, policy), policy_reward(rewards, policy)
    value = state_values(kernel, reward, 0.9)
    tail = 0.9**3 * np.linalg.matrix_power(kernel, 3) @ value
    assert np.allclose(n_step_reward(kernel, reward, 0.9, 3), value - tail)
    assert np.allclose(n_step_reward(kernel, reward, 0.9, 1), reward)


@given(st.integers(0, 1000))
@settings(max_examples=20)
def test_optimal_action_values_satisfy_the_bellman_equation_and_beat_every_policy(seed: int) -> None:
    transitions, rewards, policy = process(seed)
    q = optimal_action_values(transitions, rewards, 0.9)
    assert np.allclose(q, rewards + 0.9 * transitions @ q.max(1), atol=1e-9)
    value = state_values(policy_kernel(transitions, policy), policy_reward(rewards, policy), 0.9)
    assert (q.max(1) >= value - 1e-9).all()


def test_predictive_differential_is_the_expectation_over_actions_and_draws() -> None:
    rng = np.random.default_rng(3)
    mean, sigma, policy = rng.normal(size=(3, 2)), rng.uniform(0.2, 1.0, (3, 2)), rng.dirichlet([1, 1], 3)
    wanted, grid = 0.0, np.linspace(-8, 8, 801)
    apart = np.abs(grid[:, None] - grid[None])
    for a in range(2):
        for b in range(2):
            one, other = norm.pdf(grid, mean[0, a], sigma[0, a]), norm.pdf(grid, mean[2, b], sigma[2, b])
            wanted += policy[0, a] * policy[2, b] * float(one @ apart @ other) * (grid[1] - grid[0]) ** 2
    assert predictive_differential(mean, sigma, policy)[0, 2] == pytest.approx(wanted, abs=1e-4)


def test_self_pairs_draw_twice_or_once() -> None:
    zero = np.zeros((3, 1))
    delta = predictive_differential(zero, zero + 0.5, zero + 1.0)
    assert np.allclose(delta, 1.1283791670955126 * 0.5)
    shared = predictive_differential(zero, zero + 0.5, zero + 1.0, "shared")
    assert np.allclose(np.diag(shared), 0.0)
    assert np.allclose(shared[0, 1], delta[0, 1])


def test_without_noise_one_action_gives_the_classical_differential_and_several_more_than_that() -> None:
    _, rewards, policy = process(4)
    one = np.eye(3)[[0, 2, 1, 1]]
    zero = np.zeros_like(rewards)
    assert np.allclose(
        predictive_differential(rewards, zero, one), mean_differential(policy_reward(rewards, one))
    )
    apart = predictive_differential(rewards, zero, policy) - mean_differential(policy_reward(rewards, policy))
    assert (apart > 1e-3).all()


def test_many_pairs_are_computed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    _, rewards, policy = process(5, states=7)
    whole = predictive_differential(rewards, np.abs(rewards), policy)
    monkeypatch.setattr("teb.maths.exact_mdp._PAIRS_AT_ONCE", 150)
    assert np.array_equal(predictive_differential(rewards, np.abs(rewards), policy), whole)
