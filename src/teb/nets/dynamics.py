"""A forward and an inverse model between two latents: what ICM learns, and what shapes APT's representation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from teb.maths.distances import safe_norm
from teb.nets.mlp import Mlp


class ForwardInverse(nn.Module):
    """f(x, a) predicts x', g(x, x') predicts a, each with one hidden layer (Pathak et al. 2017, sizes of URLB).

    The two share no parameter. Errors are lengths, not squares (URLB). Products over latents are in `compute`
    precision: float32 where latents are raw observations.
    """

    def __init__(
        self, latent_dim: int, action_dim: int, hidden: int, compute: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        self.following = Mlp(latent_dim + action_dim, hidden, latent_dim, 1, compute, raw=False, wide=True)
        self.inverse = Mlp(2 * latent_dim, hidden, action_dim, 1, compute, raw=False)

    def predicted_latent(self, latent: Tensor, action: Tensor) -> Tensor:
        """f(x, a), [B, D] and [B, A] -> [B, D]."""
        return self.following(torch.cat([latent, action], -1))

    def predicted_action(self, latent: Tensor, next_latent: Tensor) -> Tensor:
        """g(x, x') in (-1, 1), [B, D] and [B, D] -> [B, A]."""
        return torch.tanh(self.inverse(torch.cat([latent, next_latent], -1)))

    def forward_error(self, latent: Tensor, action: Tensor, next_latent: Tensor) -> Tensor:
        """e_f = ||x' - f(x, a)||, [B, 1]."""
        return safe_norm(next_latent - self.predicted_latent(latent, action))

    def inverse_error(self, latent: Tensor, action: Tensor, next_latent: Tensor) -> Tensor:
        """e_g = ||a - g(x, x')||, [B, 1]."""
        return safe_norm(action - self.predicted_action(latent, next_latent))
