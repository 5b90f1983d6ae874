"""The predictive bisimulation metric as a loss on latents (Liang et al. 2026, eqs. 5 to 10)."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from teb.agents.protocol import Batch, Measured, Policy, Shapes, Traits
from teb.checks import in_range, one_of_the_choices, positive
from teb.explorers.entry import Entry
from teb.maths.bisimulation import (
    Pairing,
    RewardDifferential,
    metric_target,
    pair_indices,
    reward_differential,
    scaled_gradient,
    transition_distance,
)
from teb.maths.distances import LatentDistance, latent_distance
from teb.maths.gaussian import SigmaParam
from teb.maths.shaping import n_step_sum
from teb.nets.memory import follow
from teb.nets.metric import MetricModels, Prediction, Transition, WDist, error_length
from teb.representations.regression import Learnt, Regressed, Regression

DeltaR = RewardDifferential | Literal["env_nstep", "env_1"]


@dataclass(frozen=True)
class BisimConfig:
    """Metric, models and loss. Letters in brackets name the entry of docs/algorithms/teb.md that discusses it."""

    lambda_b: float = 0.5
    """Weight of L_bisim (paper 1.4)."""
    lambda_r: float = 0.5
    """Weight of L_rew (paper 1.4)."""
    lambda_p: float = 1e-4
    """Weight of L_dyn (paper 1.4)."""
    rep_update: Literal["sequential", "joint"] = "sequential"
    """A step of its own before the critic's, on re-encoded pictures after it; or one encoding for both (ours)."""
    latent_dist: LatentDistance = "l2"
    """Norm between latents (A-2)."""
    bisim_loss: Literal["squared", "huber"] = "squared"
    """Of the difference between distance and target (A-3)."""
    detach_second: bool = False
    """Stop the gradient through the second latent of a pair (A-4)."""
    metric_target: Literal["online", "ema"] = "online"
    """Models behind target and potential: current ones, or a slow copy of them (A-5)."""
    metric_tau: float = 0.01
    """Rate of the slow copy (A-5)."""
    pairing: Pairing = "perm"
    """Who is compared with whom (A-6)."""
    rew_grad_to_encoder: bool = True
    """Whether L_rew trains the encoder (A-7)."""
    dyn_grad_to_encoder: bool = True
    """Whether L_dyn does, on its input side; the next latent never carries a gradient (A-7)."""
    rep_lr: float = 1e-4
    """Adam's learning rate for both models (A-9)."""
    dyn_head_unscaled: bool = False
    """Train the transition model with weight 1; the encoder still gets lambda_p (A-9)."""
    reward_horizon: int = 3
    """N of the predictor's N-step return; not given in the paper (B-1)."""
    sigma_min: float = 1e-4
    """Lower end of the predictor's standard deviation (paper 1.4)."""
    sigma_max: float = 1.0
    """Upper end (paper 1.4)."""
    sigma_param: SigmaParam = "affine_sigmoid"
    """How raw outputs become standard deviations (B-4)."""
    nll_scale: float = 1.0
    """Factor in front of L_rew; RAP's code has 0.5 (B-5)."""
    delta_r: DeltaR = "sample"
    """The reward differential: of predictions, or of stored N-step or single rewards (B-6; paper fig. 5)."""
    bisim_action: Literal["replay", "policy"] = "replay"
    """Actions behind the target (B-8)."""
    pred_hidden: int = 512
    """Hidden width of both models (B-9)."""
    transition: Transition = "gaussian"
    """Transition model (C-1)."""
    w_dist: WDist = "mean"
    """Stand-in for W1 between predictions (C-2)."""
    dyn_reward_decoder: bool = False
    """Also decode the reward from a draw of the next latent, as RAP does (C-3)."""
    dyn_horizon: Literal["1", "n"] = "1"
    """Which next latent the transition model predicts: of o_{t+1} or o_{t+n} (C-4)."""
    c_r: float = 1.0
    """Weight of the reward differential (paper 1.4)."""
    c_t: float | None = None
    """Weight of the transition term; None means gamma (paper 1.4)."""
    rep_grad_clip: float = 10.0
    """Clip of the gradient's norm, encoder and models together; 0 switches it off (ours)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        one_of_the_choices(self)
        for name in ("reward_horizon", "pred_hidden", "rep_lr", "sigma_min", "sigma_max"):
            positive(name, getattr(self, name))
        for name in ("lambda_b", "lambda_r", "lambda_p", "c_r", "nll_scale", "rep_grad_clip"):
            in_range(name, getattr(self, name), 0.0, 1e6)
        in_range("metric_tau", self.metric_tau, 0.0, 1.0)
        if self.c_t is not None:
            in_range("c_t", self.c_t, 0.0, 1.0, high_open=True)
        if self.sigma_max < self.sigma_min:
            raise ValueError(
                f"sigma_max: must be at least sigma_min = {self.sigma_min:g}, got {self.sigma_max:g}"
            )
        if self.transition == "deterministic" and self.w_dist != "mean":
            raise ValueError(
                f"w_dist: a deterministic transition has no spread, use 'mean', got {self.w_dist!r}"
            )

    @property
    def trains_encoder(self) -> bool:
        """Whether any term reaches the encoder."""
        return bool(
            self.lambda_b
            or (self.rew_grad_to_encoder and self.lambda_r * self.nll_scale)
            or (self.dyn_grad_to_encoder and self.lambda_p)
        )


class Bisim(Regression):
    """L_rep = lambda_b L_bisim + lambda_r L_rew + lambda_p L_dyn; its metric may be borrowed by an explorer."""

    def __init__(
        self,
        config: BisimConfig,
        shapes: Shapes,
        *,
        gamma: float,
        n_step: int,
        compute: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config, self.gamma = config, gamma
        self.weight, self.error = config.lambda_b, config.bisim_loss
        self.c_r = config.c_r
        self.c_t = gamma if config.c_t is None else config.c_t
        self.traits = Traits(
            horizon=config.reward_horizon,
            grad_clip=config.rep_grad_clip,
            reads=(0, 1) if config.dyn_horizon == "1" else (0, -1),
            trains_encoder=config.trains_encoder,
            joint=config.rep_update == "joint",
        )
        self.online = MetricModels(
            shapes.obs,
            shapes.action,
            hidden=config.pred_hidden,
            sigma_range=(config.sigma_min, config.sigma_max),
            sigma_param=config.sigma_param,
            transition=config.transition,
            reward_decoder=config.dyn_reward_decoder,
        )
        slow = config.metric_target == "ema"
        self.slow = copy.deepcopy(self.online).requires_grad_(False) if slow else None

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Both models with one learning rate."""
        return [{"params": list(self.online.parameters()), "lr": self.config.rep_lr}]

    def predict(self, latent: Tensor, action: Tensor) -> Prediction:
        """What the metric's current, or slow, models say."""
        return (self.slow if self.slow is not None else self.online)(latent, action)

    def regressed(self, batch: Batch, said: Prediction, policy: Policy, rng: torch.Generator) -> Regressed:
        """Distances of latents z_t = `batch.obs`, and the operator applied to what the models say (TEB eq. 10)."""
        config, latent = self.config, batch.obs
        with torch.no_grad():
            if config.bisim_action == "policy":
                said = self.predict(latent, policy(latent, batch.skill, None))
            elif self.slow is not None:
                said = self.predict(latent, batch.action)
            pairs = pair_indices(latent.shape[0], config.pairing, rng, latent.device)
            target = self.target(said, batch.rewards, pairs, rng)
        i, j = pairs
        second = latent[j].detach() if config.detach_second else latent[j]
        return Regressed(latent_distance(latent[i], second, config.latent_dist), target, {})

    def models_loss(self, batch: Batch, rng: torch.Generator) -> Learnt:
        """lambda_r L_rew + lambda_p L_dyn, each with or without gradient into z_t; and what was predicted."""
        config, latent = self.config, batch.obs
        z_rew = latent if config.rew_grad_to_encoder else latent.detach()
        prediction = self.online(z_rew, batch.action)
        dynamics = prediction
        factor = (config.lambda_p if config.dyn_head_unscaled else 1.0) * config.dyn_grad_to_encoder
        if config.rew_grad_to_encoder != config.dyn_grad_to_encoder or config.dyn_head_unscaled:
            dynamics = self.online(scaled_gradient(latent, factor), batch.action)
        following = (batch.next1_obs if config.dyn_horizon == "1" else batch.next_obs).detach()
        reward_loss = self.online.reward_loss(
            prediction, n_step_sum(batch.rewards, self.gamma, config.reward_horizon)
        )
        transition_loss = self.online.transition_loss(dynamics, following)
        if config.dyn_reward_decoder:
            transition_loss = transition_loss + self.online.decoder_loss(dynamics, batch.rewards[:, :1], rng)
        weight = 1.0 if config.dyn_head_unscaled else config.lambda_p
        loss = config.lambda_r * config.nll_scale * reward_loss + weight * transition_loss
        return Learnt(
            loss,
            prediction,
            {
                "reward_nll": reward_loss.detach(),
                "transition_nll": transition_loss.detach(),
                "transition_rmse": error_length(dynamics.next, following),
                "sigma_mean": prediction.reward_sigma.detach().mean(),
            },
        )

    def target(
        self, prediction: Prediction, rewards: Tensor, pairs: tuple[Tensor, Tensor], rng: torch.Generator
    ) -> Tensor:
        """One application of the operator to each pair, [P]: c_R Delta_R + c_T W1 (TEB eqs. 5 and 6)."""
        config, (i, j) = self.config, pairs
        if config.delta_r in ("env_nstep", "env_1"):
            steps = config.reward_horizon if config.delta_r == "env_nstep" else 1
            earned = n_step_sum(rewards, self.gamma, steps).squeeze(1)
            delta_r = (earned[i] - earned[j]).abs()
        else:
            mean, sigma = prediction.reward.squeeze(1), prediction.reward_sigma.squeeze(1)
            noise = torch.randn(mean.shape, generator=rng, device=mean.device)
            other = (
                torch.randn(mean.shape, generator=rng, device=mean.device)
                if config.delta_r == "sample_indep"
                else noise
            )
            delta_r = reward_differential(
                mean[i], sigma[i], mean[j], sigma[j], noise[i], other[j], config.delta_r
            )
        following = prediction.drawn_next(rng) if config.w_dist == "sample" else prediction.next
        kind = "mean" if config.w_dist == "sample" else config.w_dist
        spread = prediction.next_sigma
        w1 = transition_distance(following[i], spread[i], following[j], spread[j], kind, config.latent_dist)
        return metric_target(delta_r, w1, self.c_r, self.c_t)

    def distances(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Measured | None:
        """d_omega, the norm between latents, if L_bisim makes it a metric (TEB eq. 3)."""
        z = batch.obs
        between = latent_distance(z[:, None], z[None], self.config.latent_dist)
        return Measured("bisimulation metric", between) if self.config.lambda_b else None

    @torch.no_grad()
    def after_step(self) -> None:
        """Move the slow copy of the models."""
        if self.slow is not None:
            follow(self.slow, self.online, self.config.metric_tau)


THEOREM_FAITHFUL: dict[str, Any] = {
    "bisim_action": "policy",
    "delta_r": "folded",
    "reward_horizon": 1,
    "transition": "deterministic",
}
"""The reading under which the paper's theorems apply most nearly."""

LITERAL: dict[str, Any] = {"bisim_action": "policy", "delta_r": "sample_indep", "rep_grad_clip": 0.0}
"""The equations word by word."""

BISIM = Entry(
    "latents whose distances are predictive bisimulation distances",
    "Liang et al. 2026, arXiv 2602.18724",
    BisimConfig(),
    Bisim,
    {"pred_hidden": 256, "rep_lr": 4e-4},
    {"theorem-faithful": THEOREM_FAITHFUL, "literal": LITERAL},
)
