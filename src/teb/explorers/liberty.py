"""LIBERTY: distance to the initial state in an inverse-dynamic bisimulation metric, differenced (Wang et al. 2023).

Written without sight of the paper's body: docs/algorithms/liberty.md says what is known at second hand.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from teb.agents.protocol import Batch, Metrics, Paid, Policy, Shapes, Traits
from teb.checks import in_range, one_of_the_choices, positive
from teb.explorers.entry import Entry
from teb.maths.behaviour import inverse_dynamic_target
from teb.maths.bisimulation import TransitionDistance, bisim_loss, pair_indices, transition_distance
from teb.maths.distances import safe_norm
from teb.maths.gaussian import bounded_sigma, gaussian_nll
from teb.maths.shaping import Shaping, end_discount, shaping_term
from teb.nets.memory import MovingAverage, follow
from teb.nets.metric import TRANSITION_SIGMA
from teb.nets.mlp import hidden_mlp


@dataclass(frozen=True)
class LibertyConfig:
    """Metric, potential and bonus. Letters in brackets name entries of docs/algorithms/teb.md that apply here too."""

    eta: float = 1.0
    """Weight of the bonus, lambda in the paper (ours)."""
    shaping: Shaping = "window_gamma"
    """How F meets windows of n steps (D-5); `one` makes n = 1 everywhere."""
    anchor: Literal["s0", "batch_mean", "random", "ema"] = "s0"
    """What the potential measures the distance to: the run's first observation (paper), or as in TEB (D-4)."""
    anchor_rate: float = 0.01
    """Rate of the moving average if `anchor` is ema (ours)."""
    terminal_potential: Literal["zero", "raw"] = "zero"
    """Potential of a truly terminal state (D-6)."""
    ground: Literal["embedding", "obs"] = "embedding"
    """What W2 compares: predicted embeddings, so the metric itself (paper), or predicted observations (ours)."""
    w_dist: TransitionDistance = "w2"
    """Formula for W2 between Gaussian predictions (C-2)."""
    c_t: float | None = None
    """Weight of the transition term; None means gamma (second hand)."""
    c_inv: float | None = None
    """Weight of the difference of inverse predictions; None means gamma (second hand)."""
    dyn_horizon: Literal["1", "n"] = "1"
    """The next state of a transition: o_{t+1}, or o_{t+n} with the reward of the window (C-4)."""
    pairing: Literal["perm", "derange"] = "perm"
    """Which states are compared: a permutation of the batch, or one without self-pairs (A-6)."""
    metric_target: Literal["online", "ema"] = "online"
    """Embedding behind the regression target: the current one, or a slow copy (A-5)."""
    metric_tau: float = 0.01
    """Rate of the slow copy (ours)."""
    inverse_loss: Literal["squared", "l1"] = "squared"
    """Regression loss of the inverse model (ours)."""
    aux_weight: float = 0.1
    """Weight of metric and inverse loss beside the transition loss (second hand)."""
    embedding: int = 128
    """Size of the embedding; 1 makes the metric |g(s_i) - g(s_j)| (ours)."""
    pred_hidden: int = 512
    """Hidden width of embedding, transition and inverse model (ours)."""
    model_lr: float = 1e-4
    """Adam's learning rate for all of them (ours)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        one_of_the_choices(self)
        for name in ("embedding", "pred_hidden", "model_lr"):
            positive(name, getattr(self, name))
        for name in ("eta", "aux_weight"):
            in_range(name, getattr(self, name), 0.0, 1e6)
        for name in ("anchor_rate", "metric_tau"):
            in_range(name, getattr(self, name), 0.0, 1.0)
        if self.c_t is not None:
            in_range("c_t", self.c_t, 0.0, 1.0, high_open=True)
        if self.c_inv is not None:
            in_range("c_inv", self.c_inv, 0.0, 1e6)


class Liberty(nn.Module):
    """The explorer: regresses a metric between states on its own operator, and pays shaping by the distance to s_0.

    All in float32: small differences between positions or latents are the signal.
    """

    def __init__(
        self,
        config: LibertyConfig,
        shapes: Shapes,
        *,
        gamma: float,
        n_step: int,
        compute: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config = config
        one = config.shaping == "one"
        self.traits = Traits(eta=config.eta, n_step=1 if one else None, horizon=1, reads=(0, 1, -1))
        self.end_factor = end_discount(config.shaping, gamma, 1 if one else n_step)
        self.c_t = gamma if config.c_t is None else config.c_t
        self.c_inv = gamma if config.c_inv is None else config.c_inv
        hidden, known = config.pred_hidden, shapes.obs + shapes.action
        predicted = config.embedding if config.ground == "embedding" else shapes.obs
        self.embed = hidden_mlp(shapes.obs, hidden, config.embedding)
        self.transition = hidden_mlp(known, hidden, 2 * predicted)
        self.inverse = hidden_mlp(2 * shapes.obs, hidden, shapes.action)
        self.slow_embed = (
            copy.deepcopy(self.embed).requires_grad_(False) if config.metric_target == "ema" else None
        )
        self.moving_anchor = (
            MovingAverage(config.embedding, config.anchor_rate) if config.anchor == "ema" else None
        )

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Embedding, transition and inverse model."""
        learnt = [*self.embed.parameters(), *self.transition.parameters(), *self.inverse.parameters()]
        return [{"params": learnt, "lr": self.config.model_lr}]

    # --- the metric ------------------------------------------------------------------------------------------------

    def loss(self, batch: Batch, policy: Policy, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """Transition likelihood, and weighted the losses of inverse model and metric."""
        config = self.config
        window = config.dyn_horizon == "n"
        next_obs, reward = (
            (batch.next_obs, batch.reward) if window else (batch.next1_obs, batch.rewards[:, :1])
        )
        mean, sigma = self.predicted(batch.obs, batch.action)
        transition_loss = gaussian_nll(self.following(next_obs), mean, sigma).mean()
        seen_action = self.inverse_action(batch.obs, next_obs)
        missed = batch.action - seen_action
        inverse_loss = (missed.square() if config.inverse_loss == "squared" else missed.abs()).mean()

        i, j = pair_indices(len(reward), config.pairing, rng, reward.device)
        latent = self.embed(batch.obs)
        distance = safe_norm(latent[i] - latent[j]).squeeze(1)
        with torch.no_grad():
            w2 = transition_distance(mean[i], sigma[i], mean[j], sigma[j], config.w_dist)
        target = inverse_dynamic_target(
            reward[i], reward[j], w2, seen_action[i], seen_action[j], self.c_t, self.c_inv
        )
        metric_loss = bisim_loss(distance, target)
        return transition_loss + config.aux_weight * (metric_loss + inverse_loss), {
            "transition_nll": transition_loss.detach(),
            "inverse_loss": inverse_loss.detach(),
            "metric_loss": metric_loss.detach(),
            "metric_mean": distance.detach().mean(),
            "metric_target": target.mean(),
        }

    def predicted(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of what W2 compares of the next state, [B, E] or [B, D] each."""
        mean, raw = self.transition(torch.cat([obs, action], -1)).chunk(2, -1)
        return mean, bounded_sigma(raw, *TRANSITION_SIGMA)

    @torch.no_grad()
    def following(self, next_obs: Tensor) -> Tensor:
        """What the transition model is to predict of a next state: its embedding, or itself."""
        if self.config.ground == "obs":
            return next_obs
        return (self.embed if self.slow_embed is None else self.slow_embed)(next_obs)

    def inverse_action(self, obs: Tensor, next_obs: Tensor) -> Tensor:
        """I(s, s'), the action that leads from one state to the other, [B, A]."""
        return torch.tanh(self.inverse(torch.cat([obs, next_obs], -1)))

    # --- the bonus -------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def reward(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Paid:
        """F = gamma Phi(end) - Phi(start) with Phi(s) = d(s, s_0), [B, 1]."""
        first_step = self.config.shaping == "first_step"
        ended = (batch.discount == 0).squeeze(1)
        if first_step and batch.window_obs.shape[1] > 2:
            ended = torch.zeros_like(ended)  # a terminal state is the last of its window
        start = self.embed(batch.obs)
        end = self.embed(batch.next1_obs if first_step else batch.next_obs)
        anchor = self.anchor(start, batch, rng)
        phi, phi_end = (safe_norm(latent - anchor).squeeze(1) for latent in (start, end))
        if self.config.terminal_potential == "zero":
            phi_end = torch.where(ended, 0.0, phi_end)
        bonus = shaping_term(phi, phi_end, self.end_factor).unsqueeze(1)
        return Paid(bonus, {"bonus_mean": bonus.mean(), "bonus_std": bonus.std(), "phi_mean": phi_end.mean()})

    def anchor(self, latent: Tensor, batch: Batch, rng: torch.Generator) -> Tensor:
        """The embedding that distances are measured to, [1, E], or for `random` one each, [B, E]."""
        if self.config.anchor == "s0":
            return self.embed(batch.first_obs)
        if self.config.anchor == "random":
            return latent[torch.randperm(len(latent), generator=rng, device=latent.device)]
        mean = latent.mean(0, keepdim=True)
        return mean if self.moving_anchor is None else self.moving_anchor.value(before_first=mean)

    @torch.no_grad()
    def after_step(self, batch: Batch, policy: Policy, rng: torch.Generator) -> None:
        """Move the slow copy of the embedding, and the moving anchor."""
        if self.slow_embed is not None:
            follow(self.slow_embed, self.embed, self.config.metric_tau)
        if self.moving_anchor is not None:
            self.moving_anchor.move(self.embed(batch.obs).mean(0, keepdim=True))


LIBERTY = Entry(
    "potential-based bonus from an inverse-dynamic bisimulation metric",
    "Wang et al. 2023, Efficient Potential-based Exploration, NeurIPS",
    LibertyConfig(),
    Liberty,
    {"pred_hidden": 128, "model_lr": 4e-4},
    own_metric=True,
)
