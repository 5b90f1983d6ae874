"""Disagreement: how far the predictions of several forward models lie apart (Pathak et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from teb.agents.protocol import Batch, Metrics, NStepMode, Paid, Policy, Shapes, Traits
from teb.checks import in_range, one_of_the_choices, positive
from teb.explorers.entry import Entry
from teb.maths.curiosity import disagreement
from teb.maths.distances import safe_norm
from teb.nets.memory import RunningMoments
from teb.nets.mlp import Init, Linear, Mlp


@dataclass(frozen=True)
class DisagreementConfig:
    """An ensemble of forward models."""

    nstep_mode: NStepMode = "window"
    """What one transition is: the whole window, each of its steps, or windows of one step (window: URLB)."""
    eta: float = 1.0
    """Weight of the bonus; beside a task's reward it has to be calibrated (URLB: 1)."""
    members: int = 5
    """Models in the ensemble (Pathak et al. 2019, URLB)."""
    init: Init = "uniform"
    """How layers start: as PyTorch does unasked (URLB for this method alone), or orthogonal like all others."""
    rew_norm: Literal["none", "rms"] = "none"
    """`rms` divides by the bonus's running standard deviation (Pathak et al. 2019: that of its return; URLB: none)."""
    hidden: int = 1024
    """Width of the hidden layer of each model (paper table 3, URLB)."""
    model_lr: float = 1e-4
    """Adam's learning rate for all models (paper table 3, URLB)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        one_of_the_choices(self)
        for name in ("hidden", "model_lr"):
            positive(name, getattr(self, name))
        in_range("eta", self.eta, 0.0, 1e6)
        in_range("members", self.members, 2, 1e3)


class Disagreement(nn.Module):
    """Pays where the models have not been told the same yet; what is random teaches them one mean, and pays nothing."""

    def __init__(
        self,
        config: DisagreementConfig,
        shapes: Shapes,
        *,
        gamma: float,
        n_step: int,
        compute: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config = config
        self.traits = Traits(eta=config.eta, trains_encoder=True).shown(config.nstep_mode)
        inputs = shapes.obs + shapes.action
        self.members = nn.ModuleList(
            Mlp(inputs, config.hidden, shapes.obs, layer=partial(Linear, init=config.init))
            for _ in range(config.members)
        )
        self.moments = RunningMoments()

    def parameter_groups(self) -> list[dict[str, Any]]:
        """All members, with one learning rate."""
        return [{"params": list(self.members.parameters()), "lr": self.config.model_lr}]

    def predictions(self, batch: Batch) -> Tensor:
        """What each member expects of o_t and a_t, [K, B, D]."""
        x = torch.cat([batch.obs, batch.action], -1)
        return torch.stack([member(x) for member in self.members])

    def loss(self, batch: Batch, policy: Policy, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """Mean over batch and members of the length of the error; all members see the same batch."""
        loss = safe_norm(batch.next_obs.detach() - self.predictions(batch)).mean()
        return loss, {"forward_error": loss.detach()}

    @torch.no_grad()
    def reward(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Paid:
        """The members' variance, averaged over the outputs, [B, 1]."""
        bonus = disagreement(self.predictions(batch))
        if self.config.rew_norm == "rms":
            self.moments.take(bonus)
            bonus = bonus / self.moments.deviation()
        return Paid(bonus, {"bonus_mean": bonus.mean(), "bonus_std": bonus.std()})

    def after_step(self, batch: Batch, policy: Policy, rng: torch.Generator) -> None:
        """Nothing to move."""


DISAGREEMENT = Entry(
    "variance of an ensemble of forward models",
    "Pathak et al. 2019, arXiv 1906.04161",
    DisagreementConfig(),
    Disagreement,
    {"hidden": 256, "model_lr": 4e-4},
    calibrate_updates=1000,
)
