"""Actor and twin critic: URLB's DDPG on state vectors, DrQ-v2 on features of pictures; skills stand beside them.

The last layer of each is in float32: in bfloat16 values above 32 would come in steps of 0.25.
"""

from __future__ import annotations

from collections.abc import Callable

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


class LatentActor(nn.Module):
    """Trunk, two hidden ReLU layers, Tanh (DrQ-v2). What stands behind the features, a skill, joins after the trunk."""

    def __init__(
        self,
        trunk: nn.Module,
        features: int,
        latent: int,
        action_dim: int,
        width: int,
        compute: torch.dtype = torch.float32,
    ) -> None:
        """`latent` is the width behind the trunk, the skill included; of `x` the first `features` go through it."""
        super().__init__()
        self.trunk, self.features, self.compute = trunk, features, compute
        self.first = Linear(latent, width)
        self.hidden = Linear(width, width)
        self.mean = Linear(width, action_dim)

    def forward(self, x: Tensor) -> Tensor:
        """[B, F + K] -> [B, A], float32."""
        h = torch.relu(self.first(through(self.trunk, x, self.features)).to(self.compute))
        return torch.tanh(self.mean(torch.relu(self.hidden(h)).float()))


class LatentTwinCritic(nn.Module):
    """Two value heads of two hidden layers each behind one trunk; action and skill join after the trunk (DrQ-v2)."""

    loss_scale = 1.0

    def __init__(
        self,
        trunk: nn.Module,
        features: int,
        inputs: int,
        width: int,
        compute: torch.dtype = torch.float32,
        before_relu: Callable[[int, int], nn.Module] | None = None,
    ) -> None:
        """`inputs` is the width behind the trunk, skill and action included.

        `before_relu` builds what stands between a hidden layer and its ReLU, from a width and how many heads lie side
        by side; nothing does by default.
        """
        super().__init__()
        self.trunk, self.features, self.compute = trunk, features, compute
        self.first = Linear(inputs, width, blocks=2)
        self.hidden1 = Linear(width, width)
        self.hidden2 = Linear(width, width)
        self.value1 = Linear(width, 1)
        self.value2 = Linear(width, 1)
        self.before_first, self.before1, self.before2 = (
            before_relu(width, heads) if before_relu else nn.Identity() for heads in (2, 1, 1)
        )

    def forward(self, x: Tensor, action: Tensor) -> Tensor:
        """[B, F + K] and [B, A] -> both values, [B, 2], float32."""
        latent = through(self.trunk, x, self.features)
        h = torch.relu(self.before_first(self.first(torch.cat([latent, action], -1))).to(self.compute))
        h1, h2 = h.chunk(2, -1)
        h1, h2 = self.before1(self.hidden1(h1)), self.before2(self.hidden2(h2))
        h1, h2 = torch.relu(h1).float(), torch.relu(h2).float()
        return torch.cat([self.value1(h1), self.value2(h2)], -1)


def through(trunk: nn.Module, x: Tensor, features: int) -> Tensor:
    """The first `features` columns through the trunk, the others beside them in float32."""
    if x.shape[-1] == features:
        return trunk(x)
    return torch.cat([trunk(x[:, :features]), x[:, features:].float()], -1)


class _StraightThroughClamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor, limit: float) -> Tensor:  # noqa: ARG004
        return x.clamp(-limit, limit)

    @staticmethod
    def backward(ctx: object, *grads: Tensor) -> tuple[Tensor, None]:  # noqa: ARG004
        return grads[0], None


def noisy_action(
    mean: Tensor, sigma: float | Tensor, rng: torch.Generator, clip: float | None = None
) -> Tensor:
    """clamp(mean + clip(sigma xi, -c, c), +-(1 - 1e-6)) with an identity gradient (DrQ-v2's "truncated normal").

    The noise is clipped inside updates (c = 0.3) and not when acting; the gradient with respect to `mean` is 1 also
    where the clamp binds.
    """
    noise = sigma * torch.randn(mean.shape, generator=rng, device=mean.device)
    if clip is not None:
        noise = noise.clamp(-clip, clip)
    return _StraightThroughClamp.apply(mean + noise, 1.0 - 1e-6)  # pyright: ignore[reportReturnType]
