"""Layers whose largest singular value is held at 1, so that a network of them and ReLUs stretches no distance."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from teb.maths.spectral import power_iteration, spectral_norm
from teb.nets.mlp import Linear, linear

START_ITERATIONS = 15
"""Power iterations when a layer is made: the bound holds from the first step on (ours; Park et al.'s code has none)."""


class SpectralLinear(Linear):
    """A linear layer with weight W / sigma, sigma = u^T W v from power iteration (Miyato et al. 2018); free bias.

    u and v are buffers. They move only when `iterate` is called, before each step on the weight. The bound is as good
    as they are: where another singular value overtakes the largest, they need some iterations to turn to it.
    """

    left: Tensor
    right: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.register_buffer("left", normalize(torch.randn(outputs), dim=0))
        self.register_buffer("right", torch.zeros(inputs))
        self.iterate(START_ITERATIONS)

    @torch.no_grad()
    def iterate(self, times: int = 1) -> None:
        """Power iterations on the current weight."""
        left, right = self.left, self.right
        for _ in range(times):
            left, right = power_iteration(self.weight, left)
        self.left.copy_(left)
        self.right.copy_(right)

    def sigma(self) -> Tensor:
        """What the weight is divided by; its gradient goes into the weight alone."""
        # Copies: the buffers move before the next step, and the graph may still be read then.
        return spectral_norm(self.weight, self.left.clone(), self.right.clone())

    def effective_weight(self) -> Tensor:
        """W / sigma, [outputs, inputs]."""
        return self.weight / self.sigma()

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs], in the precision of the input."""
        return linear(x, self.effective_weight(), self.bias)


def spectral_layers(net: nn.Module) -> list[SpectralLinear]:
    """The layers of a network that are held."""
    return [module for module in net.modules() if isinstance(module, SpectralLinear)]
