"""SMM: each skill is paid for states that are rare under its own density model (Lee et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from teb.agents.protocol import Batch, Metrics, NStepMode, Paid, Policy, Shapes, Skills, Traits
from teb.checks import in_range, one_of_the_choices, positive
from teb.explorers.entry import Entry
from teb.maths.skill_rewards import RecognitionSign, matching_bonus, skill_log_likelihood
from teb.nets.mlp import Mlp
from teb.nets.vae import Vae, code_cost, squared_error


@dataclass(frozen=True)
class SmmConfig:
    """A density model per skill, a classifier of skills, and the weights of what they say."""

    eta: float = 1.0
    """Weight of the bonus (URLB)."""
    skill_count: int = 4
    """Number of one-hot skills; one is drawn per episode (URLB)."""
    sign: RecognitionSign = "official"
    """Whether being recognised costs, as in the authors' and URLB's code, or pays (paper eq. 3)."""
    state_weight: float = 1.0
    """c_s, weight of the reconstruction error (URLB)."""
    prior_weight: float = 1.0
    """c_z, weight of log K, the same for all states (URLB)."""
    recognition_weight: float = 1.0
    """c_d, weight of the classifier's term (URLB)."""
    beta: float = 0.5
    """Weight of the code's KL in the density model's loss (URLB)."""
    vae_hidden: int = 150
    """Width of the density model's hidden layers (URLB)."""
    code: int = 128
    """Width of its code (URLB)."""
    vae_lr: float = 1e-2
    """Adam's learning rate for the density model (URLB)."""
    hidden: int = 1024
    """Width of the classifier's two hidden layers (URLB)."""
    classifier_lr: float = 1e-3
    """Adam's learning rate for the classifier (URLB)."""
    n_step_mode: NStepMode = "window"
    """How the bonus meets windows: paid once for o_t, for each step, or in windows of one step (URLB: window)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        one_of_the_choices(self)
        for name in ("vae_hidden", "code", "vae_lr", "hidden", "classifier_lr"):
            positive(name, getattr(self, name))
        for name in ("eta", "state_weight", "prior_weight", "recognition_weight", "beta"):
            in_range(name, getattr(self, name), 0.0, 1e6)
        in_range("skill_count", self.skill_count, 2, 1e6)


class Smm(nn.Module):
    """Trains an autoencoder of (o, z) and a classifier of z given o, and pays with both for o_t."""

    def __init__(
        self,
        config: SmmConfig,
        shapes: Shapes,
        *,
        gamma: float,
        n_step: int,
        compute: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config = config
        skills = Skills(config.skill_count, "one-hot", period=None)
        self.traits = Traits(eta=config.eta, pays_first=True, skills=skills).shown(config.n_step_mode)
        self.vae = Vae(shapes.obs + config.skill_count, config.vae_hidden, config.code)
        self.classifier = Mlp(shapes.obs, config.hidden, config.skill_count, depth=2, compute=compute)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Density model and classifier, each with its own learning rate."""
        return [
            {"params": list(self.vae.parameters()), "lr": self.config.vae_lr},
            {"params": list(self.classifier.parameters()), "lr": self.config.classifier_lr},
        ]

    def loss(self, batch: Batch, policy: Policy, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """Sum of beta KL (sum over the code) + squared error (mean over the input) and cross-entropy.

        The two share no parameter, so one step on their sum is a step on each.
        """
        x = torch.cat([batch.obs, batch.skill], -1)
        coded = self.vae(x, rng)
        kl, error = code_cost(coded).mean(), squared_error(x, coded).mean() / x.shape[-1]
        logits = self.classifier(batch.obs)
        right = logits.detach().argmax(-1) == batch.skill.argmax(-1)
        unlikely = -skill_log_likelihood(logits, batch.skill).mean()
        return self.config.beta * kl + error + unlikely, {
            "vae_kl": kl.detach(),
            "vae_error": error.detach(),
            "classifier_loss": unlikely.detach(),
            "classifier_accuracy": right.float().mean(),
        }

    @torch.no_grad()
    def reward(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Paid:
        """c_s ||x - xhat||^2 + c_z log K -+ c_d log d(z | o_t) with the models before their step, [B, 1]."""
        config = self.config
        x = torch.cat([batch.obs, batch.skill], -1)
        rarity = squared_error(x, self.vae(x, rng))
        likelihood = skill_log_likelihood(self.classifier(batch.obs), batch.skill)
        weights = (config.state_weight, config.prior_weight, config.recognition_weight)
        bonus = matching_bonus(rarity, likelihood, config.skill_count, weights, config.sign)
        return Paid.of(bonus.unsqueeze(1), {"rarity_mean": rarity.mean()})

    def after_step(self, batch: Batch, policy: Policy, rng: torch.Generator) -> None:
        """Nothing to move."""


SMM = Entry(
    "skills that seek states rare under their own density model",
    "Lee et al. 2019, arXiv 1906.05274",
    SmmConfig(),
    Smm,
    {"hidden": 256, "classifier_lr": 4e-3},
)
