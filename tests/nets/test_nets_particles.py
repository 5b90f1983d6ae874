from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from teb.nets.particles import ParticleEntropy, Unit


def rows(seed: int = 0, count: int = 40, width: int = 6) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


def brute_force(x: np.ndarray, k: int, variance: float, clip: float) -> list[float]:
    """The bonus of each row by loops, distances in units of a given variance."""
    bonus = []
    for row in x:
        apart = sorted(np.sqrt(np.square(row - other).sum()) for other in x)[:k]
        bonus.append(np.log(1 + sum(max(d / variance - clip, 0.0) for d in apart) / k))
    return bonus


@given(seed=st.integers(0, 10_000), count=st.integers(2, 30), data=st.data())
def test_bonus_is_that_of_brute_force(seed: int, count: int, data: st.DataObject) -> None:
    k, x = data.draw(st.integers(1, count)), rows(seed, count)
    entropy = ParticleEntropy(5e-4, "variance")
    found = entropy(x, k)
    assert found.shape == (count,)
    expected = brute_force(x.double().numpy(), k, float(entropy.moments.variance), 5e-4)
    assert np.allclose(found.numpy(), expected, atol=1e-5)


def test_distances_count_before_they_are_scaled_and_calls_share_the_moments() -> None:
    entropy, first, second = ParticleEntropy(0.0, "variance"), rows(1), 3 * rows(2)
    pooled: list[np.ndarray] = []
    for x in (first, second):
        found = entropy(x, 4)
        apart = np.sqrt(np.square(x.numpy()[:, None] - x.numpy()[None]).sum(-1))
        pooled.append(np.sort(apart, 1)[:, :4].ravel())
        seen = np.concatenate(pooled)
        assert float(entropy.moments.count) == pytest.approx(len(seen) + 1e-4)
        assert float(entropy.moments.variance) == pytest.approx(seen.var(ddof=1), rel=0.02)
        assert np.allclose(
            found.numpy(),
            brute_force(x.double().numpy(), 4, float(entropy.moments.variance), 0.0),
            atol=1e-5,
        )


def test_order_and_place_of_the_rows_do_not_matter() -> None:
    x, order = rows(), torch.randperm(40, generator=torch.Generator().manual_seed(1))
    bonus = ParticleEntropy(5e-4, "variance")(x, 5)
    assert torch.allclose(ParticleEntropy(5e-4, "variance")(x[order], 5), bonus[order], atol=1e-5)
    assert torch.allclose(ParticleEntropy(5e-4, "variance")(x + 20.0, 5), bonus, atol=1e-4)


@pytest.mark.parametrize("place", [0.0, 1.0, 1e3])
def test_identical_points_are_paid_nothing(place: float) -> None:
    assert ParticleEntropy(5e-4, "variance")(torch.full((20, 3), place), 16).tolist() == [0.0] * 20


def test_with_moments_held_still_doubling_the_rows_pays_no_row_less() -> None:
    entropy = ParticleEntropy(5e-4, "variance")
    entropy(rows(), 5)
    frozen = copy.deepcopy(entropy)
    for each in (entropy, frozen):
        each.moments.take = lambda values: None
    assert bool((frozen(2 * rows(1), 5) >= entropy(rows(1), 5)).all())


@pytest.mark.parametrize(("unit", "power"), [("variance", -1), ("std", 0)])
@pytest.mark.parametrize("scale", [0.1, 2.0, 30.0])
def test_units_of_the_distances_scale_as_said(unit: Unit, power: int, scale: float) -> None:
    def distances(x: torch.Tensor) -> torch.Tensor:
        return ParticleEntropy(0.0, unit)(x, 5).expm1()

    assert torch.allclose(distances(scale * rows()), scale**power * distances(rows()), rtol=2e-3)


def test_a_single_row_is_paid_nothing_and_not_counted() -> None:
    entropy = ParticleEntropy(5e-4, "variance")
    assert entropy(rows(count=1), 1).tolist() == [0.0]
    assert float(entropy.moments.count) == pytest.approx(1e-4)


def test_moments_are_all_its_state() -> None:
    entropy, again = ParticleEntropy(5e-4, "variance"), ParticleEntropy(5e-4, "variance")
    entropy(rows(), 5)
    again.load_state_dict(entropy.state_dict())
    assert torch.equal(entropy(rows(1), 5), again(rows(1), 5))
    assert not list(entropy.parameters())
