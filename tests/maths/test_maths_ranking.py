from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from teb.maths.ranking import ranking_loss, repeated_rows


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), levels=st.integers(1, 4), rows=st.integers(1, 9))
def test_it_is_its_formula(seed: int, levels: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    logits, left_out = rng.normal(size=(levels, rows, rows)), rng.random((rows, rows)) < 0.3
    for mask in (None, left_out):
        expected = []
        for level in logits:
            terms = []
            for i in range(rows):
                counted = [j for j in range(rows) if mask is None or j == i or not mask[i, j]]
                terms.append(-math.log(math.exp(level[i, i]) / sum(math.exp(level[i, j]) for j in counted)))
            expected.append(np.mean(terms))
        found = ranking_loss(torch.from_numpy(logits), None if mask is None else torch.from_numpy(mask))
        assert np.allclose(found, expected)


@pytest.mark.parametrize("rows", [256, 512])
def test_logits_that_say_nothing_give_the_logarithm_of_the_batch(rows: int) -> None:
    assert np.allclose(ranking_loss(torch.zeros(2, rows, rows)), {256: 5.545, 512: 6.238}[rows], atol=1e-3)


def test_a_common_order_does_not_matter_but_one_of_the_columns_does() -> None:
    logits = 0.1 * drawn(3, 20, 20) + 3 * torch.eye(20)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    loss = ranking_loss(logits)
    assert np.allclose(ranking_loss(logits[:, order][:, :, order]), loss)
    assert bool((ranking_loss(logits[:, :, order]) > loss + 1).all())


def test_gradients_are_those_of_the_formula_also_where_columns_are_left_out() -> None:
    logits = drawn(2, 6, 6).requires_grad_()
    left_out = drawn(6, 6, seed=1) > 0
    assert torch.autograd.gradcheck(lambda given: ranking_loss(given, left_out), (logits,))


def test_at_its_minimum_logits_are_the_density_ratio() -> None:
    """Over all batches of two pairs (x, y) from a joint law: G_xy = log p(y | x) / p(y), up to a number for each x."""
    joint = np.random.default_rng(0).dirichlet(np.ones(20)).reshape(4, 5)
    ratio = np.log(joint / joint.sum(1, keepdims=True) / joint.sum(0))
    table = torch.from_numpy(ratio + np.array([[0.0], [1.0], [-2.0], [0.5]])).requires_grad_()
    outcomes = torch.cartesian_prod(torch.arange(20), torch.arange(20))
    x, y = outcomes // 5, outcomes % 5
    weight = torch.from_numpy(np.outer(joint.ravel(), joint.ravel()).ravel())

    def expected(table: torch.Tensor) -> torch.Tensor:
        return (weight * ranking_loss(table[x.unsqueeze(2), y.unsqueeze(1)])).sum()

    loss = expected(table)
    (gradient,) = torch.autograd.grad(loss, table)
    assert np.allclose(gradient, 0.0, atol=1e-12)
    for seed in range(5):
        assert float(expected(table.detach() + 0.3 * drawn(4, 5, seed=seed))) > float(loss.detach()) + 1e-4


def test_anything_but_squares_is_refused() -> None:
    with pytest.raises(ValueError, match=r"ranking_loss: logits must be \[K, B, B\], got \(3, 4\)"):
        ranking_loss(torch.zeros(3, 4))


@given(seed=st.integers(0, 10_000), rows=st.integers(1, 12))
def test_repeated_rows_are_those_that_agree_in_every_byte(seed: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    pictures = rng.integers(0, 2, (rows, 2, 2), dtype=np.uint8)
    found = repeated_rows(torch.from_numpy(pictures))
    for i in range(rows):
        for j in range(rows):
            assert bool(found[i, j]) == (i != j and np.array_equal(pictures[i], pictures[j]))
