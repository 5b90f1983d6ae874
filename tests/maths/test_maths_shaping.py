from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from teb.maths.shaping import Shaping, end_discount, n_step_sum, shaping_term, summed_shaping

gammas = st.floats(0.0, 0.999)


@given(
    seed=st.integers(0, 10_000),
    gamma=gammas,
    batch=st.integers(1, 6),
    n=st.integers(1, 6),
    more=st.integers(0, 3),
)
def test_n_step_sum_is_that_of_a_loop(seed: int, gamma: float, batch: int, n: int, more: int) -> None:
    rewards = np.random.default_rng(seed).normal(size=(batch, n + more))
    found = n_step_sum(torch.from_numpy(rewards), gamma, n)
    expected = [[sum(row[k] * gamma**k for k in range(n))] for row in rewards]
    assert found.shape == (batch, 1)
    assert np.allclose(found.numpy(), expected, atol=1e-12)


def test_n_step_sum_of_three_rewards_by_hand() -> None:
    assert float(n_step_sum(torch.tensor([[1.0, 2.0, 4.0, 100.0]]), 0.5, 3)) == pytest.approx(3.0)


def test_n_step_sum_refuses_too_few_rewards() -> None:
    with pytest.raises(ValueError, match="3 rewards wanted, 2 given"):
        n_step_sum(torch.zeros(4, 2), 0.9, 3)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("window_gamma", 0.9),
        ("window_gamma_n", 0.729),
        ("sum", 0.729),
        ("one", 0.9),
        ("first_step", 0.9),
    ],
)
def test_factor_of_the_potential_at_the_end_of_a_window_of_three(kind: Shaping, expected: float) -> None:
    assert end_discount(kind, 0.9, 3) == pytest.approx(expected)


def test_all_kinds_agree_on_windows_of_one_step() -> None:
    assert {end_discount(kind, 0.9, 1) for kind in get_args(Shaping)} == {0.9}


def test_shaping_term_by_hand_and_its_signs() -> None:
    phi, phi_end = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 1.0])
    assert shaping_term(phi, phi_end, 0.5).tolist() == pytest.approx([0.5, -1.5])


def test_shaping_term_refuses_shapes_that_would_broadcast() -> None:
    with pytest.raises(ValueError, match=r"\(4, 1\).*\(4,\)"):
        shaping_term(torch.zeros(4, 1), torch.zeros(4), 0.9)


@given(seed=st.integers(0, 10_000), gamma=gammas, n=st.integers(1, 8))
def test_summed_shaping_is_that_of_a_loop(seed: int, gamma: float, n: int) -> None:
    start, end = np.random.default_rng(seed).normal(size=(2, 5, n))
    found = summed_shaping(torch.from_numpy(start), torch.from_numpy(end), gamma)
    expected = [
        sum(gamma**i * (gamma * e[i] - s[i]) for i in range(n)) for s, e in zip(start, end, strict=True)
    ]
    assert found.shape == (5,)
    assert np.allclose(found.numpy(), expected, atol=1e-12)


@given(seed=st.integers(0, 10_000), gamma=gammas, n=st.integers(1, 8))
def test_summed_shaping_telescopes_for_a_potential_of_the_state(seed: int, gamma: float, n: int) -> None:
    phi = np.random.default_rng(seed).normal(size=(5, n + 1))
    found = summed_shaping(torch.from_numpy(phi[:, :-1]), torch.from_numpy(phi[:, 1:]), gamma).numpy()
    assert np.allclose(found, gamma**n * phi[:, -1] - phi[:, 0], atol=1e-6)
    window = shaping_term(
        torch.from_numpy(phi[:, 0]), torch.from_numpy(phi[:, -1]), end_discount("window_gamma_n", gamma, n)
    )
    assert np.allclose(found, window.numpy(), atol=1e-6)


def test_printed_gamma_on_a_longer_window_pays_a_distance_bonus_over_exact_shaping() -> None:
    phi, end = torch.rand(2, 32, generator=torch.Generator().manual_seed(0))
    literal = shaping_term(phi, end, end_discount("window_gamma", 0.97, 3))
    exact = shaping_term(phi, end, end_discount("window_gamma_n", 0.97, 3))
    assert torch.allclose(literal - exact, 0.0573 * end, atol=1e-4)
