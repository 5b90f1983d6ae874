"""Dropout that draws from a generator of its own, and the block that DrM has in its critic's heads."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Dropout(nn.Module):
    """x m / (1 - p) with m Bernoulli(1 - p), while training; its numbers come from the `rng` that it is handed.

    `draw_from` hands it out once all layers are there: a copy made later would have a generator of its own.
    """

    rng: torch.Generator | None = None

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Any shape; without a rate `x` itself, and nothing is drawn."""
        if self.rate == 0 or not self.training:
            return x
        assert self.rng is not None, "draw_from was not called"
        kept = torch.empty_like(x).bernoulli_(1.0 - self.rate, generator=self.rng)
        return x * kept / (1.0 - self.rate)


def draw_from(module: nn.Module, rng: torch.Generator) -> None:
    """Let every dropout inside draw from `rng`."""
    for part in module.modules():
        if isinstance(part, Dropout):
            part.rng = rng


class DropoutNorm(nn.Module):
    """Dropout, then a LayerNorm of each of `blocks` layers that lie side by side (Xu et al. 2024). In float32."""

    def __init__(self, width: int, blocks: int, rate: float, *, normalise: bool = True) -> None:
        super().__init__()
        self.dropout = Dropout(rate)
        self.shape = (blocks, width)
        self.gain = nn.Parameter(torch.ones(self.shape)) if normalise else None
        self.shift = nn.Parameter(torch.zeros(self.shape)) if normalise else None

    def forward(self, x: Tensor) -> Tensor:
        """[B, blocks * width] -> the same shape and precision."""
        h = self.dropout(x.float())
        if self.gain is not None and self.shift is not None:
            h = F.layer_norm(h.unflatten(-1, self.shape), self.shape[1:])
            h = torch.addcmul(self.shift, self.gain, h).flatten(-2)
        return h.to(x.dtype)
