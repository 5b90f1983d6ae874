"""Linear layers, trunks and the rule that a layer computes in the precision of its input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Init = Literal["orthogonal", "uniform"]
"""How a linear layer starts.

`orthogonal`: orthogonal weight of gain 1, zero bias (URLB). `uniform`: weight and bias uniform on +-1/sqrt(inputs),
which is what PyTorch does unasked.
"""

_NARROW = 32
"""Inputs up to which the weight's gradient is formed as x^T g and not as g^T x, which on a CPU takes up to 30 times as
long if it has a few columns. PyTorch picks the one that fits the memory of the factor."""


class Linear(nn.Module):
    """A linear layer that computes in the precision of its input; parameters stay float32.

    With `blocks` > 1 it is that many independent layers on one input, stacked along the output: one matrix product
    instead of several small ones.
    """

    def __init__(self, inputs: int, outputs: int, blocks: int = 1, init: Init = "orthogonal") -> None:
        super().__init__()
        self.blocks = blocks
        self.weight = nn.Parameter(torch.empty(blocks * outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(blocks * outputs))
        if init == "uniform":
            for parameter in (self.weight, self.bias):
                nn.init.uniform_(parameter, -(inputs**-0.5), inputs**-0.5)
        else:
            for block in self.weight.chunk(blocks):
                nn.init.orthogonal_(block)

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., blocks * outputs]."""
        return linear(x, self.weight, self.bias)

    def fresh_weight(self, rng: torch.Generator) -> Tensor:
        """A new orthogonal weight, each block by itself, drawn on the device of the layer."""
        fresh = torch.empty_like(self.weight)
        for block in fresh.chunk(self.blocks):
            nn.init.orthogonal_(block, generator=rng)
        return fresh


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x W^T + b in the precision of x."""
    weight, bias = weight.to(x.dtype), bias.to(x.dtype)
    if x.ndim == 2 and weight.shape[1] <= _NARROW:
        return torch.addmm(bias, x, weight.T.contiguous())
    return F.linear(x, weight, bias)


class Joined(nn.Module):
    """A linear layer on hidden values and a raw input side by side: one product in the precision of each.

    The weight is kept in two pieces, so that neither product, nor its gradient, has to cut it.
    """

    def __init__(self, hidden: int, raw: int, outputs: int, init: Init = "orthogonal") -> None:
        super().__init__()
        whole = Linear(hidden + raw, outputs, init=init)
        of_hidden, of_raw = whole.weight.detach().split((hidden, raw), 1)
        self.hidden_weight = nn.Parameter(of_hidden.contiguous())
        self.raw = Linear(raw, outputs)
        self.raw.weight, self.raw.bias = nn.Parameter(of_raw.contiguous()), whole.bias

    def forward(self, hidden: Tensor, raw: Tensor) -> Tensor:
        """[B, hidden] in any precision and [B, raw] in float32 -> [B, outputs] in the precision of the former."""
        weight = self.hidden_weight.to(hidden.dtype)
        return torch.addmm(self.raw(raw).to(hidden.dtype), hidden, weight.t())


class Trunk(nn.Module):
    """Linear, LayerNorm, Tanh: the first stage of every actor and critic (URLB).

    It reads raw observations and therefore always computes in float32: bfloat16 would round a position of 4.5 to
    steps of 0.03, more than half a coverage bin. What it hands on is in `compute` precision.
    """

    def __init__(self, inputs: int, width: int, compute: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.linear = Linear(inputs, width)
        self.norm = nn.LayerNorm(width)
        self.compute = compute

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs] -> [B, width]."""
        h = self.norm(self.linear(x))
        return torch.tanh(h.to(self.compute))


def hidden_mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Linear, LayerNorm, ReLU, Linear: the shape of TEB's and RAP's model heads (Chen & Pan 2022)."""
    return nn.Sequential(Linear(inputs, hidden), nn.LayerNorm(hidden), nn.ReLU(), Linear(hidden, outputs))


class Mlp(nn.Module):
    """Linear, ReLU, `depth` times, then Linear: the shape of URLB's auxiliary models. Hands out float32.

    Products between hidden layers are in `compute` precision. The first layer reads raw observations and the last one
    says what is compared with them, so both are in float32, the first one if the input is `raw`, the last one unless
    it is `wide`. `layer` builds each layer from its inputs and outputs.
    """

    def __init__(
        self,
        inputs: int,
        hidden: int,
        outputs: int,
        depth: int = 1,
        compute: torch.dtype = torch.float32,
        *,
        raw: bool = True,
        wide: bool = False,
        layer: Callable[[int, int], Linear] = Linear,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layer(hidden if i else inputs, hidden) for i in range(depth))
        self.last = layer(hidden, outputs)
        self.compute = compute
        self.first_compute = torch.float32 if raw else compute
        self.last_compute = compute if wide else torch.float32

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        *inner, outer = self.layers
        x = x.to(self.first_compute)
        for layer in inner:
            x = layer(x).to(self.compute).relu_()
        return self.last(outer(x).relu_().to(self.last_compute)).float()


@contextmanager
def initialised_from(seed: int) -> Iterator[None]:
    """Draw the initial parameters of everything built inside from `seed`, leaving the global generator alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
