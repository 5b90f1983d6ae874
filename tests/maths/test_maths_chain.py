"""What each reading of the shaping term makes an agent want, on a chain without reward (exact policy iteration)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from teb.maths.shaping import Shaping, end_discount, shaping_term, summed_shaping

STATES, ANCHOR = 41, 20
MOVES = np.array([-1, 0, 1])


def moved(states: np.ndarray, actions: np.ndarray) -> np.ndarray:
    return np.clip(states + MOVES[actions], 0, STATES - 1)


def potential(states: np.ndarray, actions: np.ndarray | None) -> np.ndarray:
    """Distance to the anchor, of the state or of what the action leads to."""
    return 0.1 * np.abs((states if actions is None else moved(states, actions)) - ANCHOR)


def action_values(policy: np.ndarray, gamma: float, n: int, kind: Shaping, replayed: bool) -> np.ndarray:
    """Exact Q of an on-policy n-step critic that learns from the shaping term alone, [states, moves]."""
    state, action = (x.ravel() for x in np.meshgrid(np.arange(STATES), np.arange(3), indexing="ij"))
    path, actions = [state], [action]
    for _ in range(n):
        path.append(moved(path[-1], actions[-1]))
        actions.append(policy[path[-1]])
    # With a replayed action the start has Phi(s, a), and the end Phi(s', pi(s')).
    start = [potential(s, a if replayed else None) for s, a in zip(path, actions, strict=True)]
    end = [potential(s, policy[s] if replayed else None) for s in path]
    if kind == "sum":
        starts, ends = torch.from_numpy(np.array(start[:n]).T), torch.from_numpy(np.array(end[1:]).T)
        bonus = summed_shaping(starts, ends, gamma).numpy()
    else:
        factor = end_discount(kind, gamma, n)
        bonus = shaping_term(torch.from_numpy(start[0]), torch.from_numpy(end[-1]), factor).numpy()
    own = action == policy[state]
    leads = np.zeros((STATES, STATES))
    leads[state[own], path[-1][own]] = 1.0
    value = np.linalg.solve(np.eye(STATES) - gamma**n * leads, bonus[own])
    return (bonus + gamma**n * value[path[-1]]).reshape(STATES, 3)


def optimum(gamma: float, n: int, kind: Shaping, replayed: bool, seed: int) -> tuple[float, float]:
    """Mean move away from the anchor (-1 to 1) and the largest gap between actions, after policy iteration."""
    policy = np.random.default_rng(seed).integers(3, size=STATES)
    start = policy
    q = action_values(policy, gamma, n, kind, replayed)
    for _ in range(100):
        better = q.max(1) > q[np.arange(STATES), policy] + 1e-9
        if not better.any():
            break
        policy = np.where(better, q.argmax(1), policy)
        q = action_values(policy, gamma, n, kind, replayed)
    away = MOVES[policy] * np.sign(np.arange(STATES) - ANCHOR)
    gap = float((q.max(1) - q.min(1)).max())
    assert gap > 1e-6 or bool((policy == start).all())
    return float(away[np.arange(STATES) != ANCHOR].mean()), gap


GAMMAS = pytest.mark.parametrize("gamma", [0.97, 0.99])
SEEDS = pytest.mark.parametrize("seed", [0, 1])


@GAMMAS
@SEEDS
@pytest.mark.parametrize(
    ("n", "kind"), [(1, "one"), (1, "window_gamma"), (3, "window_gamma_n"), (3, "sum"), (2, "window_gamma_n")]
)
def test_exact_shaping_by_the_state_leaves_all_actions_equal(
    gamma: float, seed: int, n: int, kind: Shaping
) -> None:
    _, gap = optimum(gamma, n, kind, False, seed)
    assert gap == pytest.approx(0.0, abs=1e-9)


@GAMMAS
@SEEDS
def test_printed_gamma_on_windows_of_three_drives_away_from_the_anchor(gamma: float, seed: int) -> None:
    away, gap = optimum(gamma, 3, "window_gamma", False, seed)
    assert 0.55 <= away <= 0.95
    assert 0.02 <= gap <= 0.065


@GAMMAS
@SEEDS
@pytest.mark.parametrize(("n", "kind"), [(1, "one"), (3, "window_gamma_n"), (3, "window_gamma")])
def test_replayed_action_in_the_potential_drives_toward_the_anchor(
    gamma: float, seed: int, n: int, kind: Shaping
) -> None:
    away, gap = optimum(gamma, n, kind, True, seed)
    assert away <= -0.8
    assert gap == pytest.approx(0.2, abs=0.03)
