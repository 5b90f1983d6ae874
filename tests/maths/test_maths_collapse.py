"""Without reward, what the reward differential is decides whether a learned metric collapses to a point."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from teb.maths.bisimulation import (
    bisim_loss,
    metric_target,
    pair_indices,
    reward_differential,
    transition_distance,
)
from teb.maths.distances import latent_distance


def variance_ratio(sigma: float | None, updates: int = 250) -> float:
    """Latent variance after training over that before; without `sigma` the differential is the environment's, 0."""
    rng = torch.Generator().manual_seed(0)
    cpu = torch.device("cpu")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 6))
    states = torch.randn(128, 16, generator=rng)
    following = torch.randperm(128, generator=rng)
    optimiser = torch.optim.Adam(encoder.parameters(), lr=3e-3)
    before = float(encoder(states).detach().var(0).mean())
    zeros = torch.zeros(64)
    for _ in range(updates):
        rows = torch.randint(128, (64,), generator=rng)
        latent, successor = encoder(states[rows]), encoder(states[following[rows]]).detach()
        i, j = pair_indices(64, "perm", rng, cpu)
        if sigma is None:
            delta = zeros
        else:
            spread, noise = torch.full((64,), sigma), torch.randn(64, generator=rng)
            delta = reward_differential(zeros, spread, zeros, spread, noise[i], noise[j], "sample")
        points = torch.zeros_like(successor)
        target = metric_target(
            delta, transition_distance(successor[i], points, successor[j], points), 1.0, 0.9
        )
        loss = bisim_loss(latent_distance(latent[i], latent[j]), target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return float(encoder(states).detach().var(0).mean()) / before


def test_target_of_environment_rewards_collapses_without_reward() -> None:
    assert variance_ratio(None) < 0.05


def test_sampled_target_with_a_fixed_sigma_does_not_collapse() -> None:
    assert variance_ratio(0.5) > 1.0


def test_sampled_target_with_sigma_at_its_floor_collapses_again() -> None:
    floor, none = variance_ratio(1e-4), variance_ratio(None)
    assert floor < 0.05
    assert floor == pytest.approx(none, rel=0.5)
