"""The learner that every explorer shares: clipped double Q-learning with target noise and n-step windows.

On states it is URLB's DDPG, from pictures DrQ-v2. They differ in what stands before the losses, see `Backbone`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from teb.agents.protocol import Batch, Metrics, Shapes
from teb.checks import in_range, one_of_the_choices, positive
from teb.maths.schedule import parse_schedule, scheduled
from teb.nets.actor_critic import Actor, LatentActor, LatentTwinCritic, TwinCritic, noisy_action
from teb.nets.encoder import ConvEncoder, LatentTrunk, Squash
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
    noise: float | str = 0.2
    """Standard deviation of the exploration noise, a number or linear(start,end,steps) (paper table 3)."""
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
        try:
            start, end, _ = parse_schedule(self.noise)
        except ValueError as error:
            raise ValueError(f"noise: {error}") from None
        for sigma in {start, end}:
            in_range("noise", sigma, 0.0, 10.0)
        in_range("task_reward", self.task_reward, 0.0, 1e6)


Layout = Literal["shared_trunk", "critic_trunk", "separate_head"]
"""Where the latent is.

`shared_trunk`: one trunk belongs to the encoder, actor and critic read its latent. `critic_trunk`: each has a trunk of
its own, the critic's gives the latent (DrQ-v2). `separate_head`: the same, and the latent has a head for itself.
"""


@dataclass(frozen=True)
class EncoderConfig:
    """How pictures become latents."""

    latent_dim: int = 50
    """Width of a latent (paper table 3)."""
    latent_layout: Layout = "shared_trunk"
    """Where the latent is (A-1)."""
    squash: Squash = "tanh"
    """What follows the latent's LayerNorm; RAP has nothing there (A-1)."""
    channels: int = 32
    """Channels of each convolution (paper table 3)."""
    shift: int = 4
    """Largest random shift of a picture in pixels; 0 switches it off (DrQ-v2)."""
    encoder_lr: float = 1e-4
    """Adam's learning rate for encoder and latent (paper table 3)."""
    critic_grad_to_encoder: bool = True
    """Whether the critic's loss trains the encoder as well (A-8)."""
    explorer_grad_to_encoder: bool | None = None
    """Whether the explorer's own loss does, through o_t; None is what that explorer declares (URLB)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        one_of_the_choices(self)
        for name in ("latent_dim", "channels", "encoder_lr"):
            positive(name, getattr(self, name))
        in_range("shift", self.shift, 0, 64)

    def only(self, layout: Layout, why: str) -> None:
        """Refuse, for an agent of its own, any other layout, and a say of explorers that it does not have."""
        if self.latent_layout != layout:
            raise ValueError(f"latent_layout: {why}, must be {layout!r}, got {self.latent_layout!r}")
        if self.explorer_grad_to_encoder is not None:
            raise ValueError(
                f"explorer_grad_to_encoder: there is no explorer, must be None, got {self.explorer_grad_to_encoder}"
            )


class Pictures(NamedTuple):
    """What a backbone that sees pictures is built from."""

    config: EncoderConfig
    shape: tuple[int, int, int]
    """Channels of a whole stack, height, width."""


class Backbone(nn.Module):
    """Encoder, actor, twin critic and its target, with their losses; it steps nothing itself.

    Its losses take batches whose observations are *features*: the observation itself on states, what the encoder makes
    of a picture otherwise. Arguments named `x` are features with the skill behind them, see `joined`. A critic is a
    module (x, action) -> both values, [B, 2]. One of several members also takes the member that each row wants, [B];
    where none is named it is the member of the row's skill. Its `loss_scale` multiplies both losses that run through
    it.

    *Latents* are what explorers see. On states they are the observation once more. Critic and actor have no target
    encoder; a slow copy is kept for who asks, see `keep_slow_encoder`.
    """

    def __init__(
        self,
        config: BackboneConfig,
        shapes: Shapes,
        compute: torch.dtype = torch.float32,
        build_critic: Callable[[Shapes, int, torch.dtype], Any] | None = None,
        pictures: Pictures | None = None,
        before_relu: Callable[[int, int], nn.Module] | None = None,
    ) -> None:
        """`shapes.obs` is the width of a latent; `before_relu` is that of `LatentTwinCritic`, for pictures alone."""
        super().__init__()
        self.config = config
        self.noise = parse_schedule(config.noise)
        self.sigma: float | Tensor = scheduled(self.noise, 0)
        self.pictures = pictures
        self.shared = pictures is None or pictures.config.latent_layout == "shared_trunk"
        self.encoder: nn.Module = nn.Identity()
        self.head: nn.Module = nn.Identity()
        self.slow_encoder: nn.Module | None = None
        if pictures is None:
            self.actor: nn.Module = Actor(shapes.obs + shapes.skill, shapes.action, config.width, compute)
            self.critic: Any = (build_critic or _twin_critic)(shapes, config.width, compute)
        else:
            self._see(pictures, shapes, compute, build_critic, before_relu)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)

    def _see(
        self,
        pictures: Pictures,
        shapes: Shapes,
        compute: torch.dtype,
        build_critic: Callable[[Shapes, int, torch.dtype], Any] | None,
        before_relu: Callable[[int, int], nn.Module] | None,
    ) -> None:
        """Encoder, actor and critic for pictures."""
        seeing, width = pictures.config, self.config.width
        conv = ConvEncoder(pictures.shape, seeing.channels, compute)

        def trunk() -> LatentTrunk:
            return LatentTrunk(conv.features, seeing.latent_dim, seeing.squash)

        if build_critic is not None and not self.shared:
            raise ValueError(
                f"latent_layout: an explorer with its own critic needs 'shared_trunk', got {seeing.latent_layout!r}"
            )
        self.encoder = nn.Sequential(conv, trunk()) if self.shared else conv
        features = seeing.latent_dim if self.shared else conv.features
        inputs = seeing.latent_dim + shapes.skill
        self.actor = LatentActor(
            nn.Identity() if self.shared else trunk(), features, inputs, shapes.action, width, compute
        )
        self.critic = (
            build_critic(shapes, width, compute)
            if build_critic
            else LatentTwinCritic(
                nn.Identity() if self.shared else trunk(),
                features,
                inputs + shapes.action,
                width,
                compute,
                before_relu,
            )
        )
        if seeing.latent_layout == "separate_head":
            self.head = trunk()

    def latent(self, features: Tensor) -> Tensor:
        """Features -> latents, [B, D]."""
        return self._latent_head()(features)

    def _latent_head(self) -> nn.Module:
        critics_own = self.pictures is not None and self.pictures.config.latent_layout == "critic_trunk"
        return self.critic.trunk if critics_own else self.head

    def keep_slow_encoder(self, tau: float) -> None:
        """From now on a copy of what makes latents of pictures follows at this rate."""
        whole = nn.Sequential(self.encoder, self._latent_head())
        self.slow_encoder, self.slow_tau = copy.deepcopy(whole).requires_grad_(False), tau

    def slow_latent(self, images: Tensor) -> Tensor:
        """Pictures -> latents of the slow copy, [B, D]."""
        if self.slow_encoder is None:
            raise ValueError("no slow encoder is kept: the trait slow_tau of a representation asks for one")
        return self.slow_encoder(images)

    def joined(self, features: Tensor, skill: Tensor) -> Tensor:
        """[B, F] and [B, K] -> [B, F + K]."""
        return torch.cat([features, skill.to(features.dtype)], -1) if skill.shape[-1] else features

    def at(self, env_steps: int) -> None:
        """Take up the noise of this step."""
        self.sigma = scheduled(self.noise, env_steps)

    def act(
        self, obs: np.ndarray, skill: np.ndarray, env_steps: int, rng: torch.Generator | None
    ) -> np.ndarray:
        """Mean action for one observation; with a generator of the CPU unclipped noise is added (URLB, DrQ-v2)."""
        device = next(self.actor.parameters()).device
        seen, chosen = (torch.from_numpy(given).to(device).unsqueeze(0) for given in (obs, skill))
        mean = self.actor(self.joined(self.encoder(seen), chosen)).squeeze(0).cpu()
        if rng is None:
            return mean.numpy()
        self.at(env_steps)
        return noisy_action(mean, float(self.sigma), rng).numpy()

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
            next_x = self.joined(batch.next_obs, batch.skill if next_skill is None else next_skill)
            target = reward + batch.discount * self.bootstrap(next_x, rng, *chosen)
        values = self.critic(self.joined(batch.obs, batch.skill), batch.action, *chosen)
        loss = self.critic.loss_scale * (values - target).square().mean(0).sum()
        return loss, {
            "q_mean": values.detach().mean(),
            "q_target": target.mean(),
            "critic_loss": loss.detach(),
        }

    def bootstrap(self, next_x: Tensor, rng: torch.Generator, *chosen: Tensor) -> Tensor:
        """min_j Qbar_j(x', a') with a' from the actor plus clipped noise, [B, 1]."""
        next_action = self.sample_action(next_x, rng)
        return self.target_critic(next_x, next_action, *chosen).amin(-1, keepdim=True)

    def actor_loss(self, batch: Batch, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """-mean min_j Q_j(x, a~) with a~ from the actor plus clipped noise; x carries no gradient."""
        x = self.joined(batch.obs.detach(), batch.skill)
        action = self.sample_action(x, rng)
        loss = -self.critic.loss_scale * self.critic(x, action).amin(-1).mean()
        return loss, {"actor_loss": loss.detach(), "action_abs": action.detach().abs().mean()}

    def sample_action(self, x: Tensor, rng: torch.Generator) -> Tensor:
        """An action as the losses draw it: with clipped noise."""
        return noisy_action(self.actor(x), self.sigma, rng, self.config.noise_clip)

    def encoder_parameters(self) -> list[nn.Parameter]:
        """Everything between a picture and its latent; none on states."""
        latent = [] if self.shared or not hasattr(self.critic, "trunk") else [*self.critic.trunk.parameters()]
        separate = [*self.head.parameters()]
        return [*self.encoder.parameters(), *(separate or latent)]

    def critic_parameters(self) -> list[nn.Parameter]:
        """What the critic loss trains beside the encoder."""
        encoder = {id(parameter) for parameter in self.encoder_parameters()}
        return [parameter for parameter in self.critic.parameters() if id(parameter) not in encoder]

    def follow(self) -> None:
        """Move the target critic, trunk and heads: target <- (1 - tau) target + tau critic; the slow encoder alike."""
        follow(self.target_critic, self.critic, self.config.tau)
        if self.slow_encoder is not None:
            follow(self.slow_encoder, nn.Sequential(self.encoder, self._latent_head()), self.slow_tau)


def _twin_critic(shapes: Shapes, width: int, compute: torch.dtype) -> TwinCritic:
    return TwinCritic(sum(shapes), width, compute)
