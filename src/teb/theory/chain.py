"""What each reading of the shaping term makes an agent want, on a chain without reward (exact policy iteration).

41 states, the anchor in the middle, Phi = 0.1 |s - anchor|, moves -1, 0, 1, an on-policy n-step critic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from teb.maths.shaping import Shaping, end_discount, shaping_term, summed_shaping

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.int64]

STATES, ANCHOR = 41, 20
MOVES = np.array([-1, 0, 1])


def moved(states: Ints, actions: Ints) -> Ints:
    """Where the moves lead; the ends hold back."""
    return np.clip(states + MOVES[actions], 0, STATES - 1)


def potential(states: Ints, actions: Ints | None) -> Floats:
    """Distance to the anchor, of the state or of what the action leads to."""
    return 0.1 * np.abs((states if actions is None else moved(states, actions)) - ANCHOR)


def action_values(policy: Ints, gamma: float, n: int, kind: Shaping, replayed: bool) -> Floats:
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


def optimum(gamma: float, n: int, kind: Shaping, replayed: bool, seed: int) -> tuple[Ints, Floats]:
    """The policy that policy iteration ends in from a random one, [states], and its action values [states, moves]."""
    policy = np.random.default_rng(seed).integers(3, size=STATES)
    q = action_values(policy, gamma, n, kind, replayed)
    for _ in range(100):
        better = q.max(1) > q[np.arange(STATES), policy] + 1e-9
        if not better.any():
            break
        policy = np.where(better, q.argmax(1), policy)
        q = action_values(policy, gamma, n, kind, replayed)
    return policy, q


def direction(policy: Ints, q: Floats) -> tuple[float, float]:
    """Mean move away from the anchor (-1 to 1), and the largest gap between actions."""
    away = MOVES[policy] * np.sign(np.arange(STATES) - ANCHOR)
    return float(away[np.arange(STATES) != ANCHOR].mean()), float((q.max(1) - q.min(1)).max())
