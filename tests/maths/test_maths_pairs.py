from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from teb.maths.pairs import SHARE_FLOOR, group_cosines, group_positives, positive_share


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def shares_by_hand(features: np.ndarray, positive: np.ndarray, temperature: float) -> np.ndarray:
    """The definition, one item at a time."""
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    found: list[float] = []
    for i, p in enumerate(positive):
        others = [j for j in range(len(unit)) if j != i]
        scores = {j: float(unit[i] @ unit[j]) / temperature for j in others}
        shift = max(scores.values())
        found.append(
            math.exp(scores[p] - shift) / (sum(math.exp(s - shift) for s in scores.values()) + SHARE_FLOOR)
        )
    return np.array(found)


# --- positives --------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 4), min_size=2, max_size=40), st.integers(0, 2**31))
def test_a_positive_is_another_item_of_the_same_group(groups: list[int], seed: int) -> None:
    for rule in ("random", "first"):
        positive, paired = group_positives(torch.tensor(groups), rule, generator(seed))
        for i, p in enumerate(positive.tolist()):
            assert groups[p] == groups[i]
            assert (p != i) == bool(paired[i]) == (groups.count(groups[i]) > 1)


def test_the_first_rule_takes_the_first_other_item_in_batch_order() -> None:
    positive, paired = group_positives(torch.tensor([2, 0, 2, 0, 2, 5]), "first", generator())
    assert positive.tolist() == [2, 3, 0, 1, 0, 5]
    assert paired.tolist() == [True] * 5 + [False]


def test_random_positives_are_uniform_over_the_others_of_the_group() -> None:
    groups = torch.tensor([1, 0, 1, 1, 0, 1])
    rng = generator()
    drawn = torch.stack([group_positives(groups, "random", rng)[0] for _ in range(6000)])
    for i, others in {0: [2, 3, 5], 1: [4], 3: [0, 2, 5]}.items():
        shares = torch.bincount(drawn[:, i], minlength=6) / len(drawn)
        assert shares[others].tolist() == pytest.approx([1 / len(others)] * len(others), abs=0.03)
    together = (drawn[:, 0] == 2).float() @ (drawn[:, 3] == 2).float() / len(drawn)
    assert float(together) == pytest.approx(1 / 9, abs=0.03), "items of a group draw independently"


