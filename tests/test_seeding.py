from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from teb.seeding import child_seed, numpy_generator, torch_generator

PURPOSES = ["backbone", "explorer", "acting", "learning", "exploring", "uniform actions", "replay", "episode"]
words = st.lists(
    st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=12)
    | st.integers(0, 2**32 - 1),
    min_size=1,
    max_size=3,
)


def test_seeds_are_the_same_everywhere_and_forever() -> None:
    assert child_seed(0, "backbone") == 4619658949990717388
    assert child_seed(3, "episode", 12) == 8206532501670008462
    assert child_seed(2**63 - 1, "uniform actions") == 6280416959689962580


def test_draws_are_the_same_everywhere_and_forever() -> None:
    assert numpy_generator(3, "replay").integers(1000, size=4).tolist() == [777, 38, 947, 823]
    assert torch.randint(1000, (4,), generator=torch_generator(3, "acting")).tolist() == [358, 505, 344, 366]


def test_purposes_and_seeds_and_numbers_all_differ() -> None:
    seeds = {child_seed(seed, purpose) for seed in range(50) for purpose in PURPOSES}
    seeds |= {child_seed(seed, "episode", number) for seed in range(20) for number in range(200)}
    assert len(seeds) == 50 * len(PURPOSES) + 20 * 200


def test_episode_seeds_hardly_collide_after_they_are_cut_to_31_bits() -> None:
    seeds = {child_seed(0, "episode", number) % 2**31 for number in range(2000)}
    assert len(seeds) >= 1998


@given(st.integers(0, 2**63 - 1), words)
def test_seeds_fit_numpy_torch_and_gymnasium(seed: int, purpose: list[str | int]) -> None:
    child = child_seed(seed, *purpose)
    assert 0 <= child < 2**63
    assert child == child_seed(seed, *purpose)
    np.random.default_rng(child)
    torch.Generator().manual_seed(child)


@given(st.integers(0, 2**63 - 1), words, words)
def test_different_purposes_have_different_seeds(
    seed: int, one: list[str | int], other: list[str | int]
) -> None:
    assert (child_seed(seed, *one) == child_seed(seed, *other)) == (one == other)


def test_generators_of_two_purposes_do_not_share_numbers() -> None:
    one, other = numpy_generator(0, "replay"), numpy_generator(0, "uniform actions")
    assert not set(one.integers(2**62, size=100).tolist()) & set(other.integers(2**62, size=100).tolist())
    first, second = torch_generator(0, "acting"), torch_generator(0, "learning")
    assert not torch.equal(torch.randn(100, generator=first), torch.randn(100, generator=second))


def test_a_generator_starts_afresh_each_time() -> None:
    assert numpy_generator(1, "replay").random() == numpy_generator(1, "replay").random()
    one, two = torch_generator(1, "acting"), torch_generator(1, "acting")
    assert torch.equal(torch.randn(5, generator=one), torch.randn(5, generator=two))
