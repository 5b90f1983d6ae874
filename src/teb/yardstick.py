"""The update of DrQ-v2 as one writes it first, to measure the library's own against: `teb bench --pixels`.

Float32 in PyTorch's default layout, augmentation by bilinear resampling, an Adam that walks over tensors, and gradients
into whatever the losses run through. It computes the same update up to rounding; nothing else uses it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from teb.agents.protocol import Batch
from teb.nets.encoder import side_after


def resampled(images: Tensor, offsets: Tensor, pad: int) -> Tensor:
    """Random shift as a bilinear resampling of the padded picture, [B, C, H, H] -> the same (DrQ-v2's augmentation)."""
    side = images.shape[-1]
    padded = F.pad(images, (pad,) * 4, "replicate")
    whole = side + 2 * pad
    ticks = torch.linspace(-1 + 1 / whole, 1 - 1 / whole, whole, device=images.device)[:side]
    grid = torch.stack([ticks.expand(side, side), ticks.unsqueeze(1).expand(side, side)], -1)
    # Offsets are (row, column), grids are (x, y).
    moved = grid.unsqueeze(0) + offsets.flip(1).view(-1, 1, 1, 2) * (2.0 / whole)
    return F.grid_sample(padded, moved, padding_mode="zeros", align_corners=False)


class _Trunk(nn.Sequential):
    def __init__(self, features: int, latent: int) -> None:
        super().__init__(nn.Linear(features, latent), nn.LayerNorm(latent), nn.Tanh())


def _mlp(inputs: int, width: int, outputs: int) -> nn.Sequential:
    layers = (
        nn.Linear(inputs, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, outputs),
    )
    return nn.Sequential(*layers)


def plain_drqv2(
    batch: Batch, *, width: int, channels: int, latent: int, noise: float = 0.2, tau: float = 0.01
) -> Callable[[], None]:
    """A plain update of fresh networks on a batch of pictures."""
    device, (depth, side) = batch.action.device, batch.window_obs.shape[2:4]
    actions = batch.action.shape[1]
    convolutions: list[nn.Module] = []
    for layer, inputs in enumerate((depth, channels, channels, channels)):
        convolutions += [nn.Conv2d(inputs, channels, 3, stride=1 if layer else 2), nn.ReLU()]
    encoder = nn.Sequential(*convolutions, nn.Flatten()).to(device)
    features = channels * side_after(side) ** 2
    actor = nn.ModuleList([_Trunk(features, latent), _mlp(latent, width, actions)]).to(device)
    heads = [_mlp(latent + actions, width, 1) for _ in range(2)]
    critic = nn.ModuleList([_Trunk(features, latent), *heads]).to(device)
    target = copy.deepcopy(critic)
    optimisers = [
        torch.optim.Adam(part.parameters(), lr=1e-4, foreach=False, fused=False)
        for part in (encoder, critic, actor)
    ]

    def encoded(images: Tensor) -> Tensor:
        offsets = torch.randint(9, (len(images), 2), device=device)
        return encoder(resampled(images.float(), offsets, 4) / 255.0 - 0.5)

    def values(critics: nn.ModuleList, x: Tensor, action: Tensor) -> Tensor:
        inputs = torch.cat([critics[0](x), action], -1)
        return torch.cat([head(inputs) for head in critics[1:]], -1)

    def acted(x: Tensor) -> Tensor:
        mean = torch.tanh(actor[1](actor[0](x)))
        clipped = (noise * torch.randn_like(mean)).clamp(-0.3, 0.3)
        return mean + ((mean + clipped).clamp(-1, 1) - mean).detach()

    def step(loss: Tensor, *stepped: torch.optim.Optimizer) -> None:
        for optimiser in optimisers:
            optimiser.zero_grad()
        loss.backward()
        for optimiser in stepped:
            optimiser.step()

    def update() -> None:
        x = encoded(batch.window_obs[:, 0])
        with torch.no_grad():
            next_x = encoded(batch.window_obs[:, -1])
            best = values(target, next_x, acted(next_x)).amin(-1, keepdim=True)
            goal = batch.reward + batch.discount * best
        step((values(critic, x, batch.action) - goal).square().mean(0).sum(), *optimisers[:2])
        x = x.detach()
        step(-values(critic, x, acted(x)).amin(-1).mean(), optimisers[2])
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), critic.parameters(), strict=True):
                slow.mul_(1 - tau).add_(fast, alpha=tau)

    return update
