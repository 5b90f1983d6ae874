"""Random shifts of pictures: DrQ-v2's augmentation as an exact crop (Yarats et al. 2022)."""

from __future__ import annotations

import torch
from torch import Tensor


def shift_offsets(batch: int, pad: int, rng: torch.Generator, device: torch.device) -> Tensor:
    """Row and column of each picture's crop, uniform on {0, ..., 2 pad}^2, [B, 2]."""
    return torch.randint(2 * pad + 1, (batch, 2), generator=rng, device=device)


def shifted(images: Tensor, offsets: Tensor, pad: int) -> Tensor:
    """Each picture padded by `pad` repeated border pixels and cropped to its size at its offset, [B, C, H, W].

    All channels of a picture share the offset. The reference resamples bilinearly, at points that all lie on pixel
    centres, so the crop is the same picture, without its rounding. Bytes stay bytes; the result is channels-last.
    """
    batch, channels, height, width = images.shape
    wide = width + 2 * pad
    padded = images.new_empty(batch, height, wide, channels)
    padded[:, :, pad : pad + width] = images.permute(0, 2, 3, 1)
    padded[:, :, :pad] = padded[:, :, pad : pad + 1]
    padded[:, :, pad + width :] = padded[:, :, pad + width - 1 : pad + width]
    # A row of a crop is a run of width * channels numbers; every start of such a run is a row of `runs`. Rows above the
    # first and below the last are those themselves.
    runs = padded.view(-1).as_strided((batch * height * wide - width + 1, width * channels), (channels, 1))
    rows = (offsets[:, :1] - pad + torch.arange(height, device=images.device)).clamp(0, height - 1)
    first = torch.arange(batch, device=images.device).unsqueeze(1) * height
    starts = (first + rows) * wide + offsets[:, 1:]
    return runs.index_select(0, starts.flatten()).view(batch, height, width, channels).permute(0, 3, 1, 2)


def randomly_shifted(images: Tensor, pad: int, rng: torch.Generator) -> Tensor:
    """Each picture at an offset of its own; with a pad of 0 nothing is drawn."""
    return shifted(images, shift_offsets(len(images), pad, rng, images.device), pad) if pad else images
