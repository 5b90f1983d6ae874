"""The models behind metrics between latents: reward predictor, latent transition model, reward decoder."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from teb.maths.distances import capped
from teb.maths.gaussian import SigmaParam, bounded_sigma, gaussian_nll
from teb.nets.mlp import Linear, hidden_mlp

Transition = Literal["gaussian", "deterministic"]

WDist = Literal["mean", "rap", "w2", "sample"]
"""Stand-ins for W1 between predictions: those of `teb.maths.bisimulation`, or the distance of one draw each."""

TRANSITION_SIGMA = (1e-4, 10.0)
"""Range of the transition model's standard deviation (Chen & Pan 2022, released code)."""


class TransitionModel(nn.Sequential):
    """P(z' | z, a): one hidden layer with LayerNorm -> mean and deviation, both [B, D]; of a point, deviation 0."""

    def __init__(
        self,
        latent_dim: int,
        action_dim: int,
        *,
        hidden: int,
        transition: Transition = "gaussian",
        sigma_range: tuple[float, float] = TRANSITION_SIGMA,
    ) -> None:
        gaussian = transition == "gaussian"
        super().__init__(*hidden_mlp(latent_dim + action_dim, hidden, latent_dim * (1 + gaussian)))
        self.gaussian, self.sigma_range = gaussian, sigma_range

    def forward(self, input: Tensor) -> tuple[Tensor, Tensor]:
        """Latent and action side by side, [B, D + A]."""
        said = super().forward(input)
        if not self.gaussian:
            return said, torch.zeros_like(said)
        mean, raw = said.chunk(2, -1)
        return mean, bounded_sigma(raw, *self.sigma_range)

    def loss(self, mean: Tensor, sigma: Tensor, next_latent: Tensor) -> Tensor:
        """Gaussian NLL of the next latent (Chen & Pan 2022), or half its squared error; no gradient to it."""
        target = next_latent.detach()
        if self.gaussian:
            return gaussian_nll(target, mean, sigma).mean()
        return 0.5 * (target - mean).square().mean()


def error_length(mean: Tensor, next_latent: Tensor) -> Tensor:
    """Root of the mean squared length of a prediction's error, for logs: [B, D] twice -> a scalar, no gradient."""
    return (mean.detach() - next_latent.detach()).square().sum(-1).mean().sqrt()


