"""What DrM does to networks: it listens to the actor and moves weights towards fresh ones (Xu et al. 2024)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from teb.nets.actor_critic import LatentActor
from teb.nets.mlp import Linear

Where = Literal["pre", "post"]
"""Where a unit is listened to: at the output of its linear layer, or behind what follows that layer."""


def linear_layers(module: nn.Module) -> list[Linear]:
    """All linear layers inside, in the order in which they were declared."""
    return [layer for layer in module.modules() if isinstance(layer, Linear)]


@torch.no_grad()
def responses(actor: LatentActor, x: Tensor, where: Where) -> list[Tensor]:
    """What trunk, both hidden layers and the last layer answer to `x`, each [B, H_l]."""
    if where == "pre":
        with _heard(linear_layers(actor)) as answers:
            actor(x)
        return answers
    with _heard((actor.trunk, actor.first, actor.hidden)) as answers:
        action = actor(x)
    latent, first, hidden = answers
    return [latent, first.relu(), hidden.relu(), action]


@contextmanager
def _heard(modules: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    answers: list[Tensor] = []
    hooks = [module.register_forward_hook(lambda *call: answers.append(call[-1])) for module in modules]
    try:
        yield answers
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def move_to_fresh(modules: Sequence[nn.Module], kept: Tensor, rng: torch.Generator) -> None:
    """Theta <- alpha theta + (1 - alpha) theta_fresh for all linear layers of modules of one shape.

    `kept` is alpha, a scalar. All of them get the same fresh weights, orthogonal ones, and biases of zero.
    Convolutions and LayerNorms stay as they are.
    """
    for layers in zip(*map(linear_layers, modules), strict=True):
        fresh = layers[0].fresh_weight(rng)
        for layer in layers:
            layer.weight.mul_(kept).add_((1.0 - kept) * fresh)
            layer.bias.mul_(kept)
