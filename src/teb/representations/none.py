"""No representation: the latent is whatever the critic's loss makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from teb.agents.protocol import Batch, Metrics, Policy, Shapes, Traits
from teb.explorers.entry import Entry


@dataclass(frozen=True)
class NoRepresentationConfig:
    """Nothing to choose."""


class NoRepresentation(nn.Module):
    """A representation that learns nothing and reads nothing."""

    traits = Traits(reads=())

    def __init__(
        self,
        config: NoRepresentationConfig,
        shapes: Shapes,
        *,
        gamma: float,
        n_step: int,
        compute: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()

    def parameter_groups(self) -> list[dict[str, Any]]:
        """None."""
        return []

    def loss(self, batch: Batch, policy: Policy, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """Never asked for, since there are no parameters."""
        raise NotImplementedError("a representation without parameters has no loss")

    def after_step(self) -> None:
        """Nothing to move."""


NONE = Entry(
    "what the critic's loss alone makes of pictures",
    "Yarats et al. 2022, arXiv 2107.09645",
    NoRepresentationConfig(),
    NoRepresentation,
)
