"""The operators of LIBERTY and EME on small processes, with exact transport, linear algebra and values as oracles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import ot
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from teb.maths.behaviour import (
    diversity_scale,
    effective_target,
    gap_of_means,
    inverse_dynamic_target,
    squared_gap_of_means,
)

STATES, GAMMA = 4, 0.8
Operator = Callable[[np.ndarray], np.ndarray]
seeds = st.integers(0, 10_000)


def process(seed: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Kernel and mean reward of a random process under its policy."""
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(STATES, 0.5), size=STATES), rng.normal(size=STATES), rng


def value_gap(kernel: np.ndarray, reward: np.ndarray) -> np.ndarray:
    value = np.linalg.solve(np.eye(STATES) - GAMMA * kernel, reward)
    return np.abs(value[:, None] - value[None])


def w2(cost: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """W2 with ground distance `cost` between all rows of a kernel."""
    squared = np.ascontiguousarray(np.square(cost))
    plans = [[ot.emd2(p, q, squared) for q in kernel] for p in kernel]
    return np.sqrt(np.maximum(np.array(plans, dtype=float), 0.0))


def liberty(kernel: np.ndarray, reward: np.ndarray, actions: np.ndarray, c_inv: float = GAMMA) -> Operator:
    """The operator on all pairs of states; `actions` are what inverse dynamics see from each."""
    r, a = torch.from_numpy(reward).unsqueeze(1), torch.from_numpy(actions)

    def apply(d: np.ndarray) -> np.ndarray:
        pairs = (r[:, None], r[None], torch.from_numpy(w2(d, kernel)), a[:, None], a[None])
        return inverse_dynamic_target(*pairs, GAMMA, c_inv).numpy()

    return apply


def eme(kernel: np.ndarray, reward: np.ndarray, kl: np.ndarray) -> Operator:
    """The operator on all pairs of states; next states are drawn apart."""
    gap = torch.from_numpy(np.abs(reward[:, None] - reward[None]))
    return lambda d: effective_target(
        gap, torch.from_numpy(kernel @ d @ kernel.T), torch.from_numpy(kl), GAMMA
    ).numpy()


def fixed_point(apply: Operator, start: np.ndarray, applications: int = 80) -> np.ndarray:
    for _ in range(applications):
        start = apply(start)
    return start


def operators(seed: int) -> dict[str, Operator]:
    kernel, reward, rng = process(seed)
    kl = rng.uniform(0, 2, (STATES, STATES))
    return {
        "liberty": liberty(kernel, reward, rng.uniform(-1, 1, (STATES, 2))),
        "eme": eme(kernel, reward, kl),
    }


@pytest.mark.parametrize("name", ["liberty", "eme"])
def test_operator_contracts_by_gamma_and_not_by_less(name: str) -> None:
    shrunk: list[float] = []
    for seed in range(5):
        apply, rng = operators(seed)[name], np.random.default_rng(seed)
        for _ in range(4):
            left, right = rng.uniform(0, 3, (2, STATES, STATES))
            ratio = np.abs(apply(left) - apply(right)).max() / np.abs(left - right).max()
            assert ratio <= GAMMA + 1e-6
        flat = rng.uniform(1, 3, (STATES, STATES))
        shrunk.append(np.abs(apply(flat + 1.0) - apply(flat)).max())
    if name == "eme":  # a constant on top passes through expectations unchanged
        assert shrunk == pytest.approx([GAMMA] * 5)


@pytest.mark.parametrize("name", ["liberty", "eme"])
def test_operator_has_one_fixed_point(name: str) -> None:
    apply = operators(3)[name]
    low, high = (fixed_point(apply, np.full((STATES, STATES), start)) for start in (0.0, 30.0))
    assert np.allclose(low, high, atol=1e-5)
    assert np.allclose(apply(low), low, atol=1e-5)


def test_fixed_point_of_eme_solves_its_linear_equation() -> None:
    kernel, reward, rng = process(5)
    kl = rng.uniform(0, 2, (STATES, STATES))
    constant = np.abs(reward[:, None] - reward[None]) + GAMMA * kl
    exact = np.linalg.solve(np.eye(STATES**2) - GAMMA * np.kron(kernel, kernel), constant.ravel())
    assert np.allclose(
        fixed_point(eme(kernel, reward, kl), np.zeros((STATES, STATES))).ravel(), exact, atol=1e-5
    )


def test_fixed_point_of_liberty_on_a_deterministic_process_is_a_sum_along_both_paths() -> None:
    _, reward, rng = process(6)
    following, actions = np.array([1, 2, 3, 0]), rng.uniform(-1, 1, (STATES, 2))
    found = fixed_point(liberty(np.eye(STATES)[following], reward, actions), np.zeros((STATES, STATES)))
    for i in range(STATES):
        for j in range(STATES):
            a, b, total = i, j, 0.0
            for step in range(80):
                each = abs(reward[a] - reward[b]) + GAMMA * np.abs(actions[a] - actions[b]).sum()
                total += GAMMA**step * each
                a, b = following[a], following[b]
            assert found[i, j] == pytest.approx(total, abs=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_both_metrics_bound_differences_of_value(seed: int) -> None:
    kernel, reward, rng = process(seed)
    gap, zero = value_gap(kernel, reward), np.zeros((STATES, STATES))
    for d in (
        fixed_point(eme(kernel, reward, zero), zero),
        fixed_point(eme(kernel, reward, rng.uniform(0, 1, zero.shape)), zero),
        fixed_point(liberty(kernel, reward, np.zeros((STATES, 1))), zero),
    ):
        assert bool((gap <= d + 1e-5).all())
    weak = fixed_point(eme(kernel, 0.1 * reward, zero), zero)
    assert bool((gap > weak + 1e-3).any()), "a bound that a tenth of the reward meets as well says nothing"


def test_terms_of_both_targets_by_hand() -> None:
    row = torch.tensor
    target = inverse_dynamic_target(
        row([[1.0]]), row([[4.0]]), row([10.0]), row([[0.5, -0.5]]), row([[-0.5, 0.25]]), 0.5, 2.0
    )
    assert target.tolist() == [3.0 + 5.0 + 2.0 * 1.75]
    assert effective_target(row([3.0]), row([10.0]), row([4.0]), 0.5).tolist() == [3.0 + 5.0 + 2.0]


def test_targets_refuse_shapes_that_would_broadcast_and_give_no_gradient() -> None:
    column, flat = torch.zeros(4, 1, requires_grad=True), torch.zeros(4, requires_grad=True)
    with pytest.raises(ValueError, match=r"transition.*\(4,\).*\(4, 1\)"):
        inverse_dynamic_target(column, column, column, column, column, 0.9, 0.9)
    with pytest.raises(ValueError, match=r"\(4,\), \(4, 1\), \(4,\)"):
        effective_target(flat, column, flat, 0.9)
    assert not inverse_dynamic_target(column, column, flat, column, column, 0.9, 0.9).requires_grad
    assert not effective_target(flat, flat, flat, 0.9).requires_grad


@given(seed=seeds)
def test_gap_of_means_is_that_of_two_finite_distributions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, 6)) * 2
    square = np.mean([(a - b) ** 2 for a in x for b in y])
    found = gap_of_means(*(torch.tensor(float(v), dtype=torch.float64) for v in (square, x.var(), y.var())))
    assert float(found) == pytest.approx(abs(x.mean() - y.mean()), abs=1e-6)


