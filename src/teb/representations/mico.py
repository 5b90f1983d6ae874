"""MICo: the metric of independent couplings on latents, without any model (Castro et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from teb.agents.protocol import Batch, Policy, Shapes, Traits
from teb.checks import in_range, one_of_the_choices, positive
from teb.explorers.entry import Entry
from teb.maths.distances import MICO_BETA, pairwise_diffuse_distance
from teb.representations.regression import Learnt, Regressed, Regression, RepUpdate


@dataclass(frozen=True)
class MicoConfig:
    """Metric and loss."""

    mico_weight: float = 1e-5
    """w in (1 - w) L_TD + w L_MICo (released code: 1e-5 with SAC, 0.01 with DQN and Rainbow, 0.5 with IQN)."""
    beta: float = MICO_BETA
    """Weight of the angle between latents (paper)."""
    rep_update: RepUpdate = "joint"
    """Its step: one with the critic's, as in the paper; before or after it."""
    slow_tau: float = 0.01
    """Rate of the slow encoder behind the target; the released code copies now and then instead (ours)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        one_of_the_choices(self)
        in_range("mico_weight", self.mico_weight, 0.0, 1.0, high_open=True)
        in_range("beta", self.beta, 0.0, 1e6)
        positive("slow_tau", self.slow_tau)
        in_range("slow_tau", self.slow_tau, 0.0, 1.0)


class Mico(Regression):
    """U(z_i, z-_j) against |R_i - R_j| + gamma^n U(z-'_i, z-'_j), z- from the slow encoder, over all pairs."""

    error = "huber"

    def __init__(
        self,
        config: MicoConfig,
        shapes: Shapes,
        *,
        gamma: float,
        n_step: int,
        compute: torch.dtype = torch.float32,
    ) -> None:
        """Over (1 - w), so that the critic's loss keeps weight 1; Adam minds proportions only."""
        super().__init__()
        self.config, self.gamma = config, gamma
        self.weight = config.mico_weight / (1.0 - config.mico_weight)
        self.traits = Traits(
            reads=(0, -1),
            trains_encoder=self.weight > 0,
            joint=config.rep_update == "joint",
            after_critic=config.rep_update == "after",
            slow_tau=config.slow_tau,
        )

    def parameter_groups(self) -> list[dict[str, Any]]:
        """None: it trains the encoder alone."""
        return []

    def models_loss(self, batch: Batch, rng: torch.Generator) -> Learnt:
        """None: next states are those that were sampled."""
        return Learnt(batch.reward.new_zeros(()), None, {})

    def regressed(self, batch: Batch, said: None, policy: Policy, rng: torch.Generator) -> Regressed:
        """All B^2 pairs at once, [B, B]; the window's latents are the slow encoder's."""
        slow, n = batch.window_obs.detach(), batch.window_obs.shape[1] - 1
        distance = self.distance(batch.obs, slow[:, 0])
        with torch.no_grad():
            following = self.gamma**n * self.distance(slow[:, -1], slow[:, -1])
            target = (batch.reward - batch.reward.T).abs() + following
        return Regressed(distance, target, {"next_distance": following.mean()})

    def distance(self, x: Tensor, y: Tensor) -> Tensor:
        """U(x, y) = (||x||^2 + ||y||^2) / 2 + beta theta(x, y) of every x with every y, [B, B]."""
        return pairwise_diffuse_distance(x, y, 0.5, self.config.beta)


MICO = Entry(
    "latents whose distances are those of independent couplings",
    "Castro et al. 2021, arXiv 2106.08229",
    MicoConfig(),
    Mico,
    readings={"dqn": {"mico_weight": 0.01}},
)
