"""DrQ-v2's convolutional encoder, and the trunk that makes a latent of its features (Yarats et al. 2022)."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from teb.nets.mlp import Linear

Squash = Literal["tanh", "none"]

STRIDES = (2, 1, 1, 1)
KERNEL = 3


def side_after(side: int) -> int:
    """Side of the last feature map of pictures with this side: 84 -> 41 -> 39 -> 37 -> 35."""
    for stride in STRIDES:
        side = (side - KERNEL) // stride + 1
    return side


class ConvEncoder(nn.Module):
    """Four 3x3 convolutions without padding, strides 2, 1, 1, 1, a ReLU after each. Bytes in, flat features out.

    Pictures are centred and scaled, p / 255 - 1/2, by taking 127.5 away, which bfloat16 does exactly, and dividing
    the first kernel by 255. Convolutions are in `compute` precision and channels-last; features are flattened in that
    order, without a copy, which permutes the trunk's inputs against the reference and changes nothing else.
    """

    def __init__(
        self, image: tuple[int, int, int], channels: int = 32, compute: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        inputs, height, width = image
        sides = side_after(height), side_after(width)
        if min(sides) < 1:
            raise ValueError(f"image: must have sides of at least 15 pixels, got {height} x {width}")
        self.features = channels * sides[0] * sides[1]
        self.compute = compute
        self.kernels = nn.ParameterList(
            torch.empty(channels, depth, KERNEL, KERNEL)
            for depth in (inputs, *[channels] * (len(STRIDES) - 1))
        )
        self.biases = nn.ParameterList(torch.zeros(channels) for _ in STRIDES)
        for kernel in self.kernels:
            nn.init.orthogonal_(kernel, nn.init.calculate_gain("relu"))

    def forward(self, images: Tensor) -> Tensor:
        """[B, C, H, W] of bytes -> [B, features] in `compute` precision."""
        x = images.contiguous(memory_format=torch.channels_last).to(self.compute).sub_(127.5)
        for layer, (kernel, bias, stride) in enumerate(zip(self.kernels, self.biases, STRIDES, strict=True)):
            weight = (kernel / 255.0 if layer == 0 else kernel).to(self.compute)
            weight = weight.contiguous(memory_format=torch.channels_last)
            x = torch.relu_(F.conv2d(x, weight, bias.to(self.compute), stride))
        return x.permute(0, 2, 3, 1).flatten(1)


class LatentTrunk(nn.Module):
    """Linear, LayerNorm, and Tanh unless `squash` is none: features -> latent in float32 (DrQ-v2; RAP without Tanh)."""

    def __init__(self, inputs: int, latent_dim: int, squash: Squash = "tanh") -> None:
        super().__init__()
        self.linear = Linear(inputs, latent_dim)
        self.norm = nn.LayerNorm(latent_dim)
        self.squash = squash

    def forward(self, features: Tensor) -> Tensor:
        """[B, features] -> [B, latent_dim]."""
        latent = self.norm(self.linear(features).float())
        return torch.tanh(latent) if self.squash == "tanh" else latent