# --- shares -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.5, 0.05, 2.0])
def test_share_is_the_definition(temperature: float) -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(12, 5))
    positive = (np.arange(12) + rng.integers(1, 12, 12)) % 12
    found = positive_share(torch.from_numpy(features).float(), torch.from_numpy(positive), temperature)
    assert np.allclose(found.numpy(), shares_by_hand(features, positive, temperature), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("size", [2, 8, 1024])
def test_identical_features_share_equally(size: int) -> None:
    features = torch.tensor([[1.0, 2.0, -1.0]]).expand(size, -1)
    share = positive_share(features, (torch.arange(size) + 1) % size, 0.5)
    assert torch.allclose(share, torch.full((size,), 1 / (size - 1)), atol=1e-5)


def test_shares_do_not_depend_on_the_length_of_features() -> None:
    features, positive = torch.randn(16, 4, generator=generator()), (torch.arange(16) + 3) % 16
    plain = positive_share(features, positive, 0.5)
    scales = torch.logspace(-2, 2, 16).unsqueeze(1)
    assert torch.allclose(positive_share(scales * features, positive, 0.5), plain, atol=1e-6)


@pytest.mark.parametrize("length", [0.01, 1.0, 100.0])
def test_an_item_is_no_candidate_of_its_own(length: float) -> None:
    """With an item orthogonal to all others the scores are all 0, unless its own, 1 / T, were counted."""
    rest = torch.cat([torch.zeros(7, 1), torch.randn(7, 3, generator=generator())], 1)
    features = torch.cat([torch.tensor([[length, 0.0, 0.0, 0.0]]), rest])
    share = positive_share(features, torch.tensor([4, *([0] * 7)]), 0.5)
    assert share[0].item() == pytest.approx(1 / 7, abs=1e-6)


def test_shares_of_all_candidates_sum_to_one() -> None:
    features = torch.randn(10, 3, generator=generator())
    total = torch.zeros(10)
    for offset in range(1, 10):
        total += positive_share(features, (torch.arange(10) + offset) % 10, 0.5)
    assert torch.allclose(total, torch.ones(10), atol=1e-5)


def test_an_item_that_is_its_own_positive_has_no_share_and_no_gradient() -> None:
    features = torch.randn(4, 3, generator=generator()).requires_grad_()
    share = positive_share(features, torch.tensor([0, 2, 1, 1]), 0.5)
    assert share[0].item() == 0.0
    share.sum().backward()
    assert features.grad is not None and bool(features.grad.isfinite().all())


def test_two_separated_clusters_by_hand() -> None:
    """K = 2, B = 8: three others at cosine 1, four at cosine -1, T = 0.5."""
    features = torch.tensor([[1.0, 0.0]] * 4 + [[-1.0, 0.0]] * 4)
    share = positive_share(features, torch.tensor([1, 2, 3, 0, 5, 6, 7, 4]), 0.5)
    by_hand = math.exp(2) / (3 * math.exp(2) + 4 * math.exp(-2))
    assert torch.allclose(share, torch.full((8,), by_hand), atol=1e-5)


def clusters(size: int, count: int) -> tuple[Tensor, Tensor]:
    return torch.arange(size) % count, torch.eye(count)[torch.arange(size) % count]


def test_sizes_of_the_share_at_the_papers_batch() -> None:
    """What a batch of 1024 with 16 skills and T = 0.5 can pay (64 of each): collapsed and orthogonal features."""
    groups, orthogonal = clusters(1024, 16)
    positive, _ = group_positives(groups, "random", generator())
    collapsed = positive_share(torch.ones(1024, 16), positive, 0.5)
    assert collapsed.mean().item() == pytest.approx(0.00098, abs=1e-5)
    apart = positive_share(orthogonal, positive, 0.5)
    assert apart.mean().item() == pytest.approx(math.exp(2) / (63 * math.exp(2) + 960), abs=1e-5)
    assert apart.mean().item() == pytest.approx(0.0052, abs=1e-4)


@given(st.integers(2, 30), st.integers(0, 2**31))
def test_shares_and_their_gradients_are_finite(size: int, seed: int) -> None:
    features = torch.randn(size, 4, generator=generator(seed))
    features[: size // 2] = features[0]
    features[-1] = 0.0
    features.requires_grad_()
    share = positive_share(features, (torch.arange(size) + 1) % size, 0.01)
    assert bool((share >= 0).all()) and bool((share <= 1).all())
    (share + SHARE_FLOOR).log().sum().backward()
    assert features.grad is not None and bool(features.grad.isfinite().all())


def test_one_item_has_no_others() -> None:
    with pytest.raises(ValueError, match="at least 2 items, got 1"):
        positive_share(torch.ones(1, 2), torch.zeros(1, dtype=torch.int64), 0.5)


# --- cosines ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 3), min_size=2, max_size=20), st.integers(0, 2**31))
def test_group_cosines_are_those_of_all_pairs(groups: list[int], seed: int) -> None:
    features = torch.randn(len(groups), 3, generator=generator(seed))
    same, cross = [0.0], [0.0]
    unit = features.double().numpy() / np.linalg.norm(features.double().numpy(), axis=1, keepdims=True)
    for i in range(len(groups)):
        for j in range(len(groups)):
            if i != j:
                (same if groups[i] == groups[j] else cross).append(float(unit[i] @ unit[j]))
    found = group_cosines(features, torch.eye(4)[groups])
    for value, pairs in zip(found, (same, cross), strict=True):
        assert value.item() == pytest.approx(sum(pairs) / max(len(pairs) - 1, 1), abs=1e-4)
