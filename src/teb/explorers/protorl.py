"""ProtoRL: distance to the nearest of a queue of embeddings that prototypes picked (Yarats et al. 2021)."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from teb.agents.protocol import Batch, Metrics, NStepMode, Paid, Policy, Shapes, Traits
from teb.checks import in_range, one_of_the_choices, positive
from teb.explorers.entry import Entry
from teb.maths.distances import unit
from teb.maths.particles import drawn_by_score, kth_nearest_distance
from teb.maths.sinkhorn import sinkhorn
from teb.nets.memory import Ring, follow
from teb.nets.mlp import Linear, Mlp


@dataclass(frozen=True)
class ProtoRlConfig:
    """Prototypes, their assignment, and the queue."""

    eta: float = 1.0
    """Weight of the bonus (URLB)."""
    nstep_mode: NStepMode = "window"
    """What a transition is on windows of n steps: the whole window (URLB), each of its steps, or n = 1 everywhere."""
    embedding: int = 128
    """Size of the embedding (URLB)."""
    proj_hidden: int = 512
    """Hidden width of the projector (URLB)."""
    prototypes: int = 512
    """Number of prototypes, each of which picks one embedding of a batch for the queue (URLB)."""
    queue: int = 2048
    """Embeddings in the queue, at least `prototypes`; a multiple of it there (URLB)."""
    temperature: float = 0.1
    """Of scores and assignments (URLB)."""
    sinkhorn_iterations: int = 3
    """How often masses of prototypes and samples are evened out (URLB)."""
    neighbour: int = 3
    """Which nearest neighbour in the queue the bonus is the distance to (URLB)."""
    target_rate: float = 0.05
    """Rate at which the target embedding follows (URLB)."""
    model_lr: float = 1e-4
    """Adam's learning rate for embedding, projector and prototypes (URLB)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        one_of_the_choices(self)
        for name in (
            "embedding",
            "proj_hidden",
            "prototypes",
            "queue",
            "temperature",
            "neighbour",
            "model_lr",
        ):
            positive(name, getattr(self, name))
        in_range("eta", self.eta, 0.0, 1e6)
        in_range("sinkhorn_iterations", self.sinkhorn_iterations, 0, 1000)
        in_range("target_rate", self.target_rate, 0.0, 1.0)
        if self.queue < self.prototypes:
            raise ValueError(f"queue: must be at least prototypes = {self.prototypes}, got {self.queue}")
        if self.neighbour > self.queue:
            raise ValueError(f"neighbour: must be at most queue = {self.queue}, got {self.neighbour}")


class ProtoRl(nn.Module):
    """Learns prototypes by swapped assignment and pays for embeddings far from the queue.

    All in float32: embeddings are compared with each other, and near ones are the point.
    """

    def __init__(
        self,
        config: ProtoRlConfig,
        shapes: Shapes,
        *,
        gamma: float,
        n_step: int,
        compute: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config = config
        self.traits = Traits(eta=config.eta, trains_encoder=True).shown(config.nstep_mode)
        self.embed = Linear(shapes.obs, config.embedding)
        self.project = Mlp(config.embedding, config.proj_hidden, config.embedding)
        self.prototypes = nn.Parameter(nn.init.orthogonal_(torch.empty(config.prototypes, config.embedding)))
        self.target_embed = copy.deepcopy(self.embed).requires_grad_(False)
        self.queue = Ring(config.queue, config.embedding)
        self.normalise_prototypes()

    @torch.no_grad()
    def normalise_prototypes(self) -> None:
        """Put the prototypes back on the unit sphere, outside of any gradient."""
        self.prototypes.copy_(unit(self.prototypes))

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Embedding, projector and prototypes."""
        learnt = [self.prototypes, *self.embed.parameters(), *self.project.parameters()]
        return [{"params": learnt, "lr": self.config.model_lr}]

    def loss(self, batch: Batch, policy: Policy, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """Cross-entropy of the start's soft assignment to that of the end, which is balanced and gives no gradient.

        The prototypes are on the sphere here: they start there, and `after_step` puts them back.
        """
        temperature = self.config.temperature
        scores = unit(self.project(self.embed(batch.obs))) @ self.prototypes.T
        with torch.no_grad():
            ends = unit(self.target_embed(batch.next_obs)) @ self.prototypes.T
            assigned = sinkhorn(ends, temperature, self.config.sinkhorn_iterations)
        loss = F.cross_entropy(scores / temperature, assigned)
        return loss, {"assignment_entropy": torch.special.entr(assigned).sum(1).mean()}

    @torch.no_grad()
    def reward(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Paid:
        """Distance of the end's embedding to its k-th nearest in the queue, [B, 1].

        First each prototype draws one embedding of the batch into the queue, so a state may meet itself there, and
        slots never written are zeros, at distance 1 (URLB).
        """
        ends = unit(self.embed(batch.next_obs))
        drawn = drawn_by_score(unit(self.prototypes) @ ends.T, rng)
        self.queue.push(ends[drawn])
        bonus = kth_nearest_distance(ends, self.queue.stored, self.config.neighbour).unsqueeze(1)
        return Paid(bonus, {"bonus_mean": bonus.mean(), "bonus_std": bonus.std()})

    @torch.no_grad()
    def after_step(self, batch: Batch, policy: Policy, rng: torch.Generator) -> None:
        """Move the target embedding, and the prototypes back onto the sphere."""
        follow(self.target_embed, self.embed, self.config.target_rate)
        self.normalise_prototypes()


PROTORL = Entry(
    "distance to embeddings of visited states that learnt prototypes pick",
    "Yarats et al. 2021, arXiv 2102.11271",
    ProtoRlConfig(),
    ProtoRl,
    {"proj_hidden": 128, "prototypes": 128, "queue": 512, "model_lr": 4e-4},
    calibrate_updates=1000,
)
