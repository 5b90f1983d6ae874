"""What each reading of the shaping term makes an agent want, on a chain without reward (exact policy iteration)."""

from __future__ import annotations

import numpy as np
import pytest

from teb.maths.shaping import Shaping
from teb.theory import chain


def optimum(gamma: float, n: int, kind: Shaping, replayed: bool, seed: int) -> tuple[float, float]:
    """Mean move away from the anchor (-1 to 1) and the largest gap between actions, after policy iteration."""
    policy, q = chain.optimum(gamma, n, kind, replayed, seed)
    away, gap = chain.direction(policy, q)
    start = np.random.default_rng(seed).integers(3, size=chain.STATES)
    assert gap > 1e-6 or bool((policy == start).all())
    return away, gap


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
