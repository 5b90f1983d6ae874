"""APT: how far the nearest neighbours in the batch lie, in a learned representation (Liu & Abbeel 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from teb.agents.protocol import Batch, Metrics, NStepMode, Paid, Policy, Shapes, Traits
from teb.checks import in_range, one_of_the_choices, positive
from teb.explorers.entry import Entry
from teb.maths.particles import neighbour_distances, particle_bonus
from teb.nets.dynamics import ForwardInverse
from teb.nets.memory import RunningMoments
from teb.nets.mlp import Trunk


@dataclass(frozen=True)
class AptConfig:
    """A representation, and neighbours in it."""

    nstep_mode: NStepMode = "window"
    """What one transition is: the whole window, each of its steps, or windows of one step (window: URLB)."""
    eta: float = 1.0
    """Weight of the bonus; beside a task's reward it has to be calibrated (URLB: 1)."""
    rep: Literal["learned", "obs"] = "learned"
    """Where neighbours are sought: in a representation shaped by ICM's losses (URLB), or among observations (ours)."""
    neighbours: int = 12
    """k (URLB)."""
    exclude_self: bool = False
    """Leave a state out of its own neighbours (Singh et al. 2003); URLB counts it in, at distance 0."""
    distance_norm: Literal["none", "mean"] = "none"
    """`mean` divides distances by their running mean (URLB: in two of three configurations, not in the default one)."""
    distance_clip: float = 0.0
    """Subtracted from each distance, what is left being at least 0 (URLB: 0 by default, 1e-4 otherwise)."""
    rep_width: int = 512
    """Width of the representation (URLB)."""
    hidden: int = 1024
    """Width of the hidden layer of forward and inverse model (paper table 3, URLB)."""
    model_lr: float = 1e-4
    """Adam's learning rate for representation and models (paper table 3, URLB)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        one_of_the_choices(self)
        for name in ("neighbours", "rep_width", "hidden", "model_lr"):
            positive(name, getattr(self, name))
        for name in ("eta", "distance_clip"):
            in_range(name, getattr(self, name), 0.0, 1e6)


class Apt(nn.Module):
    """Pays for states with few others around them: a particle estimate of the entropy of states."""

    def __init__(
        self,
        config: AptConfig,
        shapes: Shapes,
        *,
        gamma: float,
        n_step: int,
        compute: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config = config
        learned = config.rep == "learned"
        self.traits = Traits(eta=config.eta, trains_encoder=learned).shown(config.nstep_mode)
        self.moments = RunningMoments()
        # The representation stays in float32: differences between its rows are the bonus.
        self.trunk = Trunk(shapes.obs, config.rep_width) if learned else nn.Identity()
        self.models = (
            ForwardInverse(config.rep_width, shapes.action, config.hidden, compute) if learned else None
        )

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Representation and models; nothing where observations are taken as they are."""
        if self.models is None:
            return []
        return [{"params": list(self.parameters()), "lr": self.config.model_lr}]

    def loss(self, batch: Batch, policy: Policy, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """Mean e_f + mean e_g between representations; the representation of the later state learns as well."""
        assert self.models is not None, "observations as they are have no loss"
        transition = self.trunk(batch.obs), batch.action, self.trunk(batch.next_obs.detach())
        forward = self.models.forward_error(*transition).mean()
        inverse = self.models.inverse_error(*transition).mean()
        return forward + inverse, {"forward_error": forward.detach(), "inverse_error": inverse.detach()}

    @torch.no_grad()
    def reward(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Paid:
        """log(1 + mean of the k nearest distances) of o_t among all o_t of the batch, [B, 1]."""
        config = self.config
        nearest = neighbour_distances(
            self.trunk(batch.obs), config.neighbours, exclude_self=config.exclude_self
        )
        scale = 1.0
        if config.distance_norm == "mean":
            self.moments.take(nearest)
            scale = self.moments.mean + 1e-8
        bonus = particle_bonus(nearest, scale, config.distance_clip).unsqueeze(1)
        return Paid(
            bonus,
            {"bonus_mean": bonus.mean(), "bonus_std": bonus.std(), "neighbour_distance": nearest.mean()},
        )

    def after_step(self, batch: Batch, policy: Policy, rng: torch.Generator) -> None:
        """Nothing to move."""


APT = Entry(
    "distance to the nearest neighbours in the batch",
    "Liu & Abbeel 2021, arXiv 2103.04551; representation of URLB",
    AptConfig(),
    Apt,
    {"hidden": 256, "rep_width": 128, "model_lr": 4e-4},
    calibrate_updates=1000,
)
