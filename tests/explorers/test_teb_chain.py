"""What each reading of TEB makes an agent want on a chain without reward, with exact models and an exact critic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from explorer_setup import generator
from torch import Tensor

from teb.agents.protocol import Batch, Policy, Shapes
from teb.explorers.teb import Anchor, Teb, TebConfig
from teb.nets.metric import Prediction

STATES, ANCHOR = 41, 20


def moved(state: Tensor, action: Tensor) -> Tensor:
    return (state + action).clamp(0, STATES - 1)


class ChainTeb(Teb):
    """The explorer with the chain's own dynamics for a model, and an anchor in the middle."""

    def predict(self, latent: Tensor, action: Tensor) -> Prediction:
        zero = torch.zeros_like(latent)
        return Prediction(zero, zero, moved(latent, action), zero)

    def anchor(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Anchor:
        return Anchor(torch.zeros(1, 1), torch.full((1, 1), float(ANCHOR)), torch.zeros(1, 1))


def action_values(explorer: Teb, policy: np.ndarray, gamma: float, n: int) -> np.ndarray:
    """Exact Q of an on-policy n-step critic that learns from the bonus alone, [states, moves -1, 0, 1]."""
    choose = torch.from_numpy(policy).float() - 1

    def act(obs: Tensor, skill: Tensor, rng: torch.Generator | None) -> Tensor:
        return choose[obs.long()]

    obs, action = (
        x.reshape(-1, 1) for x in torch.meshgrid(torch.arange(41.0), torch.arange(-1.0, 2), indexing="ij")
    )
    path, actions = [obs], [action]
    for _ in range(n):
        path.append(moved(path[-1], actions[-1]))
        actions.append(choose[path[-1].long()])
    zeros = torch.zeros_like(obs)
    window_obs, window_action = torch.stack(path, 1), torch.stack(actions, 1)
    batch = Batch(
        obs, action, zeros, zeros + gamma**n, path[-1], zeros.expand(-1, 3), window_obs, window_action,
        zeros[:, :0], obs[:1],
    )  # fmt: skip
    bonus = explorer.reward(batch, act, generator())[0].squeeze(1).double().numpy()
    start, end = obs.long().squeeze(1).numpy(), path[-1].long().squeeze(1).numpy()
    own = action.squeeze(1).long().numpy() + 1 == policy[start]
    leads = np.zeros((STATES, STATES))
    leads[start[own], end[own]] = 1.0
    value = np.linalg.solve(np.eye(STATES) - gamma**n * leads, bonus[own])
    return (bonus + gamma**n * value[end]).reshape(STATES, 3)


def optimum(gamma: float, n: int, seed: int, **options: Any) -> tuple[float, float]:
    """Mean move away from the anchor and the largest gap between actions, after policy iteration."""
    config = TebConfig(models="none", c_t=0.1, **options)
    explorer = ChainTeb(config, Shapes(1, 1), gamma=gamma, n_step=n)
    every = np.arange(STATES)
    policy = np.random.default_rng(seed).integers(3, size=STATES)
    q = action_values(explorer, policy, gamma, n)
    for _ in range(60):
        better = q.max(1) > q[every, policy] + 1e-4
        if not better.any():
            break
        policy = np.where(better, q.argmax(1), policy)
        q = action_values(explorer, policy, gamma, n)
    away = (policy - 1) * np.sign(every - ANCHOR)
    return float(away[every != ANCHOR].mean()), float((q.max(1) - q.min(1)).max())


@pytest.mark.parametrize("gamma", [0.97, 0.99])
@pytest.mark.parametrize(("n", "shaping"), [(1, "one"), (3, "window_gamma_n"), (3, "sum")])
def test_exact_shaping_at_the_policy_s_action_leaves_all_actions_equal(
    gamma: float, n: int, shaping: str
) -> None:
    _, gap = optimum(gamma, n, 0, shaping=shaping, phi_action="policy")
    assert gap < 2e-4


@pytest.mark.parametrize("gamma", [0.97, 0.99])
def test_default_reading_drives_away_from_the_anchor(gamma: float) -> None:
    away, gap = optimum(gamma, 3, 0)
    assert away > 0.5
    assert 0.015 < gap < 0.08


@pytest.mark.parametrize("gamma", [0.97, 0.99])
@pytest.mark.parametrize(("n", "shaping"), [(1, "one"), (3, "window_gamma_n"), (3, "window_gamma")])
def test_literal_action_rule_drives_toward_the_anchor(gamma: float, n: int, shaping: str) -> None:
    away, gap = optimum(gamma, n, 0, shaping=shaping, phi_action="replay_policy")
    assert away < -0.75
    assert gap == pytest.approx(0.2, abs=0.03)
