"""A variational autoencoder of vectors, whose reconstruction error says how rare an input is."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from teb.maths.gaussian import gaussian_kl
from teb.nets.mlp import Linear, Mlp

LOG_VARIANCE_LIMIT = 20.0
"""Largest absolute log-variance of a code (ours): beyond it e^x would overflow on observations of size 10,000."""


class Coded(NamedTuple):
    """One pass through the autoencoder."""

    mean: Tensor
    """mu of the code, [B, C]."""
    log_variance: Tensor
    """log sigma^2 of the code, [B, C]."""
    reconstruction: Tensor
    """The decoder's answer to one draw of the code, [B, D]."""


class Vae(nn.Module):
    """Encoder and decoder of two hidden ReLU layers each. Always in float32: it compares outputs with its inputs."""

    def __init__(self, inputs: int, hidden: int, code: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            Linear(inputs, hidden),
            nn.ReLU(),
            Linear(hidden, hidden),
            nn.ReLU(),
            Linear(hidden, code, blocks=2),
        )
        self.decoder = Mlp(code, hidden, inputs, depth=2)

    def forward(self, x: Tensor, rng: torch.Generator) -> Coded:
        """[B, D] -> the code's moments, and the reconstruction from mu + sigma xi."""
        mean, raw = self.encoder(x).chunk(2, -1)
        log_variance = raw.clamp(-LOG_VARIANCE_LIMIT, LOG_VARIANCE_LIMIT)
        noise = torch.randn(mean.shape, generator=rng, device=mean.device)
        return Coded(mean, log_variance, self.decoder(mean + (0.5 * log_variance).exp() * noise))


def code_cost(coded: Coded) -> Tensor:
    """KL of the code to the standard normal, summed over its C numbers, [B]."""
    zero, one = coded.mean.new_zeros(()), coded.mean.new_ones(())
    return gaussian_kl(coded.mean, (0.5 * coded.log_variance).exp(), zero, one)


def squared_error(x: Tensor, coded: Coded) -> Tensor:
    """||x - reconstruction||^2, summed over the D numbers, [B]."""
    return (x - coded.reconstruction).square().sum(-1)
