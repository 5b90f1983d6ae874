"""Random batches and small learners for the tests of agents."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from teb.agents.backbone import Backbone, BackboneConfig
from teb.agents.compose import ComposedAgent
from teb.agents.protocol import Batch, Runtime, Shapes
from teb.explorers.none import NoBonus, NoBonusConfig
from teb.nets.mlp import initialised_from

SHAPES = Shapes(2, 2)
CPU = torch.device("cpu")


def random_batch(
    seed: int = 0,
    *,
    size: int = 16,
    n: int = 3,
    gamma: float = 0.97,
    skill: int = 0,
    reward: float | None = None,
) -> Batch:
    """Consistent windows with random rewards, or one constant n-step reward."""
    rng = generator(seed)
    window_obs = torch.randn(size, n + 1, 2, generator=rng)
    window_action = 2 * torch.rand(size, n + 1, 2, generator=rng) - 1
    rewards = torch.randn(size, n, generator=rng)
    n_step_reward = rewards @ (gamma ** torch.arange(n, dtype=torch.float32))
    return Batch(
        obs=window_obs[:, 0],
        action=window_action[:, 0],
        reward=n_step_reward.unsqueeze(1) if reward is None else torch.full((size, 1), reward),
        discount=torch.full((size, 1), gamma**n),
        next_obs=window_obs[:, -1],
        rewards=rewards,
        window_obs=window_obs,
        window_action=window_action,
        skill=torch.randn(size, skill, generator=rng),
        first_obs=window_obs[:1, 0],
    )


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def backbone(seed: int = 0, shapes: Shapes = SHAPES, **options: Any) -> Backbone:
    values: dict[str, Any] = {"batch_size": 16, "width": 16, "gamma": 0.97} | options
    with initialised_from(seed):
        return Backbone(BackboneConfig(**values), shapes)


def agent(
    seed: int = 0,
    shapes: Shapes = SHAPES,
    compute: torch.dtype = torch.float32,
    build: Any = None,
    **options: Any,
) -> ComposedAgent:
    values: dict[str, Any] = {"batch_size": 16, "width": 16, "gamma": 0.97} | options

    def no_bonus(shapes: Shapes, **terms: Any) -> NoBonus:
        return NoBonus(NoBonusConfig(), shapes, **terms)

    return ComposedAgent(BackboneConfig(**values), build or no_bonus, shapes, Runtime(seed, CPU, compute))


def make_constant(critic: torch.nn.Module, first: float, second: float) -> None:
    """Let the two heads answer with two constants."""
    with torch.no_grad():
        for name, value in (("value1", first), ("value2", second)):
            critic.get_parameter(f"{name}.weight").zero_()
            critic.get_parameter(f"{name}.bias").fill_(value)


def values_of(module: torch.nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters."""
    return {name: p.detach().clone() for name, p in module.named_parameters()}
