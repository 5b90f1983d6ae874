"""DrM: DrQ-v2 that watches how much of its actor is silent, and acts on it (Xu et al. 2024, arXiv 2310.19668)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from teb.agents.backbone import Backbone, BackboneConfig, EncoderConfig, Pictures
from teb.agents.descent import descend
from teb.agents.protocol import Batch, Metrics, Runtime, Sampling, Shapes, Skills, State
from teb.agents.sight import Sight
from teb.agents.state import state_of, take_up
from teb.checks import in_range, one_of_the_choices, positive
from teb.maths.dormancy import (
    awakened_noise,
    dormant_noise,
    dormant_ratio,
    expectile_loss,
    perturb_factor,
    value_share,
)
from teb.nets.actor_critic import LatentActor
from teb.nets.dormancy import Where, move_to_fresh, responses
from teb.nets.dropout import DropoutNorm, draw_from
from teb.nets.encoder import LatentTrunk
from teb.nets.mlp import Mlp, initialised_from
from teb.seeding import child_seed, torch_generator


@dataclass(frozen=True)
class DrmConfig:
    """What DrM adds to DrQ-v2, as its code has it for Meta-World."""

    dormant_on: Where = "pre"
    """Whether units are listened to before their activation (DrM's code) or behind it (Sokar et al. 2023)."""
    dormant_threshold: float = 0.025
    """A unit is dormant below this share of its layer's mean answer (DrM's code)."""
    target_dormant: float = 0.2
    """Dormant ratio below which the actor counts as awake (DrM's code)."""
    dormant_noise: bool = True
    """Whether noise follows the dormant ratio; without, it follows --noise alone (DrM's code)."""
    noise_sharpness: float = 10.0
    """How sharply noise grows around the target ratio, the inverse of a temperature of 0.1 (DrM's code)."""
    perturb_every: int = 100_000
    """A perturbation precedes updates at multiples of so many environment steps; 0 for none (DrM's code)."""
    perturb_rate: float = 2.0
    """How fast a perturbation keeps less of the weights as the dormant ratio grows (DrM's code)."""
    perturb_min: float = 0.2
    """The least that a perturbation keeps of the weights (DrM's code)."""
    perturb_max: float = 0.95
    """The most that it keeps; 0.9 for sweep-into (DrM's code)."""
    perturb_target: Literal["independent", "shared"] = "independent"
    """Whether the target critic moves towards fresh weights of its own (DrM's code) or towards the critic's."""
    value_weight: float = 0.5
    """Weight of V beside the target critic in the critic's target; 0.6 for sweep-into (DrM's code)."""
    value_follows: Literal["constant", "dormancy"] = "constant"
    """Whether that weight stays or fades with the dormant ratio, as for locomotion, there from 0.6 (DrM's code)."""
    expectile: float = 0.9
    """The expectile of Q that V regresses (DrM's code)."""
    dropout: float = 0.01
    """Dropout in the critic's heads, only for Meta-World (DrM's code)."""
    head_norm: bool = True
    """Whether the critic's heads have LayerNorms, only for Meta-World (DrM's code)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        one_of_the_choices(self)
        for name in ("dormant_threshold", "target_dormant", "value_weight", "expectile"):
            in_range(name, getattr(self, name), 0.0, 1.0)
        for name in ("noise_sharpness", "perturb_rate"):
            positive(name, getattr(self, name))
        in_range("perturb_every", self.perturb_every, 0, 2**63)
        in_range("perturb_min", self.perturb_min, 0.0, 1.0)
        in_range("perturb_max", self.perturb_max, self.perturb_min, 1.0)
        in_range("dropout", self.dropout, 0.0, 1.0, high_open=True)


@dataclass(frozen=True)
class DrmAgentConfig:
    """The configuration of the agent."""

    backbone: BackboneConfig
    """The shared learner."""
    encoder: EncoderConfig
    """How pictures become latents."""
    drm: DrmConfig
    """What DrM adds."""

    def __post_init__(self) -> None:
        """Refuse layouts in which the actor has no trunk to listen to, and what has no meaning here."""
        self.encoder.only("critic_trunk", "drm has a trunk each for actor, critic and value")


class DrmBackbone(Backbone):
    """The shared learner with a value network, a critic that drops out, and noise that follows dormancy."""

    dormant: Tensor
    awake_step: Tensor
    kept: Tensor

    def __init__(
        self,
        config: BackboneConfig,
        drm: DrmConfig,
        shapes: Shapes,
        compute: torch.dtype,
        pictures: Pictures,
    ) -> None:
        """`shapes.obs` is the width of a latent."""
        heads = partial(DropoutNorm, rate=drm.dropout, normalise=drm.head_norm)
        super().__init__(config, shapes, compute, pictures=pictures, before_relu=heads)
        self.drm = drm
        assert isinstance(self.actor, LatentActor)
        trunk = LatentTrunk(self.actor.features, shapes.obs, pictures.config.squash)
        self.value = nn.Sequential(trunk, Mlp(shapes.obs, config.width, 1, depth=2, compute=compute))
        self.register_buffer("dormant", torch.ones(()))
        self.register_buffer("awake_step", torch.tensor(-1))
        self.register_buffer("kept", torch.ones(()))

    def listen(self, features: Tensor, env_steps: int) -> None:
        """Take the dormant ratio of the actor on this batch; the first one below the target says when it awoke."""
        config = self.drm
        assert isinstance(self.actor, LatentActor)
        answers = responses(self.actor, features, config.dormant_on)
        ratio = dormant_ratio(answers, config.dormant_threshold, inclusive=config.dormant_on == "post")
        self.dormant.copy_(ratio)
        awakes = (self.awake_step < 0) & (ratio < config.target_dormant)
        self.awake_step.copy_(torch.where(awakes, env_steps, self.awake_step))

    def at(self, env_steps: int) -> None:
        """Take up the noise of this step: that of the latest dormant ratio, 1 before there is one."""
        if not self.drm.dormant_noise:
            super().at(env_steps)
            return
        least = dormant_noise(self.dormant, self.drm.target_dormant, self.drm.noise_sharpness)
        self.sigma = awakened_noise(least, self.noise, env_steps, self.awake_step)

    def perturb(self, rng: torch.Generator) -> None:
        """Move every linear layer towards fresh weights, the further the more of the actor is dormant."""
        config = self.drm
        self.kept.copy_(
            perturb_factor(self.dormant, config.perturb_rate, config.perturb_min, config.perturb_max)
        )
        critics = [self.critic, self.target_critic]
        alike = [critics] if config.perturb_target == "shared" else [[critic] for critic in critics]
        for modules in ([self.actor], *alike, [self.value]):
            move_to_fresh(modules, self.kept, rng)

    def share(self) -> Tensor:
        """The weight of V in the critic's target."""
        most = self.drm.value_weight
        if self.drm.value_follows == "constant":
            return torch.full_like(self.dormant, most)
        return value_share(self.dormant, most, self.drm.target_dormant)

    def bootstrap(self, next_x: Tensor, rng: torch.Generator, *chosen: Tensor) -> Tensor:
        """Blends lambda V(x') + (1 - lambda) min_j Qbar_j(x', a'), [B, 1]."""
        share = self.share()
        return share * self.value(next_x) + (1.0 - share) * super().bootstrap(next_x, rng, *chosen)

    def dormancy(self) -> Metrics:
        """What logs say of dormancy; `awake_step` is negative before the actor awoke."""
        return {
            "dormant_ratio": self.dormant.clone(),
            "awake_step": self.awake_step.clone(),
            "noise": torch.as_tensor(self.sigma, device=self.dormant.device),
            "perturb_kept": self.kept.clone(),
            "value_share": self.share(),
        }

    def value_loss(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """The expectile regression of V(x) on min_j Q_j(x, a), which is a constant here; x carries no gradient."""
        x = batch.obs.detach()
        with torch.no_grad():
            target = self.critic(x, batch.action).amin(-1, keepdim=True)
        value = self.value(x)
        loss = expectile_loss(value - target, self.drm.expectile)
        return loss, {"value_mean": value.detach().mean(), "value_loss": loss.detach()}


class DrmAgent:
    """The learner with its optimiser steps in their order, and the generators."""

    skills = Skills()

    def __init__(
        self, config: DrmAgentConfig, shapes: Shapes, runtime: Runtime, image: tuple[int, int, int]
    ) -> None:
        """`image` is the shape of a stack of frames."""
        latent = shapes._replace(obs=config.encoder.latent_dim)
        pictures = Pictures(config.encoder, image)
        with initialised_from(child_seed(runtime.seed, "backbone")):
            backbone = DrmBackbone(config.backbone, config.drm, latent, runtime.compute, pictures)
        self.backbone = backbone.to(runtime.device)
        learner = config.backbone
        self.sampling: Sampling | None = Sampling(
            learner.batch_size, learner.n_step, learner.n_step, learner.gamma
        )
        self.optimisers = {
            name: torch.optim.Adam(parameters, lr=lr, fused=True)
            for name, parameters, lr in (
                ("critic", self.backbone.critic_parameters(), learner.lr),
                ("actor", self.backbone.actor.parameters(), learner.lr),
                ("encoder", self.backbone.encoder_parameters(), config.encoder.encoder_lr),
                ("value", self.backbone.value.parameters(), learner.lr),
            )
        }
        self.critic_trains_encoder = config.encoder.critic_grad_to_encoder
        self.acting = torch_generator(runtime.seed, "acting")
        self.learning, self.shifting, self.dropping, self.perturbing = (
            torch_generator(runtime.seed, purpose, device=runtime.device)
            for purpose in ("learning", "shifting", "dropping", "perturbing")
        )
        draw_from(self.backbone, self.dropping)

    @torch.inference_mode()
    def act(self, obs: np.ndarray, skill: np.ndarray, env_steps: int, *, explore: bool) -> np.ndarray:
        """Mean action, with unclipped noise if `explore`."""
        return self.backbone.act(obs, skill, env_steps, self.acting if explore else None)

    def update(self, batch: Batch, env_steps: int) -> Metrics:
        """Perturbation if one is due, dormant ratio, value step, critic and encoder step, actor step, target."""
        learner, optimisers = self.backbone, self.optimisers
        every = learner.drm.perturb_every
        if every and env_steps % every == 0:
            self.perturb()
        seen = self.look(batch).learnt_from(through_encoder=self.critic_trains_encoder)
        learner.listen(seen.obs.detach(), env_steps)
        learner.at(env_steps)
        value_loss, metrics = learner.value_loss(seen)
        descend(value_loss, optimisers["value"])
        critic_loss, critic_metrics = learner.critic_loss(
            seen, learner.config.task_reward * seen.reward, self.learning
        )
        trained = ("critic", "encoder") if self.critic_trains_encoder else ("critic",)
        descend(critic_loss, [optimisers[name] for name in trained])
        actor_loss, actor_metrics = learner.actor_loss(seen, self.learning)
        descend(actor_loss, optimisers["actor"])
        learner.follow()
        return metrics | critic_metrics | actor_metrics | learner.dormancy()

    def look(self, batch: Batch) -> Sight:
        """The batch as this agent sees it; it reads no step but the two ends of a window."""
        return Sight(self.backbone, batch, self.shifting, self.shifting)

    def perturb(self) -> None:
        """Perturb the weights, and forget the moments of every optimiser, the encoder's included."""
        self.backbone.perturb(self.perturbing)
        for optimiser in self.optimisers.values():
            optimiser.state.clear()

    def _modules(self) -> dict[str, nn.Module]:
        return {"backbone": self.backbone}

    def _generators(self) -> dict[str, torch.Generator]:
        names = ("acting", "learning", "shifting", "dropping", "perturbing")
        return {name: getattr(self, name) for name in names}

    def state(self) -> State:
        """Parameters, buffers, optimiser moments and generators."""
        return state_of(self._modules(), self.optimisers, self._generators())

    def load(self, state: State) -> None:
        """Take up a state that `state` gave."""
        take_up(state, self._modules(), self.optimisers, self._generators())
