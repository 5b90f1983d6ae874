"""CeSD: a critic for each skill, an own part of the states for each critic (Bai et al. 2024).

States fall to K prototypes. Member i of an ensemble of critics learns from the states of cluster i alone, where it is
paid for particle entropy inside the cluster (to explore its part), and for keeping other skills out of it. The actor
of skill i follows member i.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from teb.agents.protocol import Batch, Metrics, Paid, Policy, Shapes, Skills, Traits
from teb.checks import in_range, one_of_the_choices, positive
from teb.explorers.entry import Entry
from teb.maths.infonce import Offset
from teb.maths.sinkhorn import sinkhorn
from teb.nets.contrast import SkillContrast
from teb.nets.ensemble import EnsembleCritic, HeadInit
from teb.nets.particles import ParticleEntropy, Unit


@dataclass(frozen=True)
class CesdConfig:
    """Skills, clusters, bonus, and what the released code does that may not have been meant (`official`)."""

    latents: ClassVar[bool] = False
    eta: float = 1.0
    """Weight of the bonus (CeSD)."""
    skills: int = 16
    """K: skills, prototypes, members of the critic, and the width of all embeddings (CeSD)."""
    skill_period: int = 50
    """Environment steps within an episode after which a new skill is drawn (CeSD)."""
    hidden: int = 1024
    """Width of both hidden layers of the three embedding networks (CeSD)."""
    contrast_lr: float = 1e-4
    """Adam's learning rate for the embedding networks (CeSD)."""
    temperature: float = 0.5
    """Temperature of the contrastive loss (CeSD)."""
    prototype_lr: float = 1e-4
    """Adam's learning rate for the prototypes (CeSD)."""
    prototype_temperature: float = 0.1
    """Temperature of the clusters (CeSD)."""
    sinkhorn_iterations: int = 4
    """Rounds that balance the prototypes' targets; released settings have 4 to 6, and 4 in a point mass (DVFB)."""
    alpha: float = 1.0
    """Weight of the constraint bonus; 0.1 for the released arm, 1 for all others (CeSD)."""
    neighbours: int | None = None
    """k of the particle entropy, the state itself among them; clusters of k states or fewer are small. None is a
    quarter of the mean cluster, B / 4K: 16 at 1024 windows and 16 skills (CeSD)."""
    particle_clip: float = 5e-4
    """Taken off each scaled distance before it is floored at 0 (CeSD)."""
    knn_norm: Unit = "variance"
    """Distances in units of their running variance, as the released code has it, or standard deviation."""
    small_cluster: Literal["zero", "adaptive_k"] = "zero"
    """Small clusters are paid nothing (CeSD), or with as many neighbours as they have."""
    assign: Literal["sample", "argmax"] = "sample"
    """The cluster of a state is drawn by its softmax (CeSD), or the nearest."""
    target_skill: Literal["replay", "cluster"] = "replay"
    """Whose action the critic's target takes: the replayed skill's (CeSD), or that of the member that learns."""
    cpc_offset: Offset = "official"
    """Subtract exp(1 / temperature) in the contrastive loss's denominator, as the released code does, or not."""
    head_init: HeadInit = "official"
    """Bound the critic's initial heads by their number of outputs, as the released code does, or of inputs."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        one_of_the_choices(self)
        for name in ("skills", "skill_period", "hidden", "contrast_lr", "temperature", "prototype_lr"):
            positive(name, getattr(self, name))
        positive("prototype_temperature", self.prototype_temperature)
        if self.neighbours is not None:
            positive("neighbours", self.neighbours)
        for name in ("eta", "sinkhorn_iterations", "alpha", "particle_clip"):
            in_range(name, getattr(self, name), 0.0, 1e6)


@dataclass(frozen=True)
class PixelCesdConfig(CesdConfig):
    """The same, for latents of pictures: the critic's members have DrQ-v2's shape behind the latent."""

    latents: ClassVar[bool] = True


class Parts(NamedTuple):
    """The two parts of the bonus, and the sizes of the clusters."""

    entropy: Tensor
    """r_ent, [B]."""
    constraint: Tensor
    """r_con, [B]."""
    sizes: list[int]
    """n_i, [K]."""


class Cesd(nn.Module):
    """Learns embeddings and prototypes, divides states among the members of its critic, and pays inside each part."""

    def __init__(
        self,
        config: CesdConfig,
        shapes: Shapes,
        *,
        gamma: float,
        n_step: int,
        compute: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config = config
        self.traits = Traits(
            eta=config.eta,
            skills=Skills(config.skills, "one-hot", config.skill_period),
            critic=partial(ensemble_critic, config.head_init, config.latents),
        )
        self.contrast = SkillContrast(shapes.obs, config.skills, config.hidden, compute)
        self.prototypes = nn.Parameter(nn.init.orthogonal_(torch.empty(config.skills, config.skills)))
        self.entropy = ParticleEntropy(config.particle_clip, config.knn_norm)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The embedding networks, which `loss` trains, and the prototypes, which the closing loss trains."""
        return [
            {"params": list(self.contrast.parameters()), "lr": self.config.contrast_lr},
            {"params": [self.prototypes], "lr": self.config.prototype_lr},
        ]

    def loss(self, batch: Batch, policy: Policy, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """The contrastive loss between skills and transitions (o_t, o_{t+n})."""
        config = self.config
        loss = self.contrast.loss(
            batch.obs, batch.next_obs, batch.skill, config.temperature, config.cpc_offset
        )
        return loss, {"contrast_loss": loss.detach()}

    @torch.no_grad()
    def reward(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Paid:
        """r_ent + r_con at o_{t+n}, [B, 1], and the member that learns from it: that of the cluster."""
        embedded = self.contrast.state(batch.next_obs)
        cluster = self.assign(embedded, rng)
        parts = self.pay(embedded, cluster, batch.skill.argmax(1))
        bonus = parts.entropy + parts.constraint
        own = F.one_hot(cluster, self.config.skills).to(batch.skill.dtype)
        count = bonus.new_tensor(parts.sizes)
        return Paid(
            bonus.unsqueeze(1),
            {
                "bonus_mean": bonus.mean(),
                "bonus_min": bonus.min(),
                "bonus_max": bonus.max(),
                "entropy_mean": parts.entropy.mean(),
                "constraint_mean": parts.constraint.mean(),
                "unpaid_share": (bonus == 0).float().mean(),
                "cluster_min": count.min(),
                "cluster_max": count.max(),
                "clusters_paid": (count > self.neighbours(len(bonus))).sum().float(),
                "particle_variance": self.entropy.moments.variance.clone(),
            },
            member=cluster,
            next_skill=own if self.config.target_skill == "cluster" else None,
        )

    def neighbours(self, rows: int) -> int:
        """How many the particle entropy takes of a batch of this size; with 1 a state would only see itself."""
        return self.config.neighbours or max(2, rows // (4 * self.config.skills))

    def assign(self, embedded: Tensor, rng: torch.Generator) -> Tensor:
        """The cluster of each state, [B, K] -> [B]."""
        found = scores(embedded, F.normalize(self.prototypes, dim=1))
        if self.config.assign == "argmax":
            return found.argmax(1)
        chances = torch.softmax(found / self.config.prototype_temperature, 1)
        return torch.multinomial(chances, 1, generator=rng).squeeze(1)

    def pay(self, embedded: Tensor, cluster: Tensor, skill: Tensor) -> Parts:
        """The bonus of each state from its embedding [B, K], its cluster [B] and the skill that came there [B].

        Clusters take turns by their number, each moving the running moments before its own distances are scaled.
        r_con = alpha / (1 + m), m the states of the cluster that other skills visited.
        """
        entropy, constraint = torch.zeros_like(embedded[:, 0]), torch.zeros_like(embedded[:, 0])
        k = self.neighbours(len(cluster))
        sizes = torch.bincount(cluster, minlength=self.config.skills).tolist()
        for index, rows in enumerate(cluster.argsort(stable=True).split(sizes)):
            small = len(rows) <= k
            if len(rows) == 0 or (small and self.config.small_cluster == "zero"):
                continue
            entropy[rows] = self.entropy(embedded[rows], min(k, len(rows)))
            constraint[rows] = self.config.alpha / (1 + (skill[rows] != index).sum())
        return Parts(entropy, constraint, sizes)

    def after_step(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Tensor:
        """Cross-entropy between the balanced clusters of o_{t+n} and those of o_t, for the prototypes alone."""
        config = self.config
        with torch.no_grad():
            self.prototypes.copy_(F.normalize(self.prototypes, dim=1))
            start, end = self.contrast.state(torch.cat([batch.obs, batch.next_obs])).chunk(2)
            target = sinkhorn(
                scores(end, self.prototypes), config.prototype_temperature, config.sinkhorn_iterations
            )
        predicted = torch.log_softmax(scores(start, self.prototypes) / config.prototype_temperature, 1)
        return -(target * predicted).sum(1).mean()


def scores(embedded: Tensor, prototypes: Tensor) -> Tensor:
    """Cosines of embeddings [B, K] with prototypes of unit length [K, K], [B, K]."""
    return F.normalize(embedded, dim=1) @ prototypes.T


def ensemble_critic(
    init: HeadInit, latents: bool, shapes: Shapes, width: int, compute: torch.dtype
) -> EnsembleCritic:
    """A twin critic for each skill."""
    return EnsembleCritic(shapes.obs, shapes.action, shapes.skill, width, compute, init, latents=latents)


CESD = Entry(
    "a critic and a part of the states for each skill, particle entropy inside the part",
    "Bai et al. 2024, arXiv 2405.16030",
    CesdConfig(),
    Cesd,
    {"hidden": 256, "contrast_lr": 4e-4, "prototype_lr": 4e-4},
    pixels=PixelCesdConfig(),
    calibrate_updates=100,
)
