"""CTRL-SR: values are linear in Fourier features of a contrastive representation (Gao et al. 2025, arXiv 2512.15036).

phi(s, a) is learnt such that P(s' | s, a) is proportional to p(s') exp(phi(s, a)^T mu(s')); an encoder makes the s.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from teb.agents.backbone import BackboneConfig, EncoderConfig
from teb.agents.descent import descend
from teb.agents.protocol import Batch, Metrics, Runtime, Sampling, Shapes, Skills, State
from teb.agents.state import state_of, take_up
from teb.checks import in_range, positive
from teb.maths.diffusion import noised, retained_signal
from teb.maths.ranking import ranking_loss, repeated_rows
from teb.maths.running import standardised
from teb.maths.schedule import parse_schedule, scheduled
from teb.nets.actor_critic import noisy_action
from teb.nets.augment import randomly_shifted
from teb.nets.ctrl import FourierHead, FourierTwin, NoisedEmbedding, NormedActor, PairFeatures
from teb.nets.encoder import ConvEncoder, LatentTrunk
from teb.nets.memory import RunningMoments, follow
from teb.nets.mlp import initialised_from
from teb.seeding import child_seed, torch_generator


@dataclass(frozen=True)
class SpectralConfig:
    """The representation and what is read from it."""

    feature_dim: int = 512
    """Width of phi and mu (released code)."""
    hidden: int = 512
    """Width of the networks of phi and mu (released code)."""
    residual_blocks: int = 2
    """Residual blocks in each of them (released code)."""
    fourier_pairs: int = 512
    """Sines, and as many cosines, that a head makes of phi (released code)."""
    noise_levels: int = 25
    """Levels of noise on the next latent, each with a contrast of its own (released code)."""
    beta_min: float = 0.1
    """Start of the noise schedule (released code)."""
    beta_max: float = 10.0
    """End of the noise schedule (released code)."""
    level_width: int = 128
    """Width of a level's embedding (released code)."""
    feature_lr: float = 1e-4
    """Adam's learning rate for phi, mu, temperatures and the reward head (released code)."""
    reward_weight: float = 1.0
    """Weight of the reward head's loss beside the contrast (released code)."""
    critic_weight: float = 1.0
    """Weight of the critic's loss (released code)."""
    mask_duplicates: bool = False
    """Leave next observations that equal a window's own out of its contrast (ours)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        sizes = ("feature_dim", "hidden", "residual_blocks", "fourier_pairs", "noise_levels", "feature_lr")
        for name in (*sizes, "beta_max"):
            positive(name, getattr(self, name))
        in_range("beta_min", self.beta_min, 0.0, self.beta_max)
        for name in ("reward_weight", "critic_weight"):
            in_range(name, getattr(self, name), 0.0, 1e6)
        if self.level_width < 4 or self.level_width % 2:
            raise ValueError(f"level_width: must be even and at least 4, got {self.level_width}")


CPU_SPECTRAL: dict[str, Any] = {"feature_dim": 128, "hidden": 128, "fourier_pairs": 128, "feature_lr": 4e-4}
"""A quarter of the widths: mu runs at every level, on 25 times the batch."""


@dataclass(frozen=True)
class CtrlsrConfig:
    """CTRL-SR from pixels."""

    backbone: BackboneConfig
    """Actor, critic, targets, noise; `width` is that of the actor and of the heads' hidden layers."""
    encoder: EncoderConfig
    """How pictures become latents."""
    spectral: SpectralConfig
    """How latents become features."""

    def __post_init__(self) -> None:
        """Refuse what has no meaning here."""
        if self.backbone.batch_size < 2:
            raise ValueError(
                f"batch_size: a contrast needs at least 2 windows, got {self.backbone.batch_size}"
            )
        self.encoder.only("shared_trunk", "actor and features read one latent")


class Learner(nn.Module):
    """Everything that has a slow copy: encoder, features phi, actor, critic."""

    def __init__(
        self, config: CtrlsrConfig, actions: int, image: tuple[int, int, int], compute: torch.dtype
    ) -> None:
        super().__init__()
        seeing, spectral, width = config.encoder, config.spectral, config.backbone.width
        conv = ConvEncoder(image, seeing.channels, compute)
        self.encoder = nn.Sequential(conv, LatentTrunk(conv.features, seeing.latent_dim, seeing.squash))
        self.features = PairFeatures(
            seeing.latent_dim,
            actions,
            spectral.hidden,
            spectral.feature_dim,
            spectral.residual_blocks,
            compute,
        )
        self.critic = FourierTwin(spectral.feature_dim, spectral.fourier_pairs, width, compute)
        self.actor = NormedActor(seeing.latent_dim, actions, width, compute)


