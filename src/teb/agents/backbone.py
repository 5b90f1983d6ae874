"""DDPG with clipped double Q-learning, target noise and n-step windows: the learner that every explorer shares."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from teb.agents.protocol import Batch, Metrics, Shapes
from teb.checks import in_range, positive
from teb.nets.actor_critic import Actor, TwinCritic, noisy_action
from teb.nets.memory import follow


@dataclass(frozen=True)
class BackboneConfig:
    """The shared learner."""

    batch_size: int = 1024
    """Windows per update (paper table 3: 1024 in mazes)."""
    width: int = 1024
    """Width of every hidden layer (paper table 3)."""
    lr: float = 1e-4
    """Adam's learning rate for actor and critic (paper table 3)."""
    gamma: float = 0.99
    """Discount (paper table 3: 0.99 in mazes)."""
    n_step: int = 3
    """Length of the critic's window (paper table 3)."""
    tau: float = 0.01
    """Rate at which the target critic follows (paper table 3)."""
    noise: float = 0.2
    """Standard deviation of the exploration noise (paper table 3)."""
    noise_clip: float = 0.3
    """Clip of the noise inside updates, never when acting (paper table 3)."""
    task_reward: float = 1.0
    """Weight of the task's own reward beside the bonus; 0 explores without it (URLB)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        for name in ("batch_size", "width", "lr", "n_step", "noise_clip"):
            positive(name, getattr(self, name))
        in_range("gamma", self.gamma, 0.0, 1.0, high_open=True)
        in_range("tau", self.tau, 0.0, 1.0)
        in_range("noise", self.noise, 0.0, 10.0)
        in_range("task_reward", self.task_reward, 0.0, 1e6)


class Backbone(nn.Module):
    """Encoder, actor, twin critic and its target, with their losses; it steps nothing itself.

    Arguments named `x` are encoded observations with the skill appended, see `encode`. A critic is a module
    (x, action) -> both values, [B, 2]. One of several members also takes the member that each row wants, [B]; where
    none is named it is the member of the row's skill. Its `loss_scale` multiplies both losses that run through it.
    """

    def __init__(
        self,
        config: BackboneConfig,
        shapes: Shapes,
        compute: torch.dtype = torch.float32,
        build_critic: Callable[[Shapes, int, torch.dtype], Any] | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.encoder = nn.Identity()
        self.actor = Actor(shapes.obs + shapes.skill, shapes.action, config.width, compute)
        self.critic = (build_critic or _twin_critic)(shapes, config.width, compute)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)

    def encode(self, obs: Tensor, skill: Tensor) -> Tensor:
        """[B, D] and [B, K] -> [B, D + K]."""
        latent = self.encoder(obs)
        return torch.cat([latent, skill], -1) if skill.shape[-1] else latent

    def critic_loss(
        self,
        batch: Batch,
        reward: Tensor,
        rng: torch.Generator,
        member: Tensor | None = None,
        next_skill: Tensor | None = None,
    ) -> tuple[Tensor, Metrics]:
        """sum_j mean (Q_j(x, a) - y)^2 with y = reward + discount min_j Qbar_j(x', a'), a' with clipped noise.

        `reward` [B, 1] is what the critic learns from, the bonus included. There is no target actor (URLB, DrQ-v2).
        `member` and `next_skill` are those of `teb.agents.protocol.Paid`.
        """
        if reward.shape != batch.discount.shape:
            raise ValueError(
                f"reward: expected shape {tuple(batch.discount.shape)}, got {tuple(reward.shape)}"
            )
        chosen = () if member is None else (member,)
        with torch.no_grad():
            next_x = self.encode(batch.next_obs, batch.skill if next_skill is None else next_skill)
            next_action = self.sample_action(next_x, rng)
            next_value = self.target_critic(next_x, next_action, *chosen).amin(-1, keepdim=True)
            target = reward + batch.discount * next_value
        values = self.critic(self.encode(batch.obs, batch.skill), batch.action, *chosen)
        loss = self.critic.loss_scale * (values - target).square().mean(0).sum()
        return loss, {
            "q_mean": values.detach().mean(),
            "q_target": target.mean(),
            "critic_loss": loss.detach(),
        }

    def actor_loss(self, batch: Batch, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """-mean min_j Q_j(x, a~) with a~ from the actor plus clipped noise; x carries no gradient."""
        with torch.no_grad():
            x = self.encode(batch.obs, batch.skill)
        action = self.sample_action(x, rng)
        loss = -self.critic.loss_scale * self.critic(x, action).amin(-1).mean()
        return loss, {"actor_loss": loss.detach(), "action_abs": action.detach().abs().mean()}

    def sample_action(self, x: Tensor, rng: torch.Generator) -> Tensor:
        """An action as the losses draw it: with clipped noise."""
        return noisy_action(self.actor(x), self.config.noise, rng, self.config.noise_clip)

    def critic_parameters(self) -> list[nn.Parameter]:
        """What the critic loss trains."""
        return [*self.encoder.parameters(), *self.critic.parameters()]

    def follow(self) -> None:
        """Move the target critic, trunk and heads: target <- (1 - tau) target + tau critic."""
        follow(self.target_critic, self.critic, self.config.tau)


def _twin_critic(shapes: Shapes, width: int, compute: torch.dtype) -> TwinCritic:
    return TwinCritic(sum(shapes), width, compute)
