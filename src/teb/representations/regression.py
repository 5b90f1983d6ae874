"""What all representations but none are: a distance between the latents of a batch, regressed on a target."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from teb.agents.protocol import Batch, Metrics, Policy, Shapes, Traits
from teb.checks import in_range, one_of_the_choices, positive
from teb.maths.bisimulation import Pairing, bisim_loss
from teb.nets.metric import LatentDynamics, Transition


class Learnt(NamedTuple):
    """What a representation's models make of a batch."""

    loss: Tensor
    """Their losses, weighted."""
    said: Any
    """Their predictions, for the target."""
    metrics: Metrics


class Regressed(NamedTuple):
    """Both sides of the regression, [P] for P pairs, or [P, D] for a distance of its own in each dimension."""

    distance: Tensor
    """Between latents, with gradient."""
    target: Tensor
    """What it should be, without."""
    metrics: Metrics
    sides: tuple[Tensor, Tensor] | None = None
    """What the loss compares, if not distance and target themselves."""


class Regression(nn.Module):
    """L = weight * mean l(distance, target) + losses of models; which distance, target and models, a method says."""

    traits: Traits
    weight: float
    error: Literal["squared", "huber"]

    def models_loss(self, batch: Batch, rng: torch.Generator) -> Learnt:
        """What the models lose on z_t = `batch.obs`, with gradient where it may reach the encoder."""
        raise NotImplementedError

    def regressed(self, batch: Batch, said: Any, policy: Policy, rng: torch.Generator) -> Regressed:
        """Pairs of latents, their distance and its target."""
        raise NotImplementedError

    def loss(self, batch: Batch, policy: Policy, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """Both losses, and what tells whether latents spread or collapse."""
        models = self.models_loss(batch, rng)
        found = self.regressed(batch, models.said, policy, rng)
        loss = bisim_loss(*(found.sides or (found.distance, found.target)), self.error)
        z = batch.obs.detach()
        return self.weight * loss + models.loss, models.metrics | found.metrics | {
            "bisim_loss": loss.detach(),
            "metric_target": found.target.mean(),
            "metric_distance": found.distance.detach().mean(),
            "latent_norm": z.norm(dim=-1).mean(),
            "latent_std": z.std(0).mean(),
        }

    def after_step(self) -> None:
        """Nothing to move."""


RepUpdate = Literal["after", "before", "joint"]
"""When a representation steps: right after the critic, before it, or with it through one encoding of the pictures."""


@dataclass(frozen=True)
class DynamicsConfig:
    """What RAP and DBC have in common: a metric between latents of which a transition model predicts the next."""

    lambda_b: float = 0.5
    """Weight of the metric loss (released code)."""
    lambda_p: float = 1e-4
    """Weight of transition and reward decoder loss (released code)."""
    rep_update: RepUpdate = "after"
    """Its step: after the critic's as in the released code, before it, or joined to it."""
    aux_horizon: Literal["1", "n"] = "1"
    """Rewards and next latents of one step; n takes those of the critic's window, as a stock replay would have it."""
    pairing: Pairing = "perm"
    """Who is compared with whom (released code: a permutation of the batch)."""
    detach_second: bool = False
    """Stop the gradient through the second latent of a pair (released code: no)."""
    transition: Transition = "gaussian"
    """Transition model: a normal, or a point, whose error then counts with deviation 1 (released code: either)."""
    next_sigma_min: float = 1e-4
    """Lower end of the transition model's standard deviation (released code)."""
    next_sigma_max: float = 10.0
    """Upper end (released code)."""
    reward_decoder: bool = True
    """Also decode the reward from a draw of the predicted next latent (released code)."""
    c_t: float | None = None
    """Weight of the transition term; None means gamma (released code)."""
    pred_hidden: int = 512
    """Hidden width of each model (released code)."""
    rep_lr: float = 1e-4
    """Adam's learning rate for the models (that of the shared learner)."""
    rep_grad_clip: float = 0.0
    """Clip of the gradient's norm, encoder and models together; 0 switches it off (released code)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        one_of_the_choices(self)
        for name in ("pred_hidden", "rep_lr", "next_sigma_min"):
            positive(name, getattr(self, name))
        for name in ("lambda_b", "lambda_p", "rep_grad_clip"):
            in_range(name, getattr(self, name), 0.0, 1e6)
        in_range("next_sigma_max", self.next_sigma_max, self.next_sigma_min, 1e6)
        if self.c_t is not None:
            in_range("c_t", self.c_t, 0.0, 1.0, high_open=True)

    def traits(self, *, trains_encoder: bool) -> Traits:
        """What a method with these options asks of the agent."""
        return Traits(
            horizon=1,
            grad_clip=self.rep_grad_clip,
            reads=(0, 1) if self.aux_horizon == "1" else (0, -1),
            trains_encoder=trains_encoder,
            joint=self.rep_update == "joint",
            after_critic=self.rep_update == "after",
        )

    def dynamics(self, shapes: Shapes, radius: float = math.inf) -> LatentDynamics:
        """The models that these options describe."""
        return LatentDynamics(
            shapes.obs,
            shapes.action,
            hidden=self.pred_hidden,
            transition=self.transition,
            sigma_range=(self.next_sigma_min, self.next_sigma_max),
            reward_decoder=self.reward_decoder,
            radius=radius,
        )

    def outcome(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Reward [B, 1] and next latent [B, D], of one step or of the window, without gradient."""
        if self.aux_horizon == "1":
            return batch.rewards[:, :1], batch.next1_obs.detach()
        return batch.reward, batch.next_obs.detach()
