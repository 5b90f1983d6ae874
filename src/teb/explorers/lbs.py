"""LBS: how far an outcome moves the belief about a latent state, a KL divergence (Mazzaglia et al. 2022).

There is no official form for this backbone. `vae` follows the paper; `port` is the form of a later port to URLB
(Ying et al. 2024, arXiv 2405.14073), with deviations fixed at 1 and a bonus that predicts the divergence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from teb.agents.protocol import Batch, Metrics, NStepMode, Paid, Policy, Shapes, Traits
from teb.checks import in_range, one_of_the_choices, positive
from teb.explorers.entry import Entry
from teb.maths.gaussian import equal_spread_kl, gaussian_kl, surprise_loss
from teb.maths.running import standardised
from teb.nets.memory import RunningMoments
from teb.nets.mlp import Joined, Linear, Mlp


@dataclass(frozen=True)
class LbsConfig:
    """Beliefs, decoder and what is paid."""

    vae_beta: ClassVar[float] = 0.1
    eta: float = 1.0
    """Weight of the bonus (Ying et al. 2024)."""
    nstep_mode: NStepMode = "window"
    """What a transition is on windows of n steps: the whole window (URLB), each of its steps, or n = 1 everywhere."""
    variant: Literal["vae", "port"] = "vae"
    """The paper's model, or that of the port to URLB."""
    beta: float | None = None
    """Weight of the divergence in the loss; None means 0.1 for vae (Mazzaglia et al. 2022, vectors), 1 for port."""
    hidden: int = 1024
    """Width of hidden layers; 32 in the original (paper table 3)."""
    latent: int | None = None
    """Size of the latent state; None means that of the observation for vae, `hidden` for port (their codes)."""
    sigma_floor: float = 1e-4
    """Smallest standard deviation of vae's beliefs (Mazzaglia et al. 2022)."""
    obs_norm: Literal["none", "running"] = "none"
    """Standardise observations by their moments so far, clipped at 10; the original does (ours: none)."""
    rew_norm: Literal["none", "rms"] = "none"
    """Divide the bonus by the root of its running variance (ours)."""
    model_lr: float = 1e-4
    """Adam's learning rate for all models; the original has 3e-4 for vectors (Ying et al. 2024)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        one_of_the_choices(self)
        for name in ("hidden", "sigma_floor", "model_lr"):
            positive(name, getattr(self, name))
        in_range("eta", self.eta, 0.0, 1e6)
        if self.beta is not None:
            in_range("beta", self.beta, 0.0, 1e6)
        if self.latent is not None:
            positive("latent", self.latent)


@dataclass(frozen=True)
class PixelLbsConfig(LbsConfig):
    """The same, for latents of pictures."""

    vae_beta: ClassVar[float] = 0.01
    beta: float | None = None
    """Weight of the divergence in the loss; None means 0.01 for vae (Mazzaglia et al. 2022, images), 1 for port."""


class Seen(NamedTuple):
    """Transitions as the models see them."""

    obs: Tensor
    """[B, D]"""
    action: Tensor
    """[B, A]"""
    next_obs: Tensor
    """[B, D]"""


class VaeBeliefs(nn.Module):
    """Prior from observation and action, posterior from the outcome as well; both Gaussian with learnt deviations."""

    def __init__(
        self, shapes: Shapes, hidden: int, latent: int, sigma_floor: float, compute: torch.dtype
    ) -> None:
        super().__init__()
        self.sigma_floor = sigma_floor
        self.compute = compute
        self.first = Linear(shapes.obs + shapes.action, hidden, init="uniform")
        self.second = Linear(hidden, hidden, init="uniform")
        self.prior = Linear(hidden, 2 * latent, init="uniform")
        self.joined = Joined(hidden, shapes.obs, hidden, init="uniform")
        self.third = Linear(hidden, hidden, init="uniform")
        self.posterior = Linear(hidden, 2 * latent, init="uniform")
        self.decode = Linear(latent, shapes.obs, init="uniform")

    def forward(self, seen: Seen) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Mean and deviation of the posterior, then of the prior, [B, Z] each."""
        known = self.first(torch.cat([seen.obs, seen.action], -1))
        before = torch.relu(self.second(torch.relu(known.to(self.compute))))
        after = torch.relu(self.third(torch.relu(self.joined(before, seen.next_obs))))
        return *self._belief(self.posterior(after.float())), *self._belief(self.prior(before.float()))

    def _belief(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        mean, spread = raw.chunk(2, -1)
        return mean, F.softplus(spread) + self.sigma_floor

    def loss(self, seen: Seen, beta: float, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """The negative evidence bound, the posterior sampled once."""
        mean, sigma, *prior = self(seen)
        kl = gaussian_kl(mean, sigma, *prior)
        decoded = self.decode(mean + sigma * torch.randn(mean.shape, generator=rng, device=mean.device))
        return surprise_loss(kl, seen.next_obs, decoded, beta).mean(), _metrics(kl, seen, decoded)

    def surprise(self, seen: Seen) -> Tensor:
        """KL(q || p) in closed form, [B]."""
        return gaussian_kl(*self(seen))


class PortBeliefs(nn.Module):
    """Prior and posterior means in a wide latent space, both with deviation 1; the decoder reads the mean."""

    def __init__(self, shapes: Shapes, hidden: int, latent: int, compute: torch.dtype) -> None:
        super().__init__()
        self.compute = compute
        known = shapes.obs + shapes.action
        self.prior = Mlp(known, hidden, latent, compute=compute, wide=True)
        self.posterior = Mlp(known + shapes.obs, hidden, latent, compute=compute, wide=True)
        self.decode = Mlp(latent, hidden, shapes.obs)
        self.expected = Mlp(known, hidden, 1)

    def forward(self, seen: Seen) -> tuple[Tensor, Tensor]:
        """Means of posterior and prior, [B, Z] each."""
        return self.posterior(torch.cat(seen, -1)), self.prior(torch.cat(seen[:2], -1))

    def loss(self, seen: Seen, beta: float, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """The negative evidence bound, and half the squared error of the expected divergence."""
        posterior, prior = self(seen)
        kl, decoded = equal_spread_kl(posterior, prior, 1.0), self.decode(posterior.to(self.compute))
        missed = self.surprise(seen) - kl.detach()
        loss = surprise_loss(kl, seen.next_obs, decoded, beta).mean() + 0.5 * missed.square().mean()
        rmse = missed.detach().square().mean().sqrt()
        return loss, _metrics(kl, seen, decoded) | {"expected_kl_rmse": rmse}

    def surprise(self, seen: Seen) -> Tensor:
        """The divergence to expect of an observation and an action, whatever came of it, [B]."""
        return self.expected(torch.cat(seen[:2], -1)).squeeze(-1)


def _metrics(kl: Tensor, seen: Seen, decoded: Tensor) -> Metrics:
    missed = (seen.next_obs - decoded.detach()).square().sum(-1)
    return {"kl_mean": kl.detach().mean(), "decoder_rmse": missed.mean().sqrt()}


class Lbs(nn.Module):
    """The explorer: learns to encode outcomes, and pays for how much each one tells."""

    def __init__(
        self,
        config: LbsConfig,
        shapes: Shapes,
        *,
        gamma: float,
        n_step: int,
        compute: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config = config
        self.traits = Traits(eta=config.eta).shown(config.nstep_mode)
        self.beliefs: VaeBeliefs | PortBeliefs
        if config.variant == "vae":
            latent, beta = config.latent or shapes.obs, config.vae_beta
            self.beliefs = VaeBeliefs(shapes, config.hidden, latent, config.sigma_floor, compute)
        else:
            latent, beta = config.latent or config.hidden, 1.0
            self.beliefs = PortBeliefs(shapes, config.hidden, latent, compute)
        self.beta = beta if config.beta is None else config.beta
        self.obs_moments = RunningMoments(shapes.obs) if config.obs_norm == "running" else None
        self.reward_moments = RunningMoments() if config.rew_norm == "rms" else None

    def parameter_groups(self) -> list[dict[str, Any]]:
        """All models with one learning rate. Adam steps each parameter by itself, so one optimiser serves for two."""
        return [{"params": list(self.parameters()), "lr": self.config.model_lr}]

    def seen(self, batch: Batch) -> Seen:
        """What the models are shown of each window."""
        return Seen(self.scaled(batch.obs), batch.action, self.scaled(batch.next_obs))

    def scaled(self, obs: Tensor) -> Tensor:
        """Observations as they come, or standardised."""
        moments = self.obs_moments
        return obs if moments is None else standardised(obs, moments.mean, moments.variance, 10.0)

    def loss(self, batch: Batch, policy: Policy, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """That of the beliefs."""
        return self.beliefs.loss(self.seen(batch), self.beta, rng)

    @torch.no_grad()
    def reward(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Paid:
        """The surprise of each window, [B, 1]."""
        bonus = self.beliefs.surprise(self.seen(batch)).unsqueeze(1)
        if self.reward_moments is not None:
            self.reward_moments.take(bonus)
            bonus = bonus / self.reward_moments.deviation()
        return Paid(bonus, {"bonus_mean": bonus.mean(), "bonus_std": bonus.std()})

    @torch.no_grad()
    def after_step(self, batch: Batch, policy: Policy, rng: torch.Generator) -> None:
        """Count the batch's observations in, once the update is done, so that loss and bonus see one scale."""
        if self.obs_moments is not None:
            self.obs_moments.take(batch.obs)


LBS = Entry(
    "how far an outcome moves the belief about a latent state",
    "Mazzaglia et al. 2022, arXiv 2104.07495",
    LbsConfig(),
    Lbs,
    {"hidden": 256, "model_lr": 4e-4},
    {"port": {"variant": "port"}},
    pixels=PixelLbsConfig(),
    calibrate_updates=1000,
)
