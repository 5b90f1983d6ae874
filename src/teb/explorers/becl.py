"""BeCL: states that one skill reaches are positive pairs, and being told from all others pays (Yang et al. 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from teb.agents.protocol import Batch, Metrics, Paid, Policy, Shapes, Skills, Traits
from teb.checks import in_range, one_of_the_choices, positive
from teb.explorers.entry import Entry
from teb.maths.pairs import SHARE_FLOOR, PositiveRule, group_cosines, group_positives, positive_share
from teb.nets.mlp import Mlp


@dataclass(frozen=True)
class BeclConfig:
    """A contrastive representation of states by the skill that reached them."""

    eta: float = 1.0
    """Weight of the bonus, whose size is proportional to 1 / batch size (Yang et al. 2023)."""
    skill_count: int = 16
    """Number of one-hot skills, and width of the features (Yang et al. 2023)."""
    skill_period: int = 50
    """Environment steps after which a new skill is drawn within an episode (Yang et al. 2023)."""
    positives: PositiveRule = "random"
    """Which state of the same skill is the positive: a random one, or the first in the batch (released code)."""
    temperature: float = 0.5
    """T that cosines are divided by (Yang et al. 2023)."""
    contrastive_steps: int = 3
    """Steps per update, each on a batch of its own (Yang et al. 2023)."""
    hidden: int = 1024
    """Width of all hidden layers (Yang et al. 2023)."""
    contrastive_lr: float = 1e-4
    """Adam's learning rate for the representation (Yang et al. 2023)."""
    n_step_mode: Literal["window", "one"] = "window"
    """How the bonus meets windows: paid once for o_t+n, or in windows of one step (Yang et al. 2023: window)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        one_of_the_choices(self)
        for name in ("skill_period", "temperature", "contrastive_steps", "hidden", "contrastive_lr"):
            positive(name, getattr(self, name))
        in_range("eta", self.eta, 0.0, 1e6)
        in_range("skill_count", self.skill_count, 2, 1e6)


class Becl(nn.Module):
    """Trains features of o_{t+n} by contrast, and pays the share of a positive among all other states of the batch."""

    def __init__(
        self,
        config: BeclConfig,
        shapes: Shapes,
        *,
        gamma: float,
        n_step: int,
        compute: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config = config
        count = config.skill_count
        skills = Skills(count, "one-hot", config.skill_period)
        traits = Traits(eta=config.eta, batches=config.contrastive_steps, skills=skills, trains_encoder=None)
        self.traits = traits.shown(config.n_step_mode)
        self.features = nn.Sequential(
            Mlp(shapes.obs, config.hidden, count, depth=2, compute=compute),
            Mlp(count, config.hidden, count, compute=compute),
        )

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Embedding and projection."""
        return [{"params": list(self.features.parameters()), "lr": self.config.contrastive_lr}]

    def contrast(self, features: Tensor, batch: Batch, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """The positive's share w + 1e-6 of each state, and whether its skill has another in the batch, [B] each."""
        partner, paired = group_positives(batch.skill.argmax(-1), self.config.positives, rng)
        return positive_share(features, partner, self.config.temperature) + SHARE_FLOOR, paired

    def loss(self, batch: Batch, policy: Policy, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """-mean log (w + 1e-6) over the states whose skill is in the batch at least twice."""
        features = self.features(batch.next_obs)
        share, paired = self.contrast(features, batch, rng)
        loss = -(share.log() * paired).sum() / paired.sum().clamp(min=1)
        same, cross = group_cosines(features.detach(), batch.skill)
        return loss, {"contrastive_loss": loss.detach(), "cosine_same": same, "cosine_cross": cross}

    @torch.no_grad()
    def reward(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Paid:
        """The share w + 1e-6 with the features just stepped, [B, 1]; 0 where a skill is alone in the batch."""
        share, paired = self.contrast(self.features(batch.next_obs), batch, rng)
        return Paid.of((share * paired).unsqueeze(1), {})

    def after_step(self, batch: Batch, policy: Policy, rng: torch.Generator) -> None:
        """Nothing to move."""


BECL = Entry(
    "skills whose states can be told from all others by contrast",
    "Yang et al. 2023, arXiv 2305.04477",
    BeclConfig(),
    Becl,
    {"hidden": 256, "contrastive_lr": 4e-4},
)
