"""Batches of latents as representations are shown them."""

from __future__ import annotations

import torch
from torch import Tensor

from teb.agents.protocol import Batch, Shapes

D, A, B, GAMMA = 5, 2, 24, 0.97
SHAPES = Shapes(D, A)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def latents(seed: int = 0, size: int = B, rewards: float = 1.0) -> Batch:
    rng = generator(seed)
    window = torch.randn(size, 4, D, generator=rng)
    action = 2 * torch.rand(size, 4, A, generator=rng) - 1
    earned = rewards * torch.randn(size, 3, generator=rng)
    nothing = torch.zeros(size, 1)
    return Batch(
        window[:, 0].clone().requires_grad_(), action[:, 0], nothing, nothing + GAMMA**3, window[:, 3], earned,
        window, action, torch.zeros(size, 0), window[:1, 0],
    )  # fmt: skip


def policy(obs: Tensor, skill: Tensor, rng: torch.Generator | None) -> Tensor:
    return torch.tanh(obs[:, :A] - obs[:, A : 2 * A])