class LatentDynamics(nn.Module):
    """A transition model, and what decodes the reward from a draw of it: the models that RAP and DBC share.

    `radius` bounds the norm of means and draws (Kemertas & Aumentado-Armstrong 2021).
    """

    def __init__(
        self,
        latent_dim: int,
        action_dim: int,
        *,
        hidden: int,
        transition: Transition,
        sigma_range: tuple[float, float],
        reward_decoder: bool,
        radius: float = math.inf,
    ) -> None:
        super().__init__()
        self.radius = radius
        self.transition = TransitionModel(
            latent_dim, action_dim, hidden=hidden, transition=transition, sigma_range=sigma_range
        )
        self.decoder = hidden_mlp(latent_dim, hidden, 1) if reward_decoder else None

    def forward(self, latent: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """[B, D] and [B, A] -> mean and deviation of the next latent."""
        mean, sigma = self.transition(torch.cat([latent, action], -1))
        return capped(mean, self.radius), sigma

    def loss(
        self, latent: Tensor, action: Tensor, next_latent: Tensor, reward: Tensor, rng: torch.Generator
    ) -> tuple[Tensor, tuple[Tensor, Tensor], dict[str, Tensor]]:
        """L_trans + L_rdec, what was predicted, without gradient, and metrics (Chen & Pan 2022; Zhang et al. 2021)."""
        mean, sigma = self(latent, action)
        loss = self.transition.loss(mean, sigma, next_latent)
        said = mean.detach(), sigma.detach()
        metrics = {
            "transition_nll": loss.detach(),
            "transition_rmse": error_length(mean, next_latent),
            "next_sigma_mean": said[1].mean(),
        }
        if self.decoder is not None:
            noise = torch.randn(mean.shape, generator=rng, device=mean.device)
            decoded = self.decoder(capped(mean + sigma * noise, self.radius))
            error = (decoded - reward).square().mean()
            loss, metrics["decoder_error"] = loss + error, error.detach()
        return loss, said, metrics


def inverse_dynamics(latent_dim: int, action_dim: int) -> nn.Sequential:
    """g: latent and next latent side by side -> the action between them (Kemertas & Aumentado-Armstrong 2021)."""
    return nn.Sequential(
        Linear(2 * latent_dim, 256), nn.ELU(), Linear(256, 128), nn.ELU(), Linear(128, action_dim)
    )


class Prediction(NamedTuple):
    """What the models say about a latent and an action."""

    reward: Tensor
    """mu_theta(z, a), [B, 1]."""
    reward_sigma: Tensor
    """sigma_theta(z, a), [B, 1]."""
    next: Tensor
    """Mean of the predicted next latent, [B, D]."""
    next_sigma: Tensor
    """Its standard deviation, [B, D]; zero for the deterministic model."""

    def sampled_reward(self, rng: torch.Generator) -> Tensor:
        """One draw rhat = mu + sigma xi per element (TEB after eq. 8), [B, 1]."""
        noise = torch.randn(self.reward.shape, generator=rng, device=self.reward.device)
        return self.reward + self.reward_sigma * noise

    def drawn_next(self, rng: torch.Generator) -> Tensor:
        """One draw of the next latent per element, [B, D]."""
        return self.next + self.next_sigma * torch.randn(
            self.next.shape, generator=rng, device=self.next.device
        )


class MetricModels(nn.Module):
    """Reward predictor p_theta(r | z, a) and transition model P(z' | z, a), each one hidden layer with LayerNorm.

    Always in float32: their inputs are positions or latents whose small differences are the signal.
    """

    def __init__(
        self,
        latent_dim: int,
        action_dim: int,
        *,
        hidden: int,
        sigma_range: tuple[float, float],
        sigma_param: SigmaParam,
        transition: Transition,
        reward_decoder: bool = False,
    ) -> None:
        super().__init__()
        self.sigma_range = sigma_range
        self.sigma_param: SigmaParam = sigma_param
        self.reward = hidden_mlp(latent_dim + action_dim, hidden, 2)
        self.transition = TransitionModel(latent_dim, action_dim, hidden=hidden, transition=transition)
        self.decoder = hidden_mlp(latent_dim, hidden, 1) if reward_decoder else None

    def forward(self, latent: Tensor, action: Tensor) -> Prediction:
        """[B, D] and [B, A] -> predictions."""
        inputs = torch.cat([latent, action], -1)
        mean, raw_sigma = self.reward(inputs).chunk(2, -1)
        sigma = bounded_sigma(raw_sigma, *self.sigma_range, self.sigma_param)
        return Prediction(mean, sigma, *self.transition(inputs))

    def reward_loss(self, prediction: Prediction, target: Tensor) -> Tensor:
        """L_rew, TEB eq. (8): mean Gaussian NLL of the N-step return [B, 1]."""
        return gaussian_nll(target, prediction.reward, prediction.reward_sigma).mean()

    def transition_loss(self, prediction: Prediction, next_latent: Tensor) -> Tensor:
        """L_dyn, as the transition model states it."""
        return self.transition.loss(prediction.next, prediction.next_sigma, next_latent)

    def decoder_loss(self, prediction: Prediction, reward: Tensor, rng: torch.Generator) -> Tensor:
        """Squared error of the reward [B, 1] decoded from a draw of the next latent (Chen & Pan 2022)."""
        assert self.decoder is not None, "built without a reward decoder"
        return (self.decoder(prediction.drawn_next(rng)) - reward).square().mean()
