from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import spatial

from teb.maths.particles import (
    drawn_by_score,
    kth_nearest_distance,
    nearest_mean,
    neighbour_distances,
    particle_bonus,
)


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


@given(seed=st.integers(0, 10_000), size=st.integers(3, 40), width=st.integers(1, 6), data=st.data())
def test_neighbours_are_those_of_a_search_tree(seed: int, size: int, width: int, data: st.DataObject) -> None:
    exclude = data.draw(st.booleans())
    k = data.draw(st.integers(1, size - exclude))
    points = np.random.default_rng(seed).normal(size=(size, width))
    found = neighbour_distances(torch.from_numpy(points), k, exclude_self=exclude)
    nearest = np.asarray(spatial.KDTree(points).query(points, k + exclude)[0]).reshape(size, -1)
    assert found.shape == (size, k)
    assert np.allclose(np.sort(found.numpy(), 1), nearest[:, exclude:], atol=1e-6)


def test_a_point_is_its_own_neighbour_at_distance_zero_unless_left_out() -> None:
    points = torch.randn(200, 512, generator=torch.Generator().manual_seed(0)) + 50
    assert torch.equal(neighbour_distances(points, 1), torch.zeros(200, 1))
    assert float(neighbour_distances(points, 1, exclude_self=True).min()) > 1
    counted = neighbour_distances(points, 12).sort(1).values
    left_out = neighbour_distances(points, 11, exclude_self=True).sort(1).values
    assert torch.equal(counted[:, 1:], left_out), "of twelve neighbours eleven are others"


@pytest.mark.parametrize(("k", "exclude", "most"), [(6, False, 5), (5, True, 4), (0, False, 5)])
def test_too_few_points_are_refused_with_the_range(k: int, exclude: bool, most: int) -> None:
    with pytest.raises(ValueError, match=rf"k: must lie in \[1, {most}\] for 5 points, got {k}"):
        neighbour_distances(torch.randn(5, 2), k, exclude_self=exclude)


@given(seed=st.integers(0, 10_000), rows=st.integers(1, 6), columns=st.integers(1, 12), data=st.data())
def test_kth_nearest_distance_is_that_of_a_sort(
    seed: int, rows: int, columns: int, data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, columns))
    rng = np.random.default_rng(seed)
    points, particles = rng.normal(size=(rows, 3)), rng.normal(size=(columns, 3))
    distances = np.linalg.norm(points[:, None] - particles[None], axis=2)
    found = kth_nearest_distance(torch.from_numpy(points), torch.from_numpy(particles), k)
    assert np.allclose(found.numpy(), np.sort(distances, axis=1)[:, k - 1], atol=1e-6)


def test_kth_nearest_distance_of_a_point_that_occurs_k_times_is_exactly_zero() -> None:
    points = torch.nn.functional.normalize(
        torch.randn(40, 16, generator=torch.Generator().manual_seed(0)), dim=1
    )
    thrice = points.repeat(3, 1)
    assert torch.equal(kth_nearest_distance(points, thrice, 3), torch.zeros(40))
    assert bool((kth_nearest_distance(points, thrice, 4) > 0.1).all())


@pytest.mark.parametrize("k", [0, 6])
def test_a_kth_neighbour_that_is_not_there_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match=rf"k: .*\[1, 5\].*{k}"):
        kth_nearest_distance(torch.zeros(2, 3), torch.zeros(5, 3), k)


def test_draw_follows_the_softmax_of_each_row() -> None:
    rng = torch.Generator().manual_seed(0)
    scores = torch.tensor([[0.0, 100.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 2.0]])
    drawn = torch.stack([drawn_by_score(scores, rng) for _ in range(3000)])
    assert drawn.shape == (3000, 3)
    assert bool((drawn[:, 0] == 1).all())
    shares = torch.stack([(drawn == i).float().mean(0) for i in range(3)], 1)
    assert torch.allclose(shares[1:], scores[1:].softmax(1), atol=0.03)


def test_small_distances_far_from_the_origin_are_not_lost() -> None:
    x = torch.zeros(64, 16)
    x[:, 0] = 3.0 + 1e-4 * torch.arange(64)
    x[:, 1] = 50.0 * (torch.arange(64) % 2)
    exact = (x[2:, 0] - x[:-2, 0]).mean()
    found = neighbour_distances(x, 2)[2:-2].amax(1)
    assert torch.allclose(found, exact.expand(60), rtol=0.02)


def test_distances_do_not_depend_on_where_the_rows_lie_or_on_their_order() -> None:
    rng = torch.Generator().manual_seed(0)
    x, order = torch.randn(50, 4, generator=rng), torch.randperm(50, generator=rng)
    nearest = neighbour_distances(x, 5).sort(1).values
    assert torch.allclose(neighbour_distances(x + 10.0, 5).sort(1).values, nearest, atol=1e-5)
    assert torch.allclose(neighbour_distances(x[order], 5).sort(1).values, nearest[order], atol=1e-6)
