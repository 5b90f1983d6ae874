"""CIC: embeddings that tell which skill made which transition, and pay for spreading over them (Laskin et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from teb.agents.protocol import Batch, Metrics, Paid, Policy, Shapes, Skills, Traits
from teb.checks import in_range, one_of_the_choices, positive
from teb.explorers.entry import Entry
from teb.maths.infonce import Offset
from teb.nets.contrast import SkillContrast
from teb.nets.particles import ParticleEntropy, Unit


@dataclass(frozen=True)
class CicConfig:
    """Skills, embeddings and bonus."""

    eta: float = 1.0
    """Weight of the bonus (CIC)."""
    skill_width: int = 64
    """Numbers in a skill, each uniform on [0, 1]; also the width of all embeddings (CIC)."""
    skill_period: int = 50
    """Environment steps within an episode after which a new skill is drawn (CIC)."""
    hidden: int = 1024
    """Width of both hidden layers of the three embedding networks (CIC)."""
    contrast_lr: float = 1e-4
    """Adam's learning rate for the embedding networks (CIC)."""
    temperature: float = 0.5
    """Temperature of the contrastive loss (CIC)."""
    cpc_offset: Offset = "official"
    """Subtract exp(1 / temperature) in the loss's denominator, as the released code does, or not."""
    neighbours: int = 16
    """k of the particle entropy, the state itself among them (CIC)."""
    particle_clip: float = 5e-4
    """Taken off each scaled distance before it is floored at 0 (CIC)."""
    knn_norm: Unit = "variance"
    """Distances in units of their running variance, as the released code has it, or standard deviation."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        one_of_the_choices(self)
        for name in ("skill_width", "skill_period", "hidden", "contrast_lr", "temperature", "neighbours"):
            positive(name, getattr(self, name))
        for name in ("eta", "particle_clip"):
            in_range(name, getattr(self, name), 0.0, 1e6)


class Cic(nn.Module):
    """Learns the embeddings, and pays for the particle entropy of embedded states."""

    def __init__(
        self,
        config: CicConfig,
        shapes: Shapes,
        *,
        gamma: float,
        n_step: int,
        compute: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config = config
        self.traits = Traits(
            eta=config.eta, skills=Skills(config.skill_width, "uniform", config.skill_period)
        )
        self.contrast = SkillContrast(shapes.obs, config.skill_width, config.hidden, compute)
        self.entropy = ParticleEntropy(config.particle_clip, config.knn_norm)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The three embedding networks."""
        return [{"params": list(self.contrast.parameters()), "lr": self.config.contrast_lr}]

    def loss(self, batch: Batch, policy: Policy, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """The contrastive loss between skills and transitions (o_t, o_{t+n})."""
        config = self.config
        loss = self.contrast.loss(
            batch.obs, batch.next_obs, batch.skill, config.temperature, config.cpc_offset
        )
        return loss, {"contrast_loss": loss.detach()}

    @torch.no_grad()
    def reward(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Paid:
        """The particle entropy of f(o_{t+n}) within the batch, [B, 1]; the skill plays no part in it."""
        bonus = self.entropy(self.contrast.state(batch.next_obs), self.config.neighbours).unsqueeze(1)
        return Paid(
            bonus,
            {
                "bonus_mean": bonus.mean(),
                "bonus_min": bonus.min(),
                "bonus_max": bonus.max(),
                "particle_variance": self.entropy.moments.variance.clone(),
            },
        )

    def after_step(self, batch: Batch, policy: Policy, rng: torch.Generator) -> None:
        """Nothing to move: the moments were when the bonus was paid."""


CIC = Entry(
    "particle entropy of embeddings that tell skills apart",
    "Laskin et al. 2022, arXiv 2202.00161",
    CicConfig(),
    Cic,
    {"hidden": 256, "contrast_lr": 4e-4},
)
