"""Actor and twin critic of URLB's DDPG on state vectors, with the skill beside the observation.

The last layer of each is in float32: in bfloat16 values above 32 would come in steps of 0.25.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from teb.nets.mlp import Linear, Trunk


class Actor(nn.Module):
    """Trunk, one hidden ReLU layer, Tanh: the mean action in [-1, 1]^A."""

    def __init__(
        self, inputs: int, action_dim: int, width: int, compute: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        self.trunk = Trunk(inputs, width, compute)
        self.hidden = Linear(width, width)
        self.mean = Linear(width, action_dim)

    def forward(self, x: Tensor) -> Tensor:
        """[B, D + K] -> [B, A], float32."""
        h = torch.relu(self.hidden(self.trunk(x)))
        return torch.tanh(self.mean(h.float()))


class TwinCritic(nn.Module):
    """Two value heads on one trunk that reads observation, skill and action together."""

    loss_scale = 1.0
    """Factor of the losses that run through the critic."""

    def __init__(self, inputs: int, width: int, compute: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.trunk = Trunk(inputs, width, compute)
        self.hidden = Linear(width, width, blocks=2)
        self.value1 = Linear(width, 1)
        self.value2 = Linear(width, 1)

    def forward(self, x: Tensor, action: Tensor) -> Tensor:
        """[B, D + K] and [B, A] -> both values, [B, 2], float32."""
        h = torch.relu(self.hidden(self.trunk(torch.cat([x, action], -1))))
        h1, h2 = h.float().chunk(2, -1)
        return torch.cat([self.value1(h1), self.value2(h2)], -1)


class _StraightThroughClamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor, limit: float) -> Tensor:  # noqa: ARG004
        return x.clamp(-limit, limit)

    @staticmethod
    def backward(ctx: object, *grads: Tensor) -> tuple[Tensor, None]:  # noqa: ARG004
        return grads[0], None


def noisy_action(mean: Tensor, sigma: float, rng: torch.Generator, clip: float | None = None) -> Tensor:
    """clamp(mean + clip(sigma xi, -c, c), +-(1 - 1e-6)) with an identity gradient (DrQ-v2's "truncated normal").

    The noise is clipped inside updates (c = 0.3) and not when acting; the gradient with respect to `mean` is 1 also
    where the clamp binds.
    """
    noise = sigma * torch.randn(mean.shape, generator=rng, device=mean.device)
    if clip is not None:
        noise = noise.clamp(-clip, clip)
    return _StraightThroughClamp.apply(mean + noise, 1.0 - 1e-6)  # pyright: ignore[reportReturnType]
