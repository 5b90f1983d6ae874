"""RAP: a robust behavioural metric on latents (Chen & Pan 2022), as their released code computes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from teb.agents.protocol import Batch, Policy, Shapes
from teb.checks import in_range, positive
from teb.explorers.entry import Entry
from teb.maths.behaviour import gap_of_means, squared_gap_of_means
from teb.maths.bisimulation import pair_indices, w2_per_dimension
from teb.maths.distances import diffuse_distance
from teb.maths.gaussian import bounded_sigma, gaussian_nll
from teb.nets.mlp import hidden_mlp
from teb.representations.regression import DynamicsConfig, Learnt, Regressed, Regression


@dataclass(frozen=True)
class RapConfig(DynamicsConfig):
    """Metric, models and loss."""

    lambda_r: float = 0.5
    """Weight of the reward model's loss (released code)."""
    nll_scale: float = 0.5
    """A further factor in front of it (released code)."""
    target: Literal["squared", "plain"] = "squared"
    """Compare (U - gamma T)^2 with the squared gap of rewards, or U with its root plus gamma T (released code)."""
    beta: float = 1e-6
    """Weight of the angle between latents (released code; 1e-5 in its comments)."""
    sigma_min: float = 1e-4
    """Lower end of the reward model's standard deviation (released code)."""
    sigma_max: float = 1.0
    """Upper end (released code)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        super().__post_init__()
        positive("sigma_min", self.sigma_min)
        in_range("sigma_max", self.sigma_max, self.sigma_min, 1e6)
        for name in ("lambda_r", "nll_scale", "beta"):
            in_range(name, getattr(self, name), 0.0, 1e6)


class Rap(Regression):
    """L = lambda_b L_RAP + lambda_r L_sigma + lambda_p (L_trans + L_rdec)."""

    error = "huber"

    def __init__(
        self,
        config: RapConfig,
        shapes: Shapes,
        *,
        gamma: float,
        n_step: int,
        compute: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config, self.weight = config, config.lambda_b
        self.c_t = gamma if config.c_t is None else config.c_t
        self.traits = config.traits(
            trains_encoder=bool(config.lambda_b or config.lambda_r * config.nll_scale or config.lambda_p)
        )
        self.reward = hidden_mlp(shapes.obs, config.pred_hidden, 2)
        self.dynamics = config.dynamics(shapes)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """All models with one learning rate."""
        return [{"params": list(self.parameters()), "lr": self.config.rep_lr}]

    def predicted_reward(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the reward under the policy, each [B, 1]: no action is read."""
        mean, raw = self.reward(latent).chunk(2, -1)
        return mean, bounded_sigma(raw, self.config.sigma_min, self.config.sigma_max)

    def models_loss(self, batch: Batch, rng: torch.Generator) -> Learnt:
        """lambda_r L_sigma + lambda_p (L_trans + L_rdec); the latent gets all of their gradients."""
        config = self.config
        reward, following = config.outcome(batch)
        mean, sigma = self.predicted_reward(batch.obs)
        nll = gaussian_nll(reward, mean, sigma).mean()
        dynamics, said, metrics = self.dynamics.loss(batch.obs, batch.action, following, reward, rng)
        loss = config.lambda_r * config.nll_scale * nll + config.lambda_p * dynamics
        said = (reward, sigma.detach(), *said)
        return Learnt(loss, said, metrics | {"reward_nll": nll.detach(), "sigma_mean": sigma.detach().mean()})

    def regressed(
        self, batch: Batch, said: tuple[Tensor, ...], policy: Policy, rng: torch.Generator
    ) -> Regressed:
        """U = ||z_i||^2 + ||z_j||^2 + beta theta against the gap of mean rewards and gamma T."""
        config, latent = self.config, batch.obs
        i, j = pair_indices(latent.shape[0], config.pairing, rng, latent.device)
        second = latent[j].detach() if config.detach_second else latent[j]
        distance = diffuse_distance(latent[i], second, 1.0, config.beta)
        reward, sigma, mean, spread = said
        squares = (reward[i] - reward[j]).square().squeeze(1)
        variances = sigma[i].square().squeeze(1), sigma[j].square().squeeze(1)
        following = self.c_t * w2_per_dimension(mean[i], spread[i], mean[j], spread[j]).mean(-1)
        gap = squared_gap_of_means(squares, *variances)
        target = gap_of_means(squares, *variances) + following
        sides = ((distance - following).square(), gap) if config.target == "squared" else None
        return Regressed(
            distance, target, {"next_distance": following.mean(), "reward_gap": gap.mean()}, sides
        )


RAP = Entry(
    "latents whose distances are RAP's behavioural metric",
    "Chen & Pan 2022, NeurIPS",
    RapConfig(),
    Rap,
    {"pred_hidden": 256, "rep_lr": 4e-4},
)
