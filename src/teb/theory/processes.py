"""Finite decision processes: named ones, random ones, and what is exact about each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from teb.maths.exact_mdp import (
    SelfPairs,
    mean_differential,
    policy_kernel,
    policy_reward,
    predictive_differential,
    state_values,
)
from teb.maths.fixed_point import Solution, solve_metric, solve_mico

Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Process:
    """A finite decision process, a policy, and a Gaussian reward predictor; all per state and action."""

    transitions: Floats
    """P(s' | s, a), [S, A, S]."""
    rewards: Floats
    """r(s, a), [S, A]."""
    policy: Floats
    """pi(a | s), [S, A]."""
    reward_mean: Floats
    """mu(s, a) of the predictor; unbiased if equal to `rewards`, [S, A]."""
    reward_sigma: Floats
    """sigma(s, a) of the predictor, [S, A]."""

    @property
    def states(self) -> int:
        """S."""
        return len(self.rewards)

    @cached_property
    def kernel(self) -> Floats:
        """P^pi, [S, S]."""
        return policy_kernel(self.transitions, self.policy)

    @cached_property
    def reward(self) -> Floats:
        """r^pi, [S]."""
        return policy_reward(self.rewards, self.policy)

    def values(self, gamma: float) -> Floats:
        """V^pi, [S]."""
        return state_values(self.kernel, self.reward, gamma)

    def delta(self, self_pairs: SelfPairs = "independent") -> Floats:
        """The predictive reward differential (TEB eq. 6), [S, S]."""
        return predictive_differential(self.reward_mean, self.reward_sigma, self.policy, self_pairs)

    def classical(self, c_r: float, c_t: float, tolerance: float = 1e-9) -> Solution:
        """The pi-bisimulation metric (TEB eq. 2)."""
        return solve_metric(mean_differential(self.reward), self.kernel, c_r, c_t, tolerance)

    def predictive(
        self, c_r: float, c_t: float, self_pairs: SelfPairs = "independent", tolerance: float = 1e-9
    ) -> Solution:
        """The fixed point of the predictive operator (TEB eq. 5)."""
        return solve_metric(self.delta(self_pairs), self.kernel, c_r, c_t, tolerance)

    def mico(self, c_r: float, c_t: float) -> Solution:
        """MICo (Castro et al. 2021)."""
        return solve_mico(self.reward, self.kernel, c_r, c_t)

    def with_sigma(self, sigma: float) -> Process:
        """The same with one deviation of the predictor everywhere."""
        return replace(self, reward_sigma=np.full_like(self.rewards, sigma))


def chain_of(kernel: Floats, reward: Floats, sigma: float) -> Process:
    """A process with one action: a Markov chain with rewards, and an unbiased predictor."""
    rewards = reward[:, None]
    return Process(kernel[:, None, :], rewards, np.ones_like(rewards), rewards, np.full_like(rewards, sigma))


def random_process(
    rng: np.random.Generator, states: int, actions: int, branching: int, sigma: float
) -> Process:
    """Random successors with Dirichlet(1) masses, normal rewards, a Dirichlet(1) policy, an unbiased predictor."""
    transitions = np.zeros((states, actions, states))
    for s in range(states):
        for a in range(actions):
            reached = rng.choice(states, min(branching, states), replace=False)
            transitions[s, a, reached] = rng.dirichlet(np.ones(len(reached)))
    rewards = rng.normal(size=(states, actions))
    policy = rng.dirichlet(np.ones(actions), size=states)
    return Process(transitions, rewards, policy, rewards, np.full_like(rewards, sigma))


def ring(states: int, sigma: float) -> Process:
    """States in a circle, each leads to the next, without reward (reading of the paper, T-3)."""
    return chain_of(np.roll(np.eye(states), 1, axis=1), np.zeros(states), sigma)


def lazy_ring(states: int, sigma: float) -> Process:
    """The circle where a state stays with probability 0.3, so that paths can be coupled to meet."""
    kernel = 0.3 * np.eye(states) + 0.7 * np.roll(np.eye(states), 1, axis=1)
    return chain_of(kernel, np.zeros(states), sigma)


def fork(sigma: float) -> Process:
    """Four deterministic states: 0 and 1 stay, 2 leads to 3, where the only reward (1) is, and 3 leads to 0."""
    kernel = np.eye(4)[[0, 1, 3, 0]]
    return chain_of(kernel, np.array([0.0, 0.0, 0.0, 1.0]), sigma)


def two_rooms(sigma: float) -> Process:
    """Two states that never change, one with reward 1: it attains the bound of lemma 3.1."""
    return chain_of(np.eye(2), np.array([0.0, 1.0]), sigma)


def grid(width: int, sigma: float) -> Process:
    """A square of cells, four moves under a uniform policy, reward 1 in one corner; walls hold back."""
    cells = [(x, y) for x in range(width) for y in range(width)]
    transitions = np.zeros((len(cells), 4, len(cells)))
    for s, (x, y) in enumerate(cells):
        for a, (dx, dy) in enumerate([(1, 0), (-1, 0), (0, 1), (0, -1)]):
            across, up = min(max(x + dx, 0), width - 1), min(max(y + dy, 0), width - 1)
            transitions[s, a, across * width + up] = 1.0
    rewards = np.zeros((len(cells), 4))
    rewards[-1] = 1.0
    return Process(transitions, rewards, np.full_like(rewards, 0.25), rewards, np.full_like(rewards, sigma))
