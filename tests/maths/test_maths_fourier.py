from __future__ import annotations

import numpy as np
import torch

from teb.maths.exact_mdp import policy_kernel, policy_reward, state_values
from teb.maths.fourier import fourier_features


def test_every_pair_lies_on_the_circle() -> None:
    angles = 10 * torch.randn(30, 512, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sines, cosines = fourier_features(angles).chunk(2, -1)
    assert np.allclose(sines.square() + cosines.square(), 1.0)
    assert np.allclose(sines, np.sin(angles.numpy())) and np.allclose(cosines, np.cos(angles.numpy()))


def units(rng: np.random.Generator, *shape: int) -> np.ndarray:
    drawn = rng.normal(size=shape)
    return drawn / np.linalg.norm(drawn, axis=-1, keepdims=True)


def test_on_unit_vectors_their_product_is_the_exponential_of_the_inner_product() -> None:
    rng = np.random.default_rng(0)
    x = units(rng, 20, 6)
    weight = rng.normal(size=(6, 50_000))
    features = fourier_features(torch.from_numpy(x @ weight)).numpy()
    assert np.allclose(features @ features.T / 50_000, np.exp(x @ x.T - 1.0), atol=0.03)


def mdp(kernel: np.ndarray, reward: np.ndarray, actions: int) -> np.ndarray:
    """Q of a random policy, [S * A], from P(s' | s, a) [S * A, S] and r [S * A]."""
    states, gamma = kernel.shape[1], 0.97
    policy = np.random.default_rng(9).dirichlet(np.ones(actions), states)
    transitions, rewards = kernel.reshape(states, actions, states), reward.reshape(states, actions)
    values = state_values(policy_kernel(transitions, policy), policy_reward(rewards, policy), gamma)
    return (rewards + gamma * transitions @ values).reshape(-1)


def unexplained(features: np.ndarray, values: np.ndarray) -> float:
    """What least squares leaves of the values' variance."""
    weights = np.linalg.lstsq(features, values, rcond=None)[0]
    return float(np.var(values - features @ weights) / np.var(values))


def test_values_of_a_linear_mdp_are_linear_in_its_features() -> None:
    rng = np.random.default_rng(1)
    states, actions, width = 12, 3, 4
    phi, mu = rng.dirichlet(np.ones(width), states * actions), rng.dirichlet(np.ones(states), width)
    values = mdp(phi @ mu, phi @ rng.normal(size=width), actions)
    assert unexplained(phi, values) < 1e-20
    assert unexplained(phi[:, 1:], values) > 1e-3


def test_values_of_an_energy_based_mdp_are_linear_in_fourier_features_of_its_phi() -> None:
    """P(s' | s, a) = p(s') exp(phi^T mu(s')): what the normalisation leaves is a sum of exponentials of phi."""
    rng = np.random.default_rng(2)
    states, actions, width = 150, 3, 3
    phi, mu = units(rng, states * actions, width), rng.normal(size=(states, width))
    kernel = np.exp(phi @ mu.T)
    normaliser = kernel.sum(1, keepdims=True)
    values = mdp(kernel / normaliser, np.exp(phi @ rng.normal(size=width)) / normaliser[:, 0], actions)
    weight = rng.normal(size=(width, 40))
    assert unexplained(phi, values) > 0.01
    assert unexplained(fourier_features(torch.from_numpy(phi @ weight)).numpy(), values) < 1e-4
