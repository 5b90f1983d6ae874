"""DIAYN: a skill is paid for visiting states from which it can be recognised (Eysenbach et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from teb.agents.protocol import Batch, Metrics, NStepMode, Paid, Policy, Shapes, Skills, Traits
from teb.checks import in_range, one_of_the_choices, positive
from teb.explorers.entry import Entry
from teb.maths.skill_rewards import recognition_bonus, skill_log_likelihood
from teb.nets.mlp import Mlp


@dataclass(frozen=True)
class DiaynConfig:
    """A classifier of skills, and how much its certainty is worth."""

    eta: float = 1.0
    """Weight of the bonus, URLB's scale lambda (URLB)."""
    skill_count: int = 16
    """Number of one-hot skills (URLB)."""
    skill_period: int = 50
    """Environment steps after which a new skill is drawn within an episode (URLB; the paper: whole episodes)."""
    hidden: int = 1024
    """Width of the classifier's two hidden layers (URLB)."""
    classifier_lr: float = 1e-4
    """Adam's learning rate for the classifier (URLB)."""
    n_step_mode: NStepMode = "window"
    """How the bonus meets windows: paid once for o_t+n, for each step, or in windows of one step (URLB: window)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        one_of_the_choices(self)
        for name in ("skill_period", "hidden", "classifier_lr"):
            positive(name, getattr(self, name))
        in_range("eta", self.eta, 0.0, 1e6)
        in_range("skill_count", self.skill_count, 2, 1e6)


class Diayn(nn.Module):
    """Trains q(z | o) on the ends of windows, and pays log q(z | o_{t+n}) + log K."""

    def __init__(
        self,
        config: DiaynConfig,
        shapes: Shapes,
        *,
        gamma: float,
        n_step: int,
        compute: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config = config
        skills = Skills(config.skill_count, "one-hot", config.skill_period)
        traits = Traits(eta=config.eta, skills=skills, trains_encoder=None)
        self.traits = traits.shown(config.n_step_mode)
        self.classifier = Mlp(shapes.obs, config.hidden, config.skill_count, depth=2, compute=compute)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The classifier."""
        return [{"params": list(self.classifier.parameters()), "lr": self.config.classifier_lr}]

    def loss(self, batch: Batch, policy: Policy, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """Cross-entropy of the skill given o_{t+n}."""
        logits = self.classifier(batch.next_obs)
        right = logits.detach().argmax(-1) == batch.skill.argmax(-1)
        loss = -skill_log_likelihood(logits, batch.skill).mean()
        return loss, {"classifier_loss": loss.detach(), "classifier_accuracy": right.float().mean()}

    @torch.no_grad()
    def reward(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Paid:
        """The bonus log q(z | o_{t+n}) + log K with the classifier just stepped, [B, 1]; neither clipped nor scaled."""
        logits = self.classifier(batch.next_obs)
        return Paid.of(recognition_bonus(logits, batch.skill).unsqueeze(1), {})

    def after_step(self, batch: Batch, policy: Policy, rng: torch.Generator) -> None:
        """Nothing to move."""


DIAYN = Entry(
    "skills that can be told from the states they visit",
    "Eysenbach et al. 2019, arXiv 1802.06070",
    DiaynConfig(),
    Diayn,
    {"hidden": 256, "classifier_lr": 4e-4},
)
