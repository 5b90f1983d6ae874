"""RND: the error of a network that learns to repeat a random one on what was seen (Burda et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from teb.agents.protocol import Batch, Metrics, NStepMode, Paid, Policy, Shapes, Traits
from teb.checks import in_range, one_of_the_choices, positive
from teb.explorers.entry import Entry
from teb.maths.curiosity import distillation_error
from teb.maths.running import standardised
from teb.nets.memory import RunningMoments
from teb.nets.mlp import Mlp


@dataclass(frozen=True)
class RndConfig:
    """Two networks of one shape, and how their input is normalised."""

    nstep_mode: NStepMode = "window"
    """What is paid: one state of the window, one of each of its steps, or windows of one step (window: URLB)."""
    eta: float = 1.0
    """Weight of the bonus; beside a task's reward it has to be calibrated (URLB: 1)."""
    reward_on: Literal["obs", "next_obs"] = "obs"
    """Where a transition is paid and learnt: at its start (URLB), or at its end (Burda et al. 2019)."""
    obs_norm: Literal["batch", "running"] = "batch"
    """Moments that observations are standardised by: the batch's (URLB), or of all so far (Burda et al. 2019)."""
    obs_clip: float = 5.0
    """Standardised observations are clipped to plus and minus this (URLB)."""
    hidden: int = 1024
    """Width of the two hidden layers of both networks (paper table 3, URLB)."""
    features: int = 512
    """Outputs of both networks (URLB)."""
    model_lr: float = 1e-4
    """Adam's learning rate for the predictor (paper table 3, URLB)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        one_of_the_choices(self)
        for name in ("obs_clip", "hidden", "features", "model_lr"):
            positive(name, getattr(self, name))
        in_range("eta", self.eta, 0.0, 1e6)


class Rnd(nn.Module):
    """Pays for states on which the predictor does not know its target yet."""

    def __init__(
        self,
        config: RndConfig,
        shapes: Shapes,
        *,
        gamma: float,
        n_step: int,
        compute: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config = config
        trains = None if config.reward_on == "next_obs" else False
        self.traits = Traits(eta=config.eta, trains_encoder=trains).shown(config.nstep_mode)
        sizes = shapes.obs, config.hidden, config.features, 2, compute
        self.predictor = Mlp(*sizes, wide=True)
        self.target = Mlp(*sizes, wide=True).requires_grad_(False)
        self.obs_moments = RunningMoments(shapes.obs)
        self.error_moments = RunningMoments()

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The predictor; the target keeps its first values."""
        return [{"params": list(self.predictor.parameters()), "lr": self.config.model_lr}]

    def states(self, batch: Batch) -> Tensor:
        """What is learnt and paid for, [B, D]: one rule for both."""
        return batch.obs if self.config.reward_on == "obs" else batch.next_obs

    def normalised(self, obs: Tensor) -> Tensor:
        """Standardised by column and clipped, [B, D] -> [B, D]."""
        if self.config.obs_norm == "batch":
            variance, mean = torch.var_mean(obs, 0, correction=0)
        else:
            variance, mean = self.obs_moments.variance, self.obs_moments.mean
        return standardised(obs, mean, variance, self.config.obs_clip)

    def error(self, obs: Tensor) -> Tensor:
        """The error mean_j (q_j - p_j)^2 of the normalised observation, [B, D] -> [B, 1]."""
        x = self.normalised(obs)
        return distillation_error(self.predictor(x), self.target(x))

    def loss(self, batch: Batch, policy: Policy, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """Mean epsilon."""
        loss = self.error(self.states(batch)).mean()
        return loss, {"distillation_error": loss.detach()}

    @torch.no_grad()
    def reward(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Paid:
        """Epsilon over the running deviation of epsilon, this batch counted in, [B, 1]."""
        error = self.error(self.states(batch))
        self.error_moments.take(error)
        bonus = error / self.error_moments.deviation()
        return Paid(bonus, {"bonus_mean": bonus.mean(), "bonus_std": bonus.std()})

    @torch.no_grad()
    def after_step(self, batch: Batch, policy: Policy, rng: torch.Generator) -> None:
        """Count the batch's observations; here, so that within an update all are standardised alike."""
        if self.config.obs_norm == "running":
            self.obs_moments.take(self.states(batch))


RND = Entry(
    "error of a network that learns to repeat a random one",
    "Burda et al. 2019, arXiv 1810.12894",
    RndConfig(),
    Rnd,
    {"hidden": 256, "features": 128, "model_lr": 4e-4},
    calibrate_updates=1000,
)
