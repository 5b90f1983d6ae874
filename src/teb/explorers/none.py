"""No bonus at all: the plain backbone, the row that every bonus has to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from teb.agents.protocol import Batch, Metrics, Paid, Policy, Shapes, Traits
from teb.explorers.entry import Entry


@dataclass(frozen=True)
class NoBonusConfig:
    """Nothing to choose."""


class NoBonus(nn.Module):
    """An explorer that pays nothing and learns nothing."""

    traits = Traits(eta=0.0, reads=(), trains_encoder=None)

    def __init__(
        self,
        config: NoBonusConfig,
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
        raise NotImplementedError("an explorer without parameters has no loss")

    def reward(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Paid:
        """Zero, [B, 1]."""
        return Paid(torch.zeros_like(batch.reward), {})

    def after_step(self, batch: Batch, policy: Policy, rng: torch.Generator) -> None:
        """Nothing to move."""


ETA0 = Entry(
    "the backbone without any bonus", "Laskin et al. 2021, arXiv 2110.15191", NoBonusConfig(), NoBonus
)
