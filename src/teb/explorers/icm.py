"""ICM: the error of a forward model, in a space that an inverse model could shape (Pathak et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from teb.agents.protocol import Batch, Metrics, NStepMode, Paid, Policy, Shapes, Traits
from teb.checks import in_range, one_of_the_choices, positive
from teb.explorers.entry import Entry
from teb.maths.curiosity import surprise
from teb.nets.dynamics import ForwardInverse


@dataclass(frozen=True)
class IcmConfig:
    """Two models and the transform of an error."""

    nstep_mode: NStepMode = "window"
    """What one transition is: the whole window, each of its steps, or windows of one step (window: URLB)."""
    eta: float = 1.0
    """Weight of the bonus; beside a task's reward it has to be calibrated (URLB: 1)."""
    error_scale: float = 1.0
    """kappa in log(1 + kappa e) (URLB)."""
    inverse_weight: float = 1.0
    """Weight of the inverse loss beside the forward loss (URLB; Pathak et al. 2017: 4)."""
    hidden: int = 1024
    """Width of the hidden layer of both models (paper table 3, URLB)."""
    model_lr: float = 1e-4
    """Adam's learning rate for both models (paper table 3, URLB)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        one_of_the_choices(self)
        for name in ("error_scale", "hidden", "model_lr"):
            positive(name, getattr(self, name))
        for name in ("eta", "inverse_weight"):
            in_range(name, getattr(self, name), 0.0, 1e6)


class Icm(nn.Module):
    """Pays for transitions that the forward model did not expect."""

    def __init__(
        self,
        config: IcmConfig,
        shapes: Shapes,
        *,
        gamma: float,
        n_step: int,
        compute: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config = config
        self.traits = Traits(eta=config.eta, trains_encoder=True).shown(config.nstep_mode)
        self.models = ForwardInverse(shapes.obs, shapes.action, config.hidden)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Both models, with one learning rate."""
        return [{"params": list(self.models.parameters()), "lr": self.config.model_lr}]

    def loss(self, batch: Batch, policy: Policy, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """Mean e_f + w mean e_g; no gradient reaches the later latent."""
        transition = batch.obs, batch.action, batch.next_obs.detach()
        forward = self.models.forward_error(*transition).mean()
        inverse = self.models.inverse_error(*transition).mean()
        loss = forward + self.config.inverse_weight * inverse
        return loss, {"forward_error": forward.detach(), "inverse_error": inverse.detach()}

    @torch.no_grad()
    def reward(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Paid:
        """log(1 + kappa e_f), [B, 1]."""
        error = self.models.forward_error(batch.obs, batch.action, batch.next_obs)
        bonus = surprise(error, self.config.error_scale)
        return Paid(bonus, {"bonus_mean": bonus.mean(), "bonus_std": bonus.std()})

    def after_step(self, batch: Batch, policy: Policy, rng: torch.Generator) -> None:
        """Nothing to move."""


ICM = Entry(
    "error of a learned forward model",
    "Pathak et al. 2017, arXiv 1705.05363",
    IcmConfig(),
    Icm,
    {"hidden": 256, "model_lr": 4e-4},
    calibrate_updates=1000,
)