class Contrast(nn.Module):
    """What shapes the features: where a pair leads must be found among where others lead, and its reward told."""

    retained: Tensor

    def __init__(self, config: SpectralConfig, latent: int, width: int, compute: torch.dtype) -> None:
        super().__init__()
        self.reward_weight = config.reward_weight
        self.embedding = NoisedEmbedding(
            latent,
            config.hidden,
            config.feature_dim,
            config.residual_blocks,
            config.noise_levels,
            config.level_width,
            compute,
        )
        self.reward = FourierHead(config.feature_dim, config.fourier_pairs, width, compute)
        self.moments = RunningMoments(latent)
        schedule = retained_signal(config.noise_levels, config.beta_min, config.beta_max)
        self.register_buffer("retained", schedule, persistent=False)

    @torch.no_grad()
    def standardised(self, latent: Tensor) -> Tensor:
        """Latents in units of their moments so far, these included: the schedule is made for unit variance."""
        self.moments.take(latent)
        return standardised(latent, self.moments.mean, self.moments.variance, math.inf)

    def loss(
        self,
        features: Tensor,
        next_latent: Tensor,
        reward: Tensor,
        left_out: Tensor | None,
        rng: torch.Generator,
    ) -> tuple[Tensor, Metrics]:
        """Mean over levels of the ranking loss, plus the reward head's mean square.

        Next latents are standardised, [B, D], rewards those of one step, [B, 1].
        """
        noise = torch.randn(len(self.retained), *next_latent.shape, generator=rng, device=next_latent.device)
        logits = self.embedding.logits(features, noised(next_latent, self.retained, noise))
        by_level = ranking_loss(logits, left_out)
        reward_loss = (self.reward(features) - reward).square().mean()
        told = by_level.detach()
        return by_level.mean() + self.reward_weight * reward_loss, {
            "nce_loss": told.mean(),
            "nce_clean": told[0],
            "nce_noisy": told[-1],
            "temperature": self.embedding.log_temperature.detach().exp().mean(),
            "reward_loss": reward_loss.detach(),
        }