def test_gap_of_means_counts_impossible_estimates_as_none() -> None:
    assert gap_of_means(torch.tensor([1.0, 4.0]), torch.tensor([2.0, 0.0]), torch.zeros(2)).tolist() == [0, 2]


def test_diversity_scale() -> None:
    zeta = torch.tensor([0.0, 0.5, 1.0, 2.5, 40.0])
    assert diversity_scale(zeta, 10.0).tolist() == [1.0, 1.0, 1.0, 2.5, 10.0]
    relative = diversity_scale(zeta, 2.0, "mean")
    assert relative.tolist() == pytest.approx([0.0, 0.5 / 8.8, 1 / 8.8, 2.5 / 8.8, 2.0])
    assert diversity_scale(torch.zeros(3), 10.0, "mean").tolist() == [0.0] * 3
    assert diversity_scale(torch.zeros(3), 10.0, "clamp").tolist() == [1.0] * 3


def test_the_squared_gap_of_means_has_no_bias_while_the_mean_difference_has() -> None:
    rng = np.random.default_rng(0)
    for mean_i, mean_j, var_i, var_j in ((0.3, 0.3, 1.0, 0.5), (1.0, 0.2, 0.4, 0.9), (-1.0, 1.0, 0.0, 0.0)):
        x, y = (
            torch.from_numpy(rng.normal(m, np.sqrt(v), 200_000))
            for m, v in ((mean_i, var_i), (mean_j, var_j))
        )
        found = squared_gap_of_means((x - y).square(), torch.tensor(var_i), torch.tensor(var_j))
        error = 4 * float(found.std()) / np.sqrt(len(found))
        assert float(found.mean()) == pytest.approx((mean_i - mean_j) ** 2, abs=error + 1e-9)
        assert (var_i == 0) or float((x - y).abs().mean()) > abs(mean_i - mean_j) + 0.05


@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(0, 1))
def test_the_squared_gap_of_sure_rewards_is_their_square_and_that_of_one_with_itself_never_positive(
    r_i: float, r_j: float, variance: float
) -> None:
    square, nothing = torch.tensor((r_i - r_j) ** 2), torch.zeros(())
    assert torch.equal(squared_gap_of_means(square, nothing, nothing), square)
    assert float(squared_gap_of_means(nothing, torch.tensor(variance), torch.tensor(variance))) <= 0
