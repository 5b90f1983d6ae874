"""Batched transport against the linear program and POT, and what its slack promises."""

from __future__ import annotations

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teb.maths.transport import cheapest_first_basis, transport_batch, transport_lp


def problems(seed: int, batch: int, m: int, n: int, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random costs and masses; `tied` has equal masses and whole-numbered costs, `empty` some states of no mass."""
    rng = np.random.default_rng(seed)
    supply, demand = rng.dirichlet(np.ones(m), batch), rng.dirichlet(np.ones(n), batch)
    cost = rng.uniform(0.0, 5.0, (batch, m, n))
    if kind == "tied":
        supply, demand = np.full((batch, m), 1 / m), np.full((batch, n), 1 / n)
        cost = np.rint(cost)
    if kind == "empty":
        supply[:, -1] = demand[:, 0] = 0.0
        supply, demand = (x / x.sum(1, keepdims=True) if x.any() else x for x in (supply, demand))
    return cost, supply, demand


SHAPES = st.tuples(st.integers(2, 6), st.integers(2, 6))


@given(st.integers(0, 10_000), SHAPES, st.sampled_from(["random", "tied", "empty"]))
@settings(max_examples=40)
def test_transport_batch_agrees_with_the_linear_program_and_pot(
    seed: int, shape: tuple[int, int], kind: str
) -> None:
    cost, supply, demand = problems(seed, 3, *shape, kind)
    found = transport_batch(cost, supply, demand)
    for b in range(3):
        assert found.value[b] == pytest.approx(transport_lp(cost[b], supply[b], demand[b]), abs=1e-9)
        assert found.value[b] == pytest.approx(ot.emd2(supply[b], demand[b], cost[b]), abs=1e-9)
    assert found.slack.max() < 1e-12


@given(st.integers(0, 10_000), SHAPES, st.sampled_from(["random", "tied", "empty"]))
@settings(max_examples=40)
def test_plans_have_the_marginals_they_should(seed: int, shape: tuple[int, int], kind: str) -> None:
    cost, supply, demand = problems(seed, 5, *shape, kind)
    found = transport_batch(cost, supply, demand)
    plan = np.zeros((5, shape[0] * shape[1]))
    np.add.at(plan, (np.arange(5)[:, None], found.basis), found.flow)
    plan = plan.reshape(5, *shape)
    assert (found.flow >= 0).all()
    assert np.allclose(plan.sum(2), supply, atol=1e-14)
    assert np.allclose(plan.sum(1), demand, atol=1e-14)


def test_a_start_from_another_cost_reaches_the_same_value() -> None:
    cost, supply, demand = problems(3, 200, 5, 7, "random")
    other = problems(4, 200, 5, 7, "random")[0]
    start = transport_batch(other, supply, demand).basis
    kept = start.copy()
    found = transport_batch(cost, supply, demand, start)
    assert np.allclose(found.value, transport_batch(cost, supply, demand).value, atol=1e-12)
    assert np.array_equal(start, kept), "the start must not be written to"


def test_larger_problems_agree_with_pot() -> None:
    cost, supply, demand = problems(5, 10, 40, 33, "random")
    found = transport_batch(cost, supply, demand)
    wanted = [ot.emd2(a, b, c) for a, b, c in zip(supply, demand, cost, strict=True)]
    assert np.allclose(found.value, wanted, atol=1e-10)


@pytest.mark.parametrize("kind", ["tied", "empty", "columns without mass last"])
def test_the_first_basis_is_a_spanning_tree(kind: str) -> None:
    cost, supply, demand = problems(6, 50, 4, 6, kind)
    if kind.startswith("columns"):
        supply[:], demand[:] = 0.25, [0.25, 0.25, 0.25, 0.25, 0.0, 0.0]
        cost = np.broadcast_to(np.arange(6.0), cost.shape)
    basis = cheapest_first_basis(cost, supply, demand)
    for cells in basis:
        group = list(range(10))
        for cell in cells:
            one, other = group[cell // 6], group[4 + cell % 6]
            assert one != other, "a cycle"
            group = [one if g == other else g for g in group]
        assert len(set(group)) == 1


def test_equal_distributions_cost_nothing_under_a_metric_and_one_point_costs_its_distance() -> None:
    rng = np.random.default_rng(7)
    points = rng.normal(size=(6, 2))
    cost = np.linalg.norm(points[:, None] - points[None], axis=-1)
    mass = rng.dirichlet(np.ones(6), 1)
    assert transport_batch(cost[None], mass, mass).value[0] == pytest.approx(0.0, abs=1e-14)
    one, other = np.eye(6)[[1]], np.eye(6)[[4]]
    assert transport_batch(cost[None], one, other).value[0] == pytest.approx(cost[1, 4])


def test_an_impossible_linear_program_says_so() -> None:
    with pytest.raises(ValueError, match="transport_lp: the solver stopped"):
        transport_lp(np.zeros((2, 2)), np.array([-1.0, 2.0]), np.array([0.5, 0.5]))
