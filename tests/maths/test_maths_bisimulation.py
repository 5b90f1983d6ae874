from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from teb.maths.bisimulation import (
    RewardDifferential,
    TransitionDistance,
    bisim_loss,
    metric_target,
    pair_indices,
    pairwise_transition_distance,
    reward_differential,
    scaled_gradient,
    transition_distance,
    w2_per_dimension,
)
from teb.maths.distances import LatentDistance

DIFFERENTIALS: tuple[RewardDifferential, ...] = get_args(RewardDifferential)
TRANSITIONS: tuple[TransitionDistance, ...] = get_args(TransitionDistance)
GROUNDS: tuple[LatentDistance, ...] = get_args(LatentDistance)
seeds = st.integers(0, 10_000)


def heads(seed: int, batch: int = 16, width: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Means, standard deviations and noise of a Gaussian head."""
    rng = torch.Generator().manual_seed(seed)
    shape = (batch, width)
    return (
        torch.randn(shape, generator=rng),
        torch.rand(shape, generator=rng) + 0.01,
        torch.randn(shape, generator=rng),
    )


def test_reward_differentials_of_one_pair_computed_by_hand() -> None:
    values = [torch.tensor(x) for x in (1.0, 0.5, -1.0, 0.25, 2.0, -4.0)]
    mean_i, sigma_i, mean_j, sigma_j, noise_i, noise_j = values
    arguments = (mean_i, sigma_i, mean_j, sigma_j, noise_i, noise_j)
    # (1 + 0.5 * 2) - (-1 - 0.25 * 4) = 4
    assert float(reward_differential(*arguments, kind="sample")) == pytest.approx(4.0)
    assert float(reward_differential(*arguments, kind="sample_indep")) == pytest.approx(4.0)
    assert float(reward_differential(*arguments, kind="mean")) == pytest.approx(2.0)
    deviation = math.hypot(0.5, 0.25)
    assert float(reward_differential(*arguments, kind="folded")) == pytest.approx(
        stats.foldnorm.mean(2.0 / deviation, scale=deviation), rel=1e-5
    )


def test_folded_differential_is_the_expectation_of_independent_samples() -> None:
    rng = torch.Generator().manual_seed(0)
    mean_i, sigma_i, _ = heads(1, 4)
    mean_j, sigma_j, _ = heads(2, 4)
    noise = torch.randn(2, 4, 250_000, generator=rng)
    sampled = reward_differential(mean_i, sigma_i, mean_j, sigma_j, noise[0], noise[1], "sample_indep").mean(
        1
    )
    exact = reward_differential(mean_i, sigma_i, mean_j, sigma_j, noise[0], noise[1], "folded")
    assert torch.allclose(sampled, exact[:, 0], atol=5e-3)


@pytest.mark.parametrize("kind", DIFFERENTIALS)
@given(seed=seeds)
def test_swapping_a_pair_changes_no_reward_differential(kind: RewardDifferential, seed: int) -> None:
    (mean_i, sigma_i, noise_i), (mean_j, sigma_j, noise_j) = heads(seed), heads(seed + 1)
    forth = reward_differential(mean_i, sigma_i, mean_j, sigma_j, noise_i, noise_j, kind)
    back = reward_differential(mean_j, sigma_j, mean_i, sigma_i, noise_j, noise_i, kind)
    assert torch.allclose(forth, back, rtol=1e-6, atol=1e-7)


@given(seed=seeds)
def test_swapping_a_pair_leaves_the_whole_target_unchanged(seed: int) -> None:
    (reward, sigma, noise), (following, spread, _) = heads(seed), heads(seed + 1, width=5)
    order = torch.randperm(16, generator=torch.Generator().manual_seed(seed))
    for kind in ("sample", "folded"):
        i = (reward, sigma, noise, following, spread)
        j = tuple(x[order] for x in i)
        targets = [
            metric_target(
                reward_differential(a[0], a[1], b[0], b[1], a[2], b[2], kind).squeeze(1),
                transition_distance(a[3], a[4], b[3], b[4]),
                1.0,
                0.97,
            )
            for a, b in ((i, j), (j, i))
        ]
        assert torch.allclose(*targets, rtol=1e-6)


def test_only_differentials_without_shared_noise_have_a_positive_self_distance() -> None:
    mean, sigma, noise = heads(0)
    other = heads(3)[2]
    zero = torch.zeros_like(mean)
    assert torch.equal(reward_differential(mean, sigma, mean, sigma, noise, noise, "sample"), zero)
    assert torch.equal(reward_differential(mean, sigma, mean, sigma, noise, other, "mean"), zero)
    assert bool((reward_differential(mean, sigma, mean, sigma, noise, other, "sample_indep") > 0).all())
    folded = reward_differential(mean, sigma, mean, sigma, noise, noise, "folded")
    assert torch.allclose(folded, 2 / math.sqrt(math.pi) * sigma, rtol=1e-5)


def test_distance_of_means_is_the_exact_w1_between_point_predictions() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        x, y = rng.normal(size=(2, 1, 3))
        one = np.ones(1)
        exact = ot.emd2(one, one, ot.dist(x, y, metric="euclidean"))
        found = transition_distance(
            torch.from_numpy(x[0]), torch.zeros(3), torch.from_numpy(y[0]), torch.zeros(3), "mean"
        )
        assert float(found) == pytest.approx(exact, rel=1e-6)


def test_w2_of_diagonal_gaussians_is_the_bures_wasserstein_distance_of_pot() -> None:
    rng = np.random.default_rng(1)
    for _ in range(5):
        mean_i, mean_j = rng.normal(size=(2, 3))
        sigma_i, sigma_j = rng.uniform(0.05, 2, size=(2, 3))
        exact: Any = ot.gaussian.bures_wasserstein_distance(
            mean_i, mean_j, np.diag(sigma_i**2), np.diag(sigma_j**2)
        )
        found = transition_distance(
            *(torch.from_numpy(x) for x in (mean_i, sigma_i, mean_j, sigma_j)), kind="w2"
        )
        assert float(found) == pytest.approx(float(exact), rel=1e-6)


def test_w2_bounds_the_sampled_w1_from_above_and_the_distance_of_means_bounds_it_from_below() -> None:
    rng = np.random.default_rng(2)
    quantiles = stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    for _ in range(5):
        means, sigmas = rng.normal(size=2), rng.uniform(0.05, 2, size=2)
        w1 = stats.wasserstein_distance(means[0] + sigmas[0] * quantiles, means[1] + sigmas[1] * quantiles)
        arguments = [torch.tensor([x]) for pair in zip(means, sigmas, strict=True) for x in pair]
        assert float(transition_distance(*arguments, kind="mean")) <= w1 + 1e-3
        assert float(transition_distance(*arguments, kind="w2")) >= w1 - 1e-3


def test_rap_distance_of_one_pair_computed_by_hand() -> None:
    mean_i, mean_j = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 5.0])
    sigma_i, sigma_j = torch.tensor([5.0, 1.0]), torch.tensor([1.0, 13.0])
    # dimensions: hypot(3, 4) = 5 and hypot(5, 12) = 13
    assert float(transition_distance(mean_i, sigma_i, mean_j, sigma_j, "rap")) == pytest.approx(9.0)
    assert float(transition_distance(mean_i, sigma_i, mean_j, sigma_j, "w2")) == pytest.approx(math.sqrt(194))
    assert float(transition_distance(mean_i, sigma_i, mean_j, sigma_j, "mean")) == pytest.approx(
        math.sqrt(34)
    )
    assert float(transition_distance(mean_i, sigma_i, mean_j, sigma_j, "mean", "l1")) == pytest.approx(8.0)


@pytest.mark.parametrize("kind", TRANSITIONS)
@pytest.mark.parametrize("ground", GROUNDS)
@settings(max_examples=10)
@given(seed=seeds, rows=st.integers(1, 30), columns=st.integers(1, 30))
def test_pairwise_transition_distance_is_the_elementwise_one_of_every_pair(
    kind: TransitionDistance, ground: LatentDistance, seed: int, rows: int, columns: int
) -> None:
    mean_i, sigma_i, _ = heads(seed, rows, 3)
    mean_j, sigma_j, _ = heads(seed + 1, columns, 3)
    found = pairwise_transition_distance(mean_i, sigma_i, mean_j, sigma_j, kind, ground)
    assert found.shape == (rows, columns)
    for j in range(columns):
        each = transition_distance(
            mean_i, sigma_i, mean_j[j].expand(rows, -1), sigma_j[j].expand(rows, -1), kind, ground
        )
        assert torch.allclose(found[:, j], each, atol=1e-3, rtol=1e-5)


@pytest.mark.parametrize("kind", TRANSITIONS)
@given(seed=seeds)
def test_swapping_a_pair_changes_no_transition_distance(kind: TransitionDistance, seed: int) -> None:
    (mean_i, sigma_i, _), (mean_j, sigma_j, _) = heads(seed, width=4), heads(seed + 1, width=4)
    assert torch.allclose(
        transition_distance(mean_i, sigma_i, mean_j, sigma_j, kind),
        transition_distance(mean_j, sigma_j, mean_i, sigma_i, kind),
    )


def test_target_weighs_both_terms() -> None:
    target = metric_target(torch.tensor([2.0, 0.0]), torch.tensor([10.0, 1.0]), 0.5, 0.9)
    assert target.tolist() == pytest.approx([10.0, 0.9])


def test_target_without_transition_weight_is_the_difference_of_predicted_means() -> None:
    mean_i, sigma_i, noise_i = heads(0)
    mean_j, sigma_j, noise_j = heads(1)
    delta = reward_differential(mean_i, sigma_i, mean_j, sigma_j, noise_i, noise_j, "mean")
    target = metric_target(delta, torch.full_like(delta, 7.0), 1.0, 0.0)
    assert np.allclose(target.numpy(), np.abs(mean_i.numpy() - mean_j.numpy()))


def test_target_and_loss_refuse_shapes_that_would_broadcast() -> None:
    column, row = torch.zeros(4, 1), torch.zeros(4)
    with pytest.raises(ValueError, match=r"\(4, 1\).*\(4,\)"):
        metric_target(column, row, 1.0, 0.9)
    with pytest.raises(ValueError, match=r"\(4, 1\).*\(4,\)"):
        bisim_loss(column, row)


def test_target_gives_no_gradient_to_predictor_or_transition_model() -> None:
    parts = [x.requires_grad_() for head in (heads(0), heads(1)) for x in head]
    mean_i, sigma_i, noise_i, mean_j, sigma_j, noise_j = parts
    delta = reward_differential(mean_i, sigma_i, mean_j, sigma_j, noise_i, noise_j).squeeze(1)
    target = metric_target(delta, transition_distance(mean_i, sigma_i, mean_j, sigma_j), 1.0, 0.9)
    assert not target.requires_grad
    distance = torch.rand(16, requires_grad=True)
    bisim_loss(distance, target).backward()
    assert all(part.grad is None for part in parts)
    assert distance.grad is not None and bool((distance.grad != 0).all())


@pytest.mark.parametrize("kind", ["squared", "huber"])
def test_loss_itself_stops_the_gradient_into_its_target(kind: str) -> None:
    distance, target = torch.rand(8, requires_grad=True), torch.rand(8, requires_grad=True)
    bisim_loss(distance, target, kind).backward()  # pyright: ignore[reportArgumentType]
    assert target.grad is None and distance.grad is not None


def test_losses_of_known_differences() -> None:
    distance, target = torch.tensor([0.5, 3.0]), torch.tensor([0.0, 0.0])
    assert float(bisim_loss(distance, target)) == pytest.approx((0.25 + 9.0) / 2)
    assert float(bisim_loss(distance, target, "huber")) == pytest.approx((0.125 + 2.5) / 2)


CPU = torch.device("cpu")


@given(seed=seeds, batch=st.integers(2, 20))
def test_permuted_pairs_use_every_element_once_on_each_side(seed: int, batch: int) -> None:
    i, j = pair_indices(batch, "perm", torch.Generator().manual_seed(seed), CPU)
    assert i.tolist() == list(range(batch))
    assert sorted(j.tolist()) == list(range(batch))


@given(seed=seeds, batch=st.integers(2, 20))
def test_deranged_pairs_use_every_element_once_and_never_with_itself(seed: int, batch: int) -> None:
    i, j = pair_indices(batch, "derange", torch.Generator().manual_seed(seed), CPU)
    assert sorted(i.tolist()) == sorted(j.tolist()) == list(range(batch))
    assert bool((i != j).all())


def test_a_derangement_needs_two_elements() -> None:
    with pytest.raises(ValueError, match="pairing"):
        pair_indices(1, "derange", torch.Generator(), CPU)


def test_all_pairs_are_every_ordered_pair_once() -> None:
    i, j = pair_indices(5, "all", torch.Generator(), CPU)
    assert sorted(zip(i.tolist(), j.tolist(), strict=True)) == [(a, b) for a in range(5) for b in range(5)]


def test_a_permutation_pairs_one_element_with_itself_on_average() -> None:
    rng = torch.Generator().manual_seed(0)
    pairs = [pair_indices(16, "perm", rng, CPU) for _ in range(2000)]
    meetings = torch.tensor([float((i == j).sum()) for i, j in pairs])
    assert float(meetings.mean()) == pytest.approx(1.0, abs=0.12)


@pytest.mark.parametrize("factor", [0.0, 1e-4, 1.0, 3.0])
def test_a_scaled_gradient_leaves_the_value_and_scales_the_gradient(factor: float) -> None:
    x = torch.tensor([1.0, -2.0, 1e8], requires_grad=True)
    y = scaled_gradient(x, factor)
    assert torch.equal(y, x)
    (y * torch.tensor([1.0, 2.0, 3.0])).sum().backward() if y.requires_grad else None
    grad = torch.zeros(3) if x.grad is None else x.grad
    assert torch.allclose(grad, factor * torch.tensor([1.0, 2.0, 3.0]))


def test_w2_per_dimension_is_that_of_one_normal_each_and_zero_for_equal_ones() -> None:
    rng = np.random.default_rng(3)
    mean_i, mean_j = rng.normal(size=(2, 4))
    sigma_i, sigma_j = rng.uniform(0.05, 2, size=(2, 4))
    said = [torch.from_numpy(x) for x in (mean_i, sigma_i, mean_j, sigma_j)]
    found = w2_per_dimension(*said)
    for d in range(4):
        exact: Any = ot.gaussian.bures_wasserstein_distance(
            mean_i[d : d + 1], mean_j[d : d + 1], np.array([[sigma_i[d] ** 2]]), np.array([[sigma_j[d] ** 2]])
        )
        assert float(found[d]) == pytest.approx(float(exact), rel=1e-6)
    assert torch.equal(found, w2_per_dimension(*said[2:], *said[:2]))
    assert torch.equal(w2_per_dimension(*said[:2], *said[:2]), torch.zeros(4, dtype=torch.float64))
    order = torch.tensor([2, 0, 3, 1])
    shuffled = w2_per_dimension(*(x[order] for x in said))
    assert torch.allclose(shuffled.mean(), found.mean(), rtol=1e-12)
    assert float(found.mean()) == pytest.approx(float(transition_distance(*said, kind="rap")), rel=1e-6)
