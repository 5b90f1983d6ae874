from __future__ import annotations

import numpy as np
import pytest
import torch

from teb.nets.augment import randomly_shifted, shift_offsets, shifted
from teb.yardstick import resampled


def pictures(batch: int, channels: int = 9, side: int = 12) -> torch.Tensor:
    rng = np.random.default_rng(0)
    return torch.from_numpy(rng.integers(0, 256, (batch, channels, side, side), dtype=np.uint8))


def every_offset() -> torch.Tensor:
    ticks = torch.arange(9)
    return torch.cartesian_prod(ticks, ticks)


@pytest.mark.parametrize("shape", [(12, 12), (12, 17)])
def test_a_shift_is_the_integer_crop_of_the_padded_picture_for_all_81_offsets(shape: tuple[int, int]) -> None:
    images = torch.randint(0, 256, (81, 9, *shape), dtype=torch.uint8, generator=torch.Generator())
    offsets = every_offset()
    padded = np.pad(images.numpy(), ((0, 0), (0, 0), (4, 4), (4, 4)), mode="edge")
    moved = shifted(images, offsets, 4)
    assert moved.dtype == torch.uint8 and moved.shape == images.shape
    assert moved.is_contiguous(memory_format=torch.channels_last)
    for k, (row, column) in enumerate(offsets.tolist()):
        expected = padded[k, :, row : row + shape[0], column : column + shape[1]]
        assert np.array_equal(moved[k].numpy(), expected)


def test_a_shift_equals_bilinear_resampling_to_a_fraction_of_a_grey_level() -> None:
    images, offsets = pictures(81, side=84), every_offset()
    difference = resampled(images.float(), offsets, 4) - shifted(images, offsets, 4)
    assert float(difference.abs().max()) < 0.02


def test_the_original_is_left_alone_and_a_constant_picture_stays() -> None:
    images = pictures(4)
    before = images.clone()
    shifted(images, torch.full((4, 2), 8), 4)
    assert torch.equal(images, before)
    same = torch.full((3, 9, 20, 20), 77, dtype=torch.uint8)
    assert torch.equal(shifted(same, torch.tensor([[0, 8], [3, 4], [8, 0]]), 4), same)


def test_strided_stacks_shift_like_copies() -> None:
    frames = pictures(5, channels=18)
    stack = frames.as_strided((5, 9, 12, 12), frames.stride(), 3 * 144)
    offsets = torch.tensor([[0, 0], [8, 8], [4, 4], [2, 7], [5, 1]])
    assert torch.equal(shifted(stack, offsets, 4), shifted(stack.contiguous(), offsets, 4))
    assert torch.equal(shifted(stack, torch.full((5, 2), 4), 4), stack)


def test_offsets_are_uniform_and_differ_between_pictures() -> None:
    offsets = shift_offsets(81_000, 4, torch.Generator().manual_seed(0), torch.device("cpu"))
    counts = torch.bincount(9 * offsets[:, 0] + offsets[:, 1], minlength=81)
    assert len(counts) == 81 and int((counts - 1000).abs().max()) < 6 * 1000**0.5
    assert len({tuple(row) for row in offsets[:50].tolist()}) > 20


def test_a_random_shift_is_a_crop_at_drawn_offsets_and_without_a_pad_nothing_is_drawn() -> None:
    images = torch.randint(
        0, 256, (6, 3, 9, 9), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )
    rng, twin = (torch.Generator().manual_seed(0) for _ in range(2))
    assert randomly_shifted(images, 0, rng) is images
    assert torch.equal(rng.get_state(), twin.get_state())
    expected = shifted(images, shift_offsets(6, 2, twin, images.device), 2)
    assert torch.equal(randomly_shifted(images, 2, rng), expected)
