"""DBC: the on-policy bisimulation metric on latents (Zhang et al. 2021), with the remedies that make it robust."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from teb.agents.protocol import Batch, Policy, Shapes
from teb.checks import in_range, positive
from teb.explorers.entry import Entry
from teb.maths.bisimulation import metric_target, pair_indices, w2_per_dimension
from teb.maths.distances import capped, huber, latent_distance
from teb.nets.metric import inverse_dynamics
from teb.representations.regression import DynamicsConfig, Learnt, Regressed, Regression


@dataclass(frozen=True)
class DbcConfig(DynamicsConfig):
    """Metric, models and loss."""

    lambda_p: float = 1.0
    """Weight of transition and reward decoder loss (released code)."""
    latent_dist: Literal["huber", "l1", "l2"] = "huber"
    """Huber in each dimension, each with a target of its own (released code); the norm l1 (paper) or l2 (ours)."""
    next_dist: Literal["w2", "huber"] = "w2"
    """Between Gaussian predictions W2 (paper), or Huber of means plus Huber of deviations (Kemertas et al. 2021)."""
    c_r: float = 1.0
    """Weight of the difference of rewards (paper)."""
    norm_cap: bool = False
    """Bound latents and predictions by the norm c_r / (2 (1 - c_t)) (Kemertas et al. 2021)."""
    inverse_weight: float = 0.0
    """Weight of |a - g(z, z')|, inverse dynamics; 10 for their DMC tasks (Kemertas et al. 2021)."""
    inverse_lr: float = 1e-4
    """Adam's learning rate for g (Kemertas et al. 2021)."""
    decoder_decay: float = 1e-7
    """Weight decay of transition model and reward decoder (released code)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        super().__post_init__()
        positive("c_r", self.c_r)
        positive("inverse_lr", self.inverse_lr)
        for name in ("inverse_weight", "decoder_decay"):
            in_range(name, getattr(self, name), 0.0, 1e6)
        if self.next_dist == "huber" and self.latent_dist != "huber":
            raise ValueError(
                f"next_dist: must be 'w2' where latent_dist is a norm, {self.latent_dist!r}, got 'huber'"
            )


class Dbc(Regression):
    """L = lambda_b L_DBC + lambda_p (L_trans + L_rdec) + inverse_weight L_inv."""

    error = "squared"

    def __init__(
        self,
        config: DbcConfig,
        shapes: Shapes,
        *,
        gamma: float,
        n_step: int,
        compute: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config, self.weight = config, config.lambda_b
        self.c_t = gamma if config.c_t is None else config.c_t
        self.radius = config.c_r / (2.0 * (1.0 - self.c_t)) if config.norm_cap else math.inf
        self.traits = config.traits(
            trains_encoder=bool(config.lambda_b or config.lambda_p or config.inverse_weight)
        )
        self.dynamics = config.dynamics(shapes, self.radius)
        self.inverse = inverse_dynamics(shapes.obs, shapes.action) if config.inverse_weight else None

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Transition model and reward decoder; inverse dynamics with a rate and a decay of their own."""
        models = list(self.dynamics.parameters())
        groups = [{"params": models, "lr": self.config.rep_lr, "weight_decay": self.config.decoder_decay}]
        if self.inverse is not None:
            own = list(self.inverse.parameters())
            groups.append({"params": own, "lr": self.config.inverse_lr, "weight_decay": 1e-5})
        return groups

    def models_loss(self, batch: Batch, rng: torch.Generator) -> Learnt:
        """lambda_p (L_trans + L_rdec) + inverse_weight L_inv, all of which train the latent."""
        config, latent = self.config, capped(batch.obs, self.radius)
        reward, following = config.outcome(batch)
        following = capped(following, self.radius)
        dynamics, said, metrics = self.dynamics.loss(latent, batch.action, following, reward, rng)
        loss = config.lambda_p * dynamics
        if self.inverse is not None:
            said_action = self.inverse(torch.cat([latent, following], -1))
            inverse = (batch.action - said_action).abs().mean()
            loss = loss + config.inverse_weight * inverse
            metrics["inverse_error"] = inverse.detach()
        return Learnt(loss, (reward, *said), metrics)

    def regressed(
        self, batch: Batch, said: tuple[Tensor, ...], policy: Policy, rng: torch.Generator
    ) -> Regressed:
        """||z_i - z_j|| against c_r |r_i - r_j| + c_t W2, either as norms or in each dimension."""
        config, latent = self.config, capped(batch.obs, self.radius)
        i, j = pair_indices(latent.shape[0], config.pairing, rng, latent.device)
        second = latent[j].detach() if config.detach_second else latent[j]
        reward, mean, spread = said
        gap = reward[i] - reward[j]
        if config.next_dist == "huber":
            following = huber(mean[i] - mean[j]) + huber(spread[i] - spread[j])
        else:
            following = w2_per_dimension(mean[i], spread[i], mean[j], spread[j])
        if config.latent_dist == "huber":
            distance = huber(latent[i] - second)
            gap = huber(gap).expand_as(distance)
        else:
            distance = latent_distance(latent[i], second, config.latent_dist)
            gap, following = gap.abs().squeeze(1), torch.linalg.vector_norm(following, dim=-1)
        return Regressed(distance, metric_target(gap, following, config.c_r, self.c_t), {})


PUBLISHED: dict[str, Any] = {"latent_dist": "l1"}
"""The loss as the paper prints it, on norms."""

ROBUST: dict[str, Any] = {"next_dist": "huber", "norm_cap": True, "inverse_weight": 10.0}
"""Kemertas & Aumentado-Armstrong 2021, without their intrinsic reward."""

DBC = Entry(
    "latents whose distances are on-policy bisimulation distances",
    "Zhang et al. 2021, arXiv 2006.10742",
    DbcConfig(),
    Dbc,
    {"pred_hidden": 256, "rep_lr": 4e-4},
    {"published": PUBLISHED, "robust": ROBUST},
)
