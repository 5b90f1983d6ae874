from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from teb.maths.curiosity import disagreement, distillation_error, surprise
from teb.maths.distances import safe_norm


def test_surprise_is_zero_for_an_exact_prediction_and_log_six_for_an_error_of_three_and_four() -> None:
    errors = safe_norm(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    assert surprise(errors).squeeze(1).tolist() == pytest.approx([0.0, math.log(6)])
    assert float(surprise(errors)[1]) == pytest.approx(1.7918, abs=1e-4)


@given(low=st.floats(0, 1e3), more=st.floats(1e-3, 1e3), scale=st.floats(0.01, 100))
def test_surprise_is_positive_and_grows_with_the_error(low: float, more: float, scale: float) -> None:
    errors = torch.tensor([low, low + more], dtype=torch.float64)
    less, higher = surprise(errors, scale).tolist()
    assert 0 <= less < higher
    assert higher == pytest.approx(math.log(1 + scale * (low + more)), rel=1e-9)


def test_disagreement_divides_by_one_member_less() -> None:
    predictions = torch.zeros(5, 1, 1)
    predictions[4] = 5.0
    assert disagreement(predictions).tolist() == [[5.0]]


@given(
    seed=st.integers(0, 10_000), members=st.integers(2, 6), rows=st.integers(1, 5), width=st.integers(1, 4)
)
def test_disagreement_is_that_of_a_loop(seed: int, members: int, rows: int, width: int) -> None:
    predictions = np.random.default_rng(seed).normal(size=(members, rows, width))
    found = disagreement(torch.from_numpy(predictions))
    assert found.shape == (rows, 1)
    for row in range(rows):
        spread = [statistics.variance(predictions[:, row, j].tolist()) for j in range(width)]
        assert float(found[row]) == pytest.approx(statistics.mean(spread))


@given(seed=st.integers(0, 10_000))
def test_members_that_agree_pay_nothing_and_what_they_share_does_not_matter(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    shared, own = torch.randn(1, 6, 3, generator=rng), torch.randn(5, 6, 3, generator=rng)
    assert torch.equal(disagreement(shared.expand(5, -1, -1)), torch.zeros(6, 1))
    assert torch.allclose(disagreement(own + shared), disagreement(own), rtol=1e-4)


@pytest.mark.parametrize("shape", [(5, 3), (1, 4, 2)], ids=str)
def test_disagreement_refuses_one_member_or_a_missing_axis(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"predictions: expected shape \[K, B, D\]"):
        disagreement(torch.zeros(shape))


@given(seed=st.integers(0, 10_000), rows=st.integers(1, 5), width=st.integers(1, 9))
def test_distillation_error_is_the_mean_square(seed: int, rows: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    prediction, target = rng.normal(size=(2, rows, width))
    found = distillation_error(torch.from_numpy(prediction), torch.from_numpy(target))
    expected = [[sum((q - p) ** 2 for p, q in zip(*pair, strict=True)) / width]
                for pair in zip(prediction, target, strict=True)]  # fmt: skip
    assert np.allclose(found.numpy(), expected)


def test_distillation_error_refuses_what_would_broadcast() -> None:
    with pytest.raises(ValueError, match="must have one shape"):
        distillation_error(torch.zeros(4, 3), torch.zeros(4, 1))
