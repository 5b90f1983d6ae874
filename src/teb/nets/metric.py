"""The two learned models behind the predictive metric: a Gaussian reward predictor and a latent transition model."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from teb.maths.gaussian import SigmaParam, bounded_sigma, gaussian_nll
from teb.nets.mlp import hidden_mlp

Transition = Literal["gaussian", "deterministic"]

WDist = Literal["mean", "rap", "w2", "sample"]
"""Stand-ins for W1 between predictions: those of `teb.maths.bisimulation`, or the distance of one draw each."""

TRANSITION_SIGMA = (1e-4, 10.0)
"""Range of the transition model's standard deviation (Chen & Pan 2022, released code)."""


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
        self.gaussian = transition == "gaussian"
        self.reward = hidden_mlp(latent_dim + action_dim, hidden, 2)
        self.transition = hidden_mlp(
            latent_dim + action_dim, hidden, latent_dim * (2 if self.gaussian else 1)
        )
        self.decoder = hidden_mlp(latent_dim, hidden, 1) if reward_decoder else None

    def forward(self, latent: Tensor, action: Tensor) -> Prediction:
        """[B, D] and [B, A] -> predictions."""
        inputs = torch.cat([latent, action], -1)
        mean, raw_sigma = self.reward(inputs).chunk(2, -1)
        sigma = bounded_sigma(raw_sigma, *self.sigma_range, self.sigma_param)
        return Prediction(mean, sigma, *self._next(inputs))

    def _next(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        if not self.gaussian:
            following = self.transition(inputs)
            return following, torch.zeros_like(following)
        following, raw = self.transition(inputs).chunk(2, -1)
        return following, bounded_sigma(raw, *TRANSITION_SIGMA)

    def reward_loss(self, prediction: Prediction, target: Tensor) -> Tensor:
        """L_rew, TEB eq. (8): mean Gaussian NLL of the N-step return [B, 1]."""
        return gaussian_nll(target, prediction.reward, prediction.reward_sigma).mean()

    def transition_loss(self, prediction: Prediction, next_latent: Tensor) -> Tensor:
        """L_dyn: Gaussian NLL of the next latent (Chen & Pan 2022), or half its squared error; no gradient to it."""
        target = next_latent.detach()
        if self.gaussian:
            return gaussian_nll(target, prediction.next, prediction.next_sigma).mean()
        return 0.5 * (target - prediction.next).square().mean()

    def decoder_loss(self, prediction: Prediction, reward: Tensor, rng: torch.Generator) -> Tensor:
        """Squared error of the reward [B, 1] decoded from a draw of the next latent (Chen & Pan 2022)."""
        assert self.decoder is not None, "built without a reward decoder"
        return (self.decoder(prediction.drawn_next(rng)) - reward).square().mean()
