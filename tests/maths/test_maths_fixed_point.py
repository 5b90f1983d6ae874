"""Exact metrics on random finite processes: solvers against plain iteration, certificates, axioms, special cases."""

from __future__ import annotations

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teb.maths.exact_mdp import SelfPairs, mean_differential, predictive_differential
from teb.maths.fixed_point import apply_operator, certified_error, solve_metric, solve_mico
from teb.maths.transport import transport_lp


def kernel_of(rng: np.random.Generator, states: int, branching: int) -> np.ndarray:
    kernel = np.zeros((states, states))
    for row in kernel:
        reached = rng.choice(states, rng.integers(1, branching + 1), replace=False)
        row[reached] = rng.dirichlet(np.ones(len(reached)))
    return kernel


def delta_of(rng: np.random.Generator, states: int, kind: str) -> np.ndarray:
    reward, sigma = rng.normal(size=(states, 1)), rng.uniform(0.1, 1.0, (states, 1))
    if kind == "classical":
        return mean_differential(reward[:, 0])
    pairs: SelfPairs = "shared" if kind == "shared" else "independent"
    return predictive_differential(reward, sigma, np.ones((states, 1)), pairs)


def iterated(delta: np.ndarray, kernel: np.ndarray, c_r: float, c_t: float, applications: int) -> np.ndarray:
    """Plain iteration from 0 with POT; nothing of the solver in it."""
    states, d = len(kernel), np.zeros_like(delta)
    for _ in range(applications):
        ground = np.ascontiguousarray(d)
        w1 = [[ot.emd2(kernel[i], kernel[j], ground) for j in range(states)] for i in range(states)]
        d = c_r * delta + c_t * np.array(w1)
    return d


PROCESSES = st.tuples(
    st.integers(0, 10_000), st.integers(2, 6), st.sampled_from(["classical", "shared", "independent"])
)


def drawn(process: tuple[int, int, str]) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    seed, states, kind = process
    rng = np.random.default_rng(seed)
    return delta_of(rng, states, kind), kernel_of(rng, states, min(3, states)), rng


@given(PROCESSES)
@settings(max_examples=12)
def test_solve_metric_is_what_plain_iteration_approaches(process: tuple[int, int, str]) -> None:
    delta, kernel, _ = drawn(process)
    found = solve_metric(delta, kernel, 0.7, 0.6)
    assert np.allclose(found.distance, iterated(delta, kernel, 0.7, 0.6, 42), atol=1e-8)


@given(PROCESSES, st.sampled_from([0.0, 0.5, 0.9, 0.99]))
@settings(max_examples=40)
def test_solve_metric_is_a_fixed_point_under_the_linear_program(
    process: tuple[int, int, str], c_t: float
) -> None:
    delta, kernel, rng = drawn(process)
    d = solve_metric(delta, kernel, 1.0, c_t).distance
    i, j = rng.integers(len(delta), size=2)
    assert d[i, j] == pytest.approx(delta[i, j] + c_t * transport_lp(d, kernel[i], kernel[j]), abs=1e-8)


@given(PROCESSES, st.sampled_from([0.5, 0.9, 0.99]), st.integers(1, 4))
@settings(max_examples=40)
def test_the_certificate_covers_the_true_error(
    process: tuple[int, int, str], c_t: float, rounds: int
) -> None:
    delta, kernel, _ = drawn(process)
    exact = solve_metric(delta, kernel, 1.0, c_t, tolerance=1e-11).distance
    for tolerance in (10.0, 0.1):
        rough = solve_metric(delta, kernel, 1.0, c_t, tolerance=tolerance)
        assert np.abs(rough.distance - exact).max() <= rough.error_bound + 1e-9
        assert rough.error_bound <= tolerance
    before = d = np.zeros_like(delta)
    for _ in range(rounds):
        before, d = d, apply_operator(d, delta, kernel, 1.0, c_t)
    change = d - before
    assert np.abs(d - exact).max() <= certified_error(c_t, change.min(), change.max()) + 1e-9
    low, high = (d + c_t / (1 - c_t) * x for x in (change.min(), change.max()))
    assert (low <= exact + 1e-9).all() and (exact <= high + 1e-9).all()


@given(PROCESSES)
@settings(max_examples=40)
def test_iteration_from_zero_rises_to_the_fixed_point(process: tuple[int, int, str]) -> None:
    delta, kernel, _ = drawn(process)
    exact = solve_metric(delta, kernel, 1.0, 0.9).distance
    d = np.zeros_like(delta)
    for _ in range(6):
        following = apply_operator(d, delta, kernel, 1.0, 0.9)
        assert (following >= d - 1e-12).all() and (following <= exact + 1e-8).all()
        d = following


@given(PROCESSES)
@settings(max_examples=40)
def test_metric_axioms_hold_where_they_should(process: tuple[int, int, str]) -> None:
    delta, kernel, _ = drawn(process)
    d = solve_metric(delta, kernel, 1.0, 0.9).distance
    assert np.array_equal(d, d.T) and (d >= -1e-12).all()
    assert (d[:, None, :] <= d[:, :, None] + d[None, :, :] + 1e-8).all(), "triangle inequality"
    if process[2] == "independent":
        assert (np.diag(d) > 0).all(), "independent draws keep a state away from itself"
    else:
        assert np.allclose(np.diag(d), 0.0, atol=1e-9)


