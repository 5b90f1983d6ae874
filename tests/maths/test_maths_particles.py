from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from teb.maths.particles import nearest_distances, nearest_mean, particle_bonus


@given(seed=st.integers(0, 10_000), rows=st.integers(1, 6), columns=st.integers(1, 12), data=st.data())
def test_nearest_mean_is_that_of_a_sort(seed: int, rows: int, columns: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, columns))
    distances = np.random.default_rng(seed).uniform(0, 5, (rows, columns)).round(1)  # with ties
    found = nearest_mean(torch.from_numpy(distances), k)
    assert found.shape == (rows,)
    assert np.allclose(found.numpy(), np.sort(distances, axis=1)[:, :k].mean(1))


@given(seed=st.integers(0, 10_000))
def test_order_of_the_particles_does_not_matter(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    distances = torch.rand(4, 9, generator=rng)
    shuffled = distances[:, torch.randperm(9, generator=rng)]
    assert torch.allclose(nearest_mean(distances, 3), nearest_mean(shuffled, 3))


@pytest.mark.parametrize("k", [0, -1, 6])
def test_impossible_numbers_of_neighbours_are_refused_with_the_range(k: int) -> None:
    with pytest.raises(ValueError, match=rf"k: .*\[1, 5\].*{k}"):
        nearest_mean(torch.zeros(2, 5), k)


@given(seed=st.integers(0, 10_000), scale=st.floats(0.1, 5.0), clip=st.floats(0.0, 0.5))
def test_particle_bonus_is_its_formula(seed: int, scale: float, clip: float) -> None:
    nearest = np.random.default_rng(seed).uniform(0, 3, (5, 4))
    expected = [np.log(1 + np.mean([max(d / scale - clip, 0) for d in row])) for row in nearest]
    assert np.allclose(particle_bonus(torch.from_numpy(nearest), scale, clip).numpy(), expected)


def test_particle_bonus_of_coinciding_points_is_zero_and_never_negative() -> None:
    assert particle_bonus(torch.zeros(3, 4), 2.0, 5e-4).tolist() == [0.0] * 3


@given(seed=st.integers(0, 10_000), rows=st.integers(1, 30), width=st.integers(1, 6), data=st.data())
def test_nearest_distances_are_those_of_all_differences(
    seed: int, rows: int, width: int, data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, rows))
    x = np.random.default_rng(seed).normal(7.0, 2.0, (rows, width)).round(1).astype(np.float32)  # with ties
    apart = np.sort(np.sqrt(np.square(x[:, None].astype(float) - x[None]).sum(-1)), 1)[:, :k]
    found = nearest_distances(torch.from_numpy(x), k)
    assert found.shape == (rows, k) and found.dtype == torch.float32
    assert np.allclose(np.sort(found.numpy(), 1), apart, atol=1e-5)


def test_a_row_is_its_own_first_neighbour_at_distance_zero() -> None:
    x = 1e3 * torch.randn(300, 16, generator=torch.Generator().manual_seed(0))
    assert nearest_distances(x, 1).tolist() == [[0.0]] * 300
    assert bool(((nearest_distances(x, 3) == 0).sum(1) == 1).all())


def test_small_distances_far_from_the_origin_are_not_lost() -> None:
    x = torch.zeros(64, 16)
    x[:, 0] = 3.0 + 1e-4 * torch.arange(64)
    x[:, 1] = 50.0 * (torch.arange(64) % 2)
    exact = (x[2:, 0] - x[:-2, 0]).mean()
    found = nearest_distances(x, 2)[2:-2].amax(1)
    assert torch.allclose(found, exact.expand(60), rtol=0.02)


def test_distances_do_not_depend_on_where_the_rows_lie_or_on_their_order() -> None:
    rng = torch.Generator().manual_seed(0)
    x, order = torch.randn(50, 4, generator=rng), torch.randperm(50, generator=rng)
    nearest = nearest_distances(x, 5).sort(1).values
    assert torch.allclose(nearest_distances(x + 10.0, 5).sort(1).values, nearest, atol=1e-5)
    assert torch.allclose(nearest_distances(x[order], 5).sort(1).values, nearest[order], atol=1e-6)


def test_more_neighbours_than_rows_are_refused() -> None:
    with pytest.raises(ValueError, match=r"k: must lie in \[1, 5\] \(the number of rows\), got 6"):
        nearest_distances(torch.zeros(5, 2), 6)
