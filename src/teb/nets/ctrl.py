"""The networks of CTRL-SR (Gao et al. 2025): features of a pair, embeddings of where it leads, heads on the features.

Inner products are in `compute` precision, layers that read latents or angles, norms, and last layers in float32.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from teb.maths.diffusion import sinusoidal_embedding
from teb.maths.fourier import fourier_features
from teb.nets.mlp import Linear

_Linear = partial(Linear, init="uniform")


class ResidualBlock(nn.Module):
    """x + Linear(Mish(Linear(LayerNorm(x))))."""

    def __init__(self, width: int, compute: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner, self.outer = _Linear(width, width), _Linear(width, width)
        self.compute = compute

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] -> [..., width], float32."""
        return x + self.outer(F.mish(self.inner(self.norm(x).to(self.compute)))).float()


class ResidualMlp(nn.Module):
    """Linear, residual blocks, Mish, Linear; with `wide` the last layer is in `compute` precision as well."""

    def __init__(
        self,
        inputs: int,
        hidden: int,
        outputs: int,
        blocks: int,
        compute: torch.dtype = torch.float32,
        *,
        wide: bool = False,
    ) -> None:
        super().__init__()
        self.first, self.last = _Linear(inputs, hidden), _Linear(hidden, outputs)
        self.blocks = nn.Sequential(*(ResidualBlock(hidden, compute) for _ in range(blocks)))
        self.last_compute = compute if wide else torch.float32

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs], float32."""
        h = F.mish(self.blocks(self.first(x)))
        return self.last(h.to(self.last_compute)).float()


class PairFeatures(nn.Module):
    """phi(z, a), of unit length."""

    def __init__(
        self,
        latent: int,
        action: int,
        hidden: int,
        outputs: int,
        blocks: int,
        compute: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.body = ResidualMlp(latent + action, hidden, outputs, blocks, compute)

    def forward(self, latent: Tensor, action: Tensor) -> Tensor:
        """[B, D] and [B, A] -> [B, F]."""
        return F.normalize(self.body(torch.cat([latent, action], -1)), dim=-1, eps=1e-8)


class NoisedEmbedding(nn.Module):
    """mu(x, k) of noised latents x at every level k = 1 ... T, with a log-temperature for each level."""

    def __init__(
        self,
        latent: int,
        hidden: int,
        outputs: int,
        blocks: int,
        levels: int,
        level_width: int,
        compute: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.level_width = level_width
        self.level = nn.Sequential(
            _Linear(level_width, 2 * level_width), nn.Mish(), _Linear(2 * level_width, level_width)
        )
        self.body = ResidualMlp(latent + level_width, hidden, outputs, blocks, compute, wide=True)
        self.log_temperature = nn.Parameter(torch.zeros(levels))

    def forward(self, noised: Tensor) -> Tensor:
        """[T, B, D] -> [T, B, F]."""
        steps = torch.arange(1, len(noised) + 1, device=noised.device)
        level = self.level(sinusoidal_embedding(steps, self.level_width))
        return self.body(torch.cat([noised, level.unsqueeze(1).expand(-1, noised.shape[1], -1)], -1))

    def logits(self, features: Tensor, noised: Tensor) -> Tensor:
        """G^k_ij = phi_i^T mu(x_kj, k) / exp(nu_k): [B, F] and [T, B, D] -> [T, B, B]."""
        products = torch.einsum("if,kjf->kij", features, self(noised))
        return products / self.log_temperature.exp().view(-1, 1, 1)


class FourierHead(nn.Module):
    """A number from features: LayerNorm, Linear, sines and cosines, Linear, LayerNorm, ELU, Linear."""

    def __init__(self, features: int, pairs: int, width: int, compute: torch.dtype = torch.float32) -> None:
        """`pairs` is how many angles there are, each with a sine and a cosine."""
        super().__init__()
        self.angles = nn.Sequential(nn.LayerNorm(features), _Linear(features, pairs))
        self.hidden, self.norm, self.value = _Linear(2 * pairs, width), nn.LayerNorm(width), _Linear(width, 1)
        self.compute = compute

    def forward(self, features: Tensor) -> Tensor:
        """[B, F] -> [B, 1], float32."""
        h = self.hidden(fourier_features(self.angles(features)).to(self.compute)).float()
        return self.value(F.elu(self.norm(h)))


class FourierTwin(nn.Module):
    """Two such heads that share nothing."""

    def __init__(self, features: int, pairs: int, width: int, compute: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.heads = nn.ModuleList(FourierHead(features, pairs, width, compute) for _ in range(2))

    def forward(self, features: Tensor) -> Tensor:
        """[B, F] -> both values, [B, 2]."""
        return torch.cat([head(features) for head in self.heads], -1)


class NormedActor(nn.Module):
    """Linear, LayerNorm, ReLU three times, Linear, Tanh: the mean action."""

    def __init__(self, latent: int, action: int, width: int, compute: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Linear(width if i else latent, width) for i in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in self.layers)
        self.mean = _Linear(width, action)
        self.compute = compute

    def forward(self, latent: Tensor) -> Tensor:
        """[B, D] -> [B, A], float32."""
        h = latent
        for layer, norm in zip(self.layers, self.norms, strict=True):
            h = torch.relu(norm(layer(h).float())).to(self.compute)
        return torch.tanh(self.mean(h.float()))
