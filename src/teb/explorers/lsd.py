"""LSD: skills are directions in an embedding that stretches no distance; going along them pays (Park et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from teb.agents.protocol import Batch, Metrics, NStepMode, Paid, Policy, Shapes, Skills, Traits
from teb.checks import in_range, one_of_the_choices, positive
from teb.explorers.entry import Entry
from teb.maths.skill_rewards import centred_one_hot
from teb.nets.mlp import Mlp
from teb.nets.spectral import SpectralLinear, spectral_layers


@dataclass(frozen=True)
class LsdConfig:
    """An embedding under a Lipschitz constraint, and the skills that it is aligned with."""

    eta: float = 1.0
    """Weight of the bonus (Park et al. 2022)."""
    skill: Literal["discrete", "normal"] = "discrete"
    """One-hot skills with a centred score, or standard normal ones (Park et al. 2022 have both)."""
    skill_count: int = 16
    """Number of discrete skills (Park et al. 2022)."""
    skill_dim: int = 2
    """Width of normal skills (Park et al. 2022)."""
    skill_period: int = 50
    """Environment steps after which a new skill is drawn within an episode (URLB; the paper: whole episodes)."""
    hidden: int = 1024
    """Width of the embedding's two hidden layers (Park et al. 2022)."""
    embedding_lr: float = 1e-4
    """Adam's learning rate for the embedding (paper table 3; Park et al. 2022: 3e-5)."""
    power_iterations: int = 2
    """Power iterations per layer before a step: one for each end of a window, each being a forward pass (ours)."""
    n_step_mode: NStepMode = "window"
    """How the bonus meets windows: over o_t ... o_t+n at once, per step, or in windows of one step (ours: window)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        one_of_the_choices(self)
        for name in ("skill_dim", "skill_period", "hidden", "embedding_lr", "power_iterations"):
            positive(name, getattr(self, name))
        in_range("eta", self.eta, 0.0, 1e6)
        in_range("skill_count", self.skill_count, 2, 1e6)


class Lsd(nn.Module):
    """Trains phi so that windows move along their skill, and pays for how far they do."""

    def __init__(
        self,
        config: LsdConfig,
        shapes: Shapes,
        *,
        gamma: float,
        n_step: int,
        compute: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config = config
        self.discrete = config.skill == "discrete"
        width = config.skill_count if self.discrete else config.skill_dim
        skills = Skills(width, "one-hot" if self.discrete else "normal", config.skill_period)
        self.traits = Traits(eta=config.eta, skills=skills).shown(config.n_step_mode)
        self.embedding = Mlp(shapes.obs, config.hidden, width, depth=2, compute=compute, layer=SpectralLinear)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The embedding."""
        return [{"params": list(self.embedding.parameters()), "lr": self.config.embedding_lr}]

    def loss(self, batch: Batch, policy: Policy, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """-mean (phi(o_{t+n}) - phi(o_t)) . m(z), with bounds brought up to date; both ends take gradients."""
        layers = spectral_layers(self.embedding)
        for layer in layers:
            layer.iterate(self.config.power_iterations)
        loss = -self.alignment(batch).mean()
        norms = {f"sigma_{place}": layer.sigma().detach() for place, layer in enumerate(layers, 1)}
        return loss, {"alignment_loss": loss.detach()} | norms

    def alignment(self, batch: Batch) -> Tensor:
        """How far each window moves along its skill's score m(z), [B]."""
        ends = self.embedding(torch.cat([batch.obs, batch.next_obs]))
        start, end = ends.chunk(2)
        return ((end - start) * self.score(batch.skill)).sum(-1)

    def score(self, skill: Tensor) -> Tensor:
        """m(z), [B, K]: a normal skill itself, a one-hot one centred, so that all skills together score 0."""
        return centred_one_hot(skill) if self.discrete else skill

    @torch.no_grad()
    def reward(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Paid:
        """The same displacement with the embedding just stepped, [B, 1]: the sum of the steps' undiscounted rewards."""
        return Paid.of(self.alignment(batch).unsqueeze(1), {})

    def after_step(self, batch: Batch, policy: Policy, rng: torch.Generator) -> None:
        """Nothing to move."""


LSD = Entry(
    "skills that go far, in an embedding that stretches no distance",
    "Park et al. 2022, arXiv 2202.00914",
    LsdConfig(),
    Lsd,
    {"hidden": 256, "embedding_lr": 4e-4},
)