@given(st.integers(0, 10_000), st.integers(2, 8))
@settings(max_examples=30)
def test_deterministic_transitions_follow_both_paths(seed: int, states: int) -> None:
    rng = np.random.default_rng(seed)
    following = rng.integers(states, size=states)
    delta = delta_of(rng, states, "independent")
    wanted, i, j = np.zeros_like(delta), *np.indices((states, states))
    for k in range(400):
        wanted += 0.9**k * delta[i, j]
        i, j = following[i], following[j]
    found = solve_metric(delta, np.eye(states)[following], 1.0, 0.9)
    assert np.allclose(found.distance, wanted, atol=1e-9)
    assert found.error_bound < 1e-9
    noisy = np.eye(states)[following] * (1 - 1e-9) + 1e-9 / states
    assert np.allclose(solve_metric(delta, noisy, 1.0, 0.9).distance, wanted, atol=1e-5), (
        "the general solver agrees"
    )


def test_without_a_transition_weight_the_metric_is_the_reward_term() -> None:
    rng = np.random.default_rng(0)
    delta, kernel = delta_of(rng, 7, "independent"), kernel_of(rng, 7, 3)
    assert np.allclose(solve_metric(delta, kernel, 0.3, 0.0).distance, 0.3 * delta, atol=1e-15)


def test_identical_states_are_at_no_distance() -> None:
    rng = np.random.default_rng(1)
    kernel, reward = kernel_of(rng, 6, 3), rng.normal(size=6)
    kernel[4], reward[4] = kernel[2], reward[2]
    d = solve_metric(mean_differential(reward), kernel, 1.0, 0.95).distance
    assert d[2, 4] == pytest.approx(0.0, abs=1e-9)
    assert np.allclose(d[2], d[4], atol=1e-9)


@pytest.mark.parametrize("states", [3, 9])
def test_solve_mico_solves_its_linear_system(states: int) -> None:
    rng = np.random.default_rng(2)
    kernel, reward = kernel_of(rng, states, 3), rng.normal(size=states)
    known = 1.5 * mean_differential(reward).ravel()
    wanted = np.linalg.solve(np.eye(states**2) - 0.9 * np.kron(kernel, kernel), known)
    found = solve_mico(reward, kernel, 1.5, 0.9)
    assert np.allclose(found.distance.ravel(), wanted, atol=1e-9)
    assert found.error_bound < 1e-8
    classical = solve_metric(mean_differential(reward), kernel, 1.5, 0.9).distance
    assert (classical <= found.distance + 1e-9).all(), (
        "the best coupling costs no more than the independent one"
    )


def test_a_ring_with_equal_noise_is_one_constant() -> None:
    ring, zero = np.roll(np.eye(6), 1, axis=1), np.zeros((6, 1))
    delta = predictive_differential(zero, zero + 0.5, zero + 1.0)
    d = solve_metric(delta, ring, 1.0, 0.97).distance
    assert np.allclose(d, 2 / np.sqrt(np.pi) * 0.5 / 0.03, atol=1e-9)
    lazy = 0.3 * np.eye(6) + 0.7 * ring
    np.fill_diagonal(delta, 0.0)
    others = solve_metric(delta, lazy, 1.0, 0.97).distance[~np.eye(6, dtype=bool)]
    assert (others.min(), others.max()) == (pytest.approx(3.58, abs=5e-3), pytest.approx(6.24, abs=5e-3))


def test_handfuls_of_rounds_replace_a_thousand_applications() -> None:
    rng = np.random.default_rng(3)
    kernel, delta = kernel_of(rng, 40, 4), delta_of(rng, 40, "shared")
    found = solve_metric(delta, kernel, 1.0, 0.99, tolerance=1e-6)
    assert found.rounds <= 15 and found.error_bound <= 1e-6


@pytest.mark.slow
def test_four_hundred_states_take_less_than_a_minute() -> None:
    import time

    rng = np.random.default_rng(4)
    kernel, delta = kernel_of(rng, 400, 4), delta_of(rng, 400, "independent")
    began = time.process_time()
    assert solve_metric(delta, kernel, 1.0, 0.99, tolerance=1e-6).error_bound <= 1e-6
    assert time.process_time() - began < 60


def test_bad_inputs_are_refused() -> None:
    ring, delta = np.roll(np.eye(3), 1, axis=1), np.zeros((3, 3))
    with pytest.raises(ValueError, match=r"c_t: must lie in \[0, 1\), got 1.0"):
        solve_metric(delta, ring, 1.0, 1.0)
    with pytest.raises(ValueError, match="must both be"):
        solve_metric(delta[:2], ring, 1.0, 0.9)
    with pytest.raises(ValueError, match="symmetric"):
        solve_metric(np.triu(np.ones((3, 3))), ring, 1.0, 0.9)
    rng = np.random.default_rng(5)
    with pytest.raises(ValueError, match="after 1 rounds"):
        solve_metric(delta_of(rng, 6, "shared"), kernel_of(rng, 6, 3), 1.0, 0.99, rounds=1)
