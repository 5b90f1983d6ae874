"""Finite decision processes with a fixed policy: averages, values, and reward differentials, all exact.

Shapes: transitions [S, A, S], rewards, policy, predicted means and deviations [S, A], a policy's kernel [S, S].
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from teb.maths.gaussian import folded_normal_mean

Floats = npt.NDArray[np.floating[Any]]
SelfPairs = Literal["independent", "shared"]

_PAIRS_AT_ONCE = 4_000_000


def policy_kernel(transitions: Floats, policy: Floats) -> Floats:
    """P^pi(s' | s) = sum_a pi(a | s) P(s' | s, a), [S, S] (TEB theorem 2.1)."""
    return np.einsum("sa,sat->st", policy, transitions)


def policy_reward(rewards: Floats, policy: Floats) -> Floats:
    """r^pi(s) = sum_a pi(a | s) r(s, a), [S] (TEB theorem 2.1)."""
    return (policy * rewards).sum(1)


def state_values(kernel: Floats, reward: Floats, gamma: float) -> Floats:
    """V^pi = (I - gamma P^pi)^-1 r^pi, [S] (TEB eq. 1)."""
    return np.linalg.solve(np.eye(len(kernel)) - gamma * kernel, reward)


def n_step_reward(kernel: Floats, reward: Floats, gamma: float, n: int) -> Floats:
    """E[sum_{k<n} gamma^k r_{t+k} | s_t = s], [S]: what TEB's reward predictor regresses (after eq. 8)."""
    total, ahead = np.zeros_like(reward), reward
    for k in range(n):
        total = total + gamma**k * ahead
        ahead = kernel @ ahead
    return total


def optimal_action_values(transitions: Floats, rewards: Floats, gamma: float) -> Floats:
    """Q* by policy iteration, [S, A]; `rewards` are [S, A], the expectation over s' where they depend on it."""
    every = np.arange(len(rewards))
    policy = rewards.argmax(1)
    for _ in range(10 * rewards.size):
        value = state_values(transitions[every, policy], rewards[every, policy], gamma)
        q = rewards + gamma * transitions @ value
        better = q.max(1) > q[every, policy] + 1e-12 * max(1.0, float(np.abs(q).max()))
        if not better.any():
            return q
        policy = np.where(better, q.argmax(1), policy)
    raise ValueError("optimal_action_values: policy iteration did not end")


def mean_differential(reward: Floats) -> Floats:
    """|r^pi_i - r^pi_j|, [S, S]: the reward term of the classical metric (TEB eq. 2)."""
    return np.abs(reward[:, None] - reward[None])


def predictive_differential(
    mean: Floats, sigma: Floats, policy: Floats, self_pairs: SelfPairs = "independent"
) -> Floats:
    """Delta_R of TEB eq. (6), exactly: E_{a_i, a_j ~ pi} E|rhat_i - rhat_j| with Gaussian predictions, [S, S].

    Pairs of different states draw independently. A state paired with itself draws twice (`independent`), which gives
    it a positive distance to itself, or once (`shared`), as one draw per state and a permutation of them do.
    """
    states, actions = mean.shape
    means, sigmas, weight = (torch.as_tensor(x.ravel()) for x in (mean, sigma, policy))
    found = np.empty((states, states))
    rows = max(1, _PAIRS_AT_ONCE // (actions * states * actions))
    for first in range(0, states, rows):
        part = slice(first * actions, (first + rows) * actions)
        expected = folded_normal_mean(
            means[part, None] - means[None], sigmas[part, None].square() + sigmas[None].square()
        )
        weighted = weight[part, None] * expected * weight[None]
        found[first : first + rows] = weighted.view(-1, actions, states, actions).sum((1, 3)).numpy()
    found = (found + found.T) / 2  # the same to rounding; symmetric to the bit
    if self_pairs == "shared":
        np.fill_diagonal(found, 0.0)
    return found
