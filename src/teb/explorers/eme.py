"""EME: distance of consecutive states in a learnt metric, scaled by how reward models differ (Wang et al. 2024).

Written without sight of the paper's body: docs/algorithms/eme.md says what is known at second hand.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from teb.agents.protocol import Batch, Metrics, NStepMode, Paid, Policy, Shapes, Traits
from teb.checks import in_range, one_of_the_choices, positive
from teb.explorers.entry import Entry
from teb.maths.behaviour import DiversityScale, diversity_scale, effective_target, gap_of_means
from teb.maths.bisimulation import bisim_loss, pair_indices
from teb.maths.distances import safe_norm
from teb.maths.gaussian import equal_spread_kl
from teb.nets.actor_critic import noisy_action
from teb.nets.memory import follow
from teb.nets.mlp import Linear, hidden_mlp


@dataclass(frozen=True)
class EmeConfig:
    """Metric, ensemble and bonus. Letters in brackets name entries of docs/algorithms/teb.md that apply here too."""

    eta: float = 1.0
    """Weight of the bonus (ours)."""
    nstep_mode: NStepMode = "window"
    """Whose ends the bonus compares: the whole window's, each of its steps', or those of windows of one step."""
    kl_std: float = 0.2
    """Standard deviation of the policy in the metric's terms, fixed whatever the noise of acting (ours)."""
    reward_term: Literal["identity", "model"] = "identity"
    """Gap of mean rewards: from replayed rewards less their variances (second hand), or of predicted means (ours)."""
    policy_samples: int = 4
    """Actions drawn in a state for means and variances of its reward over the policy (ours)."""
    members: int = 6
    """K, models of the reward (second hand)."""
    bootstrap: float = 0.8
    """Share of each batch that a member learns from, drawn anew for each batch (ours)."""
    largest: float = 10.0
    """M, the largest scale of the bonus (second hand)."""
    zeta_norm: DiversityScale = "clamp"
    """How the members' variance scales the bonus: never below 1 (second hand), or relative to the batch (ours)."""
    pairing: Literal["perm", "derange"] = "perm"
    """Which states are compared: a permutation of the batch, or one without self-pairs (A-6)."""
    metric_target: Literal["online", "ema"] = "online"
    """Embedding behind the regression target: the current one, or a slow copy (A-5)."""
    metric_tau: float = 0.01
    """Rate of the slow copy (ours)."""
    embedding: int = 128
    """Size of the embedding; 1 makes the metric |g(s_i) - g(s_j)| (ours)."""
    pred_hidden: int = 512
    """Hidden width of the embedding (ours)."""
    ensemble_hidden: int = 256
    """Hidden width of each member (ours)."""
    model_lr: float = 1e-4
    """Adam's learning rate for embedding and members (ours)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        one_of_the_choices(self)
        for name in ("kl_std", "embedding", "pred_hidden", "ensemble_hidden", "model_lr"):
            positive(name, getattr(self, name))
        in_range("policy_samples", self.policy_samples, 2, 1000)
        in_range("members", self.members, 2, 1000)
        in_range("largest", self.largest, 1.0, 1e6)
        in_range("eta", self.eta, 0.0, 1e6)
        positive("bootstrap", self.bootstrap)
        for name in ("bootstrap", "metric_tau"):
            in_range(name, getattr(self, name), 0.0, 1.0)


class RewardEnsemble(nn.Module):
    """K models of the reward of an observation and an action, one hidden layer each, as one product."""

    def __init__(self, inputs: int, hidden: int, members: int) -> None:
        super().__init__()
        self.members = members
        self.hidden = Linear(inputs, hidden, blocks=members)
        self.last = nn.ModuleList(Linear(hidden, 1) for _ in range(members))

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """[B, D] and [B, A] -> [B, K]."""
        hidden = torch.relu(self.hidden(torch.cat([obs, action], -1))).chunk(self.members, -1)
        return torch.cat([last(h) for last, h in zip(self.last, hidden, strict=True)], -1)


class Eme(nn.Module):
    """The explorer: regresses a metric between states on its own operator, and pays for how far a step leads in it.

    All in float32: small differences between positions or latents are the signal.
    """

    def __init__(
        self,
        config: EmeConfig,
        shapes: Shapes,
        *,
        gamma: float,
        n_step: int,
        compute: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config = config
        self.gamma = gamma
        self.traits = Traits(eta=config.eta, horizon=1, reads=(0, 1, -1)).shown(config.nstep_mode)
        self.embed = hidden_mlp(shapes.obs, config.pred_hidden, config.embedding)
        self.ensemble = RewardEnsemble(shapes.obs + shapes.action, config.ensemble_hidden, config.members)
        self.slow_embed = (
            copy.deepcopy(self.embed).requires_grad_(False) if config.metric_target == "ema" else None
        )

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Embedding and ensemble."""
        learnt = [*self.embed.parameters(), *self.ensemble.parameters()]
        return [{"params": learnt, "lr": self.config.model_lr}]

    # --- the metric ------------------------------------------------------------------------------------------------

    def loss(self, batch: Batch, policy: Policy, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """Squared distance of the metric to its target, and the members' squared errors on their shares."""
        i, j = pair_indices(len(batch.obs), self.config.pairing, rng, batch.obs.device)
        latent = self.embed(batch.obs)
        distance = safe_norm(latent[i] - latent[j]).squeeze(1)
        target = self.target(batch, i, j, policy, rng)
        metric_loss = bisim_loss(distance, target)

        errors = (self.ensemble(batch.obs, batch.action) - batch.rewards[:, :1]).square()
        share = torch.rand(errors.shape, generator=rng, device=errors.device) < self.config.bootstrap
        ensemble_loss = (errors * share).sum() / share.sum().clamp(min=1)
        return metric_loss + ensemble_loss, {
            "metric_loss": metric_loss.detach(),
            "metric_mean": distance.detach().mean(),
            "metric_target": target.mean(),
            "ensemble_loss": ensemble_loss.detach(),
        }

    @torch.no_grad()
    def target(self, batch: Batch, i: Tensor, j: Tensor, policy: Policy, rng: torch.Generator) -> Tensor:
        """The operator at pairs of states, [P]; next states are the replayed ones, one step on."""
        latent = (self.embed if self.slow_embed is None else self.slow_embed)(batch.next1_obs)
        mean = policy(batch.obs, batch.skill, None)
        return effective_target(
            self.reward_gap(batch, i, j, mean, rng),
            safe_norm(latent[i] - latent[j]).squeeze(1),
            equal_spread_kl(mean[i], mean[j], self.config.kl_std),
            self.gamma,
        )

    def reward_gap(self, batch: Batch, i: Tensor, j: Tensor, mean: Tensor, rng: torch.Generator) -> Tensor:
        """|E r_i - E r_j| over actions about the policy's mean ones [B, A], [P]."""
        draws = [noisy_action(mean, self.config.kl_std, rng) for _ in range(self.config.policy_samples)]
        predicted = torch.stack([self.ensemble(batch.obs, action).mean(1) for action in draws])
        if self.config.reward_term == "model":
            expected = predicted.mean(0)
            return (expected[i] - expected[j]).abs()
        reward, variance = batch.rewards[:, 0], predicted.var(0)
        return gap_of_means((reward[i] - reward[j]).square(), variance[i], variance[j])

    # --- the bonus -------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def reward(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Paid:
        """d(start, end) scaled by the members' variance at the start, [B, 1]."""
        distance = safe_norm(self.embed(batch.next_obs) - self.embed(batch.obs))
        zeta = self.ensemble(batch.obs, batch.action).var(1, keepdim=True)
        scale = diversity_scale(zeta, self.config.largest, self.config.zeta_norm)
        bonus = distance * scale
        return Paid(
            bonus,
            {
                "bonus_mean": bonus.mean(),
                "bonus_std": bonus.std(),
                "zeta_mean": zeta.mean(),
                "scale_mean": scale.mean(),
            },
        )

    @torch.no_grad()
    def after_step(self, batch: Batch, policy: Policy, rng: torch.Generator) -> None:
        """Move the slow copy of the embedding."""
        if self.slow_embed is not None:
            follow(self.slow_embed, self.embed, self.config.metric_tau)


EME = Entry(
    "distance of consecutive states in a metric of behaviour, scaled by an ensemble",
    "Wang et al. 2024, Rethinking Exploration in RL, NeurIPS",
    EmeConfig(),
    Eme,
    {"pred_hidden": 128, "ensemble_hidden": 64, "model_lr": 4e-4},
    calibrate_updates=1000,
    own_metric=True,
)