class CtrlsrAgent:
    """Contrast, critic and actor on one encoder; every slow copy follows at one rate."""

    skills = Skills()

    def __init__(
        self, config: CtrlsrConfig, shapes: Shapes, runtime: Runtime, image: tuple[int, int, int]
    ) -> None:
        backbone, spectral, device = config.backbone, config.spectral, runtime.device
        self.config, self.device = config, device
        self.noise = parse_schedule(backbone.noise)
        self.sigma = scheduled(self.noise, 0)
        self.sampling: Sampling | None = Sampling(
            backbone.batch_size, backbone.n_step, backbone.n_step, backbone.gamma
        )
        with initialised_from(child_seed(runtime.seed, "backbone")):
            self.fast = Learner(config, shapes.action, image, runtime.compute).to(device)
        self.slow = copy.deepcopy(self.fast).requires_grad_(False)
        with initialised_from(child_seed(runtime.seed, "representation")):
            self.contrast = Contrast(spectral, config.encoder.latent_dim, backbone.width, runtime.compute).to(
                device
            )
        shaped = [*self.fast.features.parameters(), *self.contrast.parameters()]
        self.encoder_optimiser = _adam(self.fast.encoder.parameters(), config.encoder.encoder_lr)
        self.feature_optimiser = _adam(shaped, spectral.feature_lr)
        self.critic_optimiser = _adam(self.fast.critic.parameters(), backbone.lr)
        self.actor_optimiser = _adam(self.fast.actor.parameters(), backbone.lr)
        self.acting = torch_generator(runtime.seed, "acting")
        self.learning = torch_generator(runtime.seed, "learning", device=device)
        self.shifting = torch_generator(runtime.seed, "shifting", device=device)
        self.representing = torch_generator(runtime.seed, "representing", device=device)

    @torch.inference_mode()
    def act(self, obs: np.ndarray, skill: np.ndarray, env_steps: int, *, explore: bool) -> np.ndarray:
        """Mean action, with unclipped noise if `explore` (DrQ-v2)."""
        seen = torch.from_numpy(obs).to(self.device).unsqueeze(0)
        mean = self.fast.actor(self.fast.encoder(seen)).squeeze(0).cpu()
        if explore:
            mean = noisy_action(mean, scheduled(self.noise, env_steps), self.acting)
        return mean.numpy()

    def update(self, batch: Batch, env_steps: int) -> Metrics:
        """Contrast and critic, in one step or one after the other; then the actor; then the slow copies."""
        self.sigma = scheduled(self.noise, env_steps)
        config, fast, slow = self.config, self.fast, self.slow
        end = batch.window_obs.shape[1] - 1
        images = {
            step: randomly_shifted(batch.window_obs[:, step], config.encoder.shift, self.shifting)
            for step in sorted({0, 1, end})
        }
        with torch.no_grad():
            ahead = {step: slow.encoder(image) for step, image in images.items()}
        latent = fast.encoder(images[0])
        features = fast.features(latent, batch.action)
        repeated = repeated_rows(batch.next1_obs)
        shaping, shaped = self.contrast.loss(
            features,
            self.contrast.standardised(ahead[1]),
            config.backbone.task_reward * batch.rewards[:, :1],
            repeated if config.spectral.mask_duplicates else None,
            self.representing,
        )
        target = self.target(batch, ahead[end])
        shapers = (self.encoder_optimiser, self.feature_optimiser)
        if config.encoder.critic_grad_to_encoder:
            critic_loss, valued = self.critic_loss(features, target)
            descend(shaping + config.spectral.critic_weight * critic_loss, (*shapers, self.critic_optimiser))
        else:
            descend(shaping, shapers)
            critic_loss, valued = self.critic_loss(slow.features(ahead[0], batch.action), target)
            descend(config.spectral.critic_weight * critic_loss, self.critic_optimiser)
        actor_loss, acted = self.actor_loss(latent.detach(), ahead[0])
        descend(actor_loss, self.actor_optimiser)
        follow(slow, fast, config.backbone.tau)
        duplicates = {"duplicates": repeated.any(1).float().mean()}
        return shaped | duplicates | valued | acted

    @torch.no_grad()
    def target(self, batch: Batch, next_latent: Tensor) -> Tensor:
        """R^(n) + discount min_m Qbar_m(phibar(zbar', a')), a' of the slow actor with clipped noise, [B, 1]."""
        action = self._noisy(self.slow.actor(next_latent))
        value = self.slow.critic(self.slow.features(next_latent, action)).amin(-1, keepdim=True)
        return self.config.backbone.task_reward * batch.reward + batch.discount * value

    def critic_loss(self, features: Tensor, target: Tensor) -> tuple[Tensor, Metrics]:
        """sum_m mean (Q_m(features) - y)^2."""
        values = self.fast.critic(features)
        loss = (values - target).square().mean(0).sum()
        return loss, {
            "q_mean": values.detach().mean(),
            "q_target": target.mean(),
            "critic_loss": loss.detach(),
        }

    def actor_loss(self, latent: Tensor, slow_latent: Tensor) -> tuple[Tensor, Metrics]:
        """Minus the mean over batch and both heads of Q_m(phibar(zbar, a)), a of the actor at z with clipped noise."""
        action = self._noisy(self.fast.actor(latent))
        loss = -self.fast.critic(self.slow.features(slow_latent, action)).mean()
        return loss, {"actor_loss": loss.detach(), "action_abs": action.detach().abs().mean()}

    def _noisy(self, mean: Tensor) -> Tensor:
        return noisy_action(mean, self.sigma, self.learning, self.config.backbone.noise_clip)

    def _saved(self) -> dict[str, Any]:
        return {
            "modules": {"fast": self.fast, "slow": self.slow, "contrast": self.contrast},
            "optimisers": {
                "encoder": self.encoder_optimiser,
                "features": self.feature_optimiser,
                "critic": self.critic_optimiser,
                "actor": self.actor_optimiser,
            },
            "generators": {
                "acting": self.acting,
                "learning": self.learning,
                "shifting": self.shifting,
                "representing": self.representing,
            },
        }

    def state(self) -> State:
        """Parameters, buffers, optimiser moments and generators."""
        return state_of(**self._saved())

    def load(self, state: State) -> None:
        """Take up a state that `state` gave."""
        take_up(state, **self._saved())


def _adam(parameters: Any, lr: float) -> torch.optim.Adam:
    return torch.optim.Adam(list(parameters), lr=lr, fused=True)
