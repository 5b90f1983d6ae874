"""Linear layers, trunks and the rule that a layer computes in the precision of its input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Linear(nn.Module):
    """Orthogonal weight of gain 1, zero bias (URLB). Computes in the precision of its input; parameters stay float32.

    With `blocks` > 1 it is that many independent layers on one input, stacked along the output: one matrix product
    instead of several small ones.
    """

    def __init__(self, inputs: int, outputs: int, blocks: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(blocks * outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(blocks * outputs))
        for block in self.weight.chunk(blocks):
            nn.init.orthogonal_(block)

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., blocks * outputs]."""
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x W^T + b in the precision of x."""
    if x.dtype == weight.dtype:
        return F.linear(x, weight, bias)
    return F.linear(x, weight.to(x.dtype), bias.to(x.dtype))


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
    says what is compared with them, so both are in float32, the last one unless it is `wide`. `layer` builds each
    layer from its inputs and outputs.
    """

    def __init__(
        self,
        inputs: int,
        hidden: int,
        outputs: int,
        depth: int = 1,
        compute: torch.dtype = torch.float32,
        *,
        wide: bool = False,
        layer: Callable[[int, int], Linear] = Linear,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layer(hidden if i else inputs, hidden) for i in range(depth))
        self.last = layer(hidden, outputs)
        self.compute = compute
        self.last_compute = compute if wide else torch.float32

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        for depth, layer in enumerate(self.layers):
            x = torch.relu(layer(x.to(self.compute) if depth else x))
        return self.last(x.to(self.last_compute)).float()


@contextmanager
def initialised_from(seed: int) -> Iterator[None]:
    """Draw the initial parameters of everything built inside from `seed`, leaving the global generator alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
