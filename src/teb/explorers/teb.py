"""TEB: distance to an anchor in the predictive metric, differenced into a shaping bonus (Liang et al. 2026).

On state vectors there is no encoder to shape: the latent is the observation, and this explorer trains the metric's
two models itself. From pictures it borrows them from the representation that they shape. The variants that this one
file covers, all by configuration:

- `teb`: the paper's batch-mean anchor; docs/algorithms/teb.md says which reading is the default and why;
- `teb-p` (ours): the anchor is a sample of replayed states, the potential the mean metric distance to the k nearest;
- `centroid` (control): no learned model, plain distance to the centroid of the batch.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from teb.agents.protocol import Batch, Measured, Metrics, Paid, Policy, Shapes, Traits
from teb.checks import in_range, one_of_the_choices, positive
from teb.explorers.entry import Entry
from teb.maths.bisimulation import pairwise_transition_distance, transition_distance
from teb.maths.distances import LatentDistance
from teb.maths.gaussian import SigmaParam
from teb.maths.particles import nearest_mean
from teb.maths.shaping import Shaping, end_discount, n_step_sum, shaping_term, summed_shaping
from teb.nets.memory import MovingAverage, Ring, follow
from teb.nets.metric import MetricModels, Prediction, Transition, WDist, error_length

AnchorKind = Literal["batch_mean", "random", "s0", "ema", "particles"]
AnchorReward = Literal["pred_mean", "pred_sample", "replay_nstep", "replay_1"]
PhiAction = Literal["policy", "replay_policy", "replay_replay", "expected", "common"]


@dataclass(frozen=True)
class BonusConfig:
    """Potential and bonus. Letters in brackets name the entry of docs/algorithms/teb.md that discusses it."""

    eta: float = 1.0
    """Weight of the bonus; not given for mazes (D-9)."""
    bonus: Literal["shaping", "potential"] = "shaping"
    """The differenced potential F (paper eq. 14), or the potential itself at the window's end (ours)."""
    shaping: Shaping = "window_gamma"
    """How F meets windows of n steps (D-5); `one` makes n = 1 everywhere."""
    anchor: AnchorKind = "batch_mean"
    """What the potential measures the distance to (paper eq. 13: batch_mean; particles: ours) (D-4)."""
    anchor_action: Literal["match", "replay"] = "match"
    """Action of the anchor's elements: by the rule of `phi_action`, or always the replayed one (D-4)."""
    anchor_reward: AnchorReward = "pred_mean"
    """The anchor's reward r* (D-3)."""
    anchor_rate: float = 0.01
    """Rate of the moving average if `anchor` is ema (ours)."""
    neighbours: int = 3
    """k of the particle anchor (ours)."""
    particles: int = 2048
    """Replayed states that the particle anchor keeps (ours)."""
    phi_action: PhiAction = "policy"
    """Actions inside Phi(s_t) and Phi(s_t+n): D-1, and `common`, one uniform action for all states (ours)."""
    phi_samples: int = 4
    """Policy samples to average if `phi_action` is expected (D-1)."""
    phi_reward: Literal["mean", "sample"] = "mean"
    """Predicted mean, or a draw, inside Phi (D-2)."""
    terminal_potential: Literal["zero", "raw"] = "zero"
    """Potential of a truly terminal state (D-6)."""
    fint_norm: Literal["none", "std"] = "none"
    """Divide the bonus by its standard deviation over the batch (D-8)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        one_of_the_choices(self)
        for name in ("particles", "neighbours", "phi_samples"):
            positive(name, getattr(self, name))
        in_range("eta", self.eta, 0.0, 1e6)
        in_range("anchor_rate", self.anchor_rate, 0.0, 1.0)
        if self.neighbours > self.particles:
            raise ValueError(
                f"neighbours: must be at most particles = {self.particles}, got {self.neighbours}"
            )
        if self.anchor in ("s0", "particles") and not self.anchor_reward.startswith("pred"):
            raise ValueError(
                f"anchor_reward: anchor {self.anchor!r} has predicted rewards only, got {self.anchor_reward!r}"
            )


@dataclass(frozen=True)
class TebConfig(BonusConfig):
    """The same, and the metric's models, which the explorer trains itself."""

    c_r: float = 1.0
    """Weight of the reward differential (paper 1.4)."""
    c_t: float | None = None
    """Weight of the transition term; None means gamma (paper 1.4)."""
    models: Literal["learned", "none"] = "learned"
    """`none` measures plain distance between latents: the centroid control (E-7)."""
    latent_dist: LatentDistance = "l2"
    """Ground distance (A-2)."""
    w_dist: WDist = "mean"
    """Stand-in for W1 between predictions; `sample` compares one draw with the anchor (C-2)."""
    metric_target: Literal["online", "ema"] = "online"
    """Parameters behind the potential: current ones, or a slow copy (A-5)."""
    metric_tau: float = 0.01
    """Rate of the slow copy (A-5)."""
    transition: Transition = "gaussian"
    """Transition model (C-1)."""
    dyn_horizon: Literal["1", "n"] = "1"
    """Which next state the transition model predicts: o_{t+1} or o_{t+n} (C-4)."""
    dyn_reward_decoder: bool = False
    """Also decode the reward from a draw of the next latent, as RAP does (C-3)."""
    dyn_head_unscaled: bool = False
    """Train the transition model with weight 1 instead of lambda_p (A-9)."""
    reward_model: Literal["trained", "frozen", "off"] = "trained"
    """Reward predictor: trained on what there is (zeros in mazes), left as initialised, or dropped from Phi (B-10)."""
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
    lambda_r: float = 0.5
    """Weight of L_rew (paper 1.4)."""
    lambda_p: float = 1e-4
    """Weight of L_dyn (paper 1.4)."""
    pred_hidden: int = 512
    """Hidden width of both models (B-9)."""
    model_lr: float = 1e-4
    """Adam's learning rate for both models (A-9)."""
    rep_grad_clip: float = 10.0
    """Clip of the models' gradient norm; 0 switches it off (ours)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        super().__post_init__()
        for name in ("reward_horizon", "pred_hidden", "model_lr", "sigma_min", "sigma_max"):
            positive(name, getattr(self, name))
        for name in ("c_r", "lambda_r", "lambda_p", "nll_scale", "rep_grad_clip"):
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


@dataclass(frozen=True)
class CentroidConfig(BonusConfig):
    """The control beside a representation: plain distance between latents in its norm, without its models."""


class Anchor(NamedTuple):
    """What the potential measures the distance to: one row for all elements, one row each, or a cloud of particles."""

    reward: Tensor
    """r*, [1, 1], [B, 1] or [P, 1]."""
    next: Tensor
    """z'*, [1, D], [B, D] or [P, D]."""
    next_sigma: Tensor
    """Spread of z'*, of the shape of `next`."""


class Nodes(NamedTuple):
    """States at which the potential is wanted, flattened over batch and window, [B * m, ...]."""

    obs: Tensor
    action: Tensor
    """The replayed action there; NaN where an episode ended."""
    skill: Tensor

    @staticmethod
    def of(batch: Batch, steps: slice) -> Nodes:
        """The states of each window at the given steps."""
        count = steps.stop - steps.start
        return Nodes(
            batch.window_obs[:, steps].flatten(0, 1),
            batch.window_action[:, steps].flatten(0, 1),
            batch.skill.repeat_interleave(count, 0),
        )


class Metric(Protocol):
    """The metric as a representation lends it."""

    config: Any
    """With `latent_dist` and `w_dist`."""
    c_r: float
    c_t: float
    traits: Traits

    def predict(self, latent: Tensor, action: Tensor) -> Prediction:
        """What its models say, with the parameters that potentials are measured with."""
        ...


class Teb(nn.Module):
    """The explorer: trains the metric's models or borrows them, and turns windows into bonuses."""

    def __init__(
        self,
        config: BonusConfig,
        shapes: Shapes,
        *,
        gamma: float,
        n_step: int,
        compute: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config = config
        own = config if isinstance(config, TebConfig) else None
        first_step = config.bonus == "shaping" and config.shaping == "first_step"
        self.traits = Traits(
            eta=config.eta,
            n_step=1 if config.shaping == "one" else None,
            horizon=own.reward_horizon if own else 1,
            grad_clip=own.rep_grad_clip if own else 0.0,
            reads=None if config.shaping == "sum" else (0, 1, -1) if own or first_step else (0, -1),
            borrows_metric=own is None,
        )
        self.gamma = gamma
        self.end_factor = end_discount(config.shaping, gamma, self.traits.n_step or n_step)
        self.lent: list[Metric] = []
        """In a list, so that what belongs to the representation does not count as a part of this."""
        self.online = self._models(own, shapes) if own and own.models == "learned" else None
        slow = own is not None and own.metric_target == "ema"
        self.slow = copy.deepcopy(self.online).requires_grad_(False) if self.online and slow else None
        if own:
            without_reward = own.reward_model == "off" or own.models == "none"
            self.c_r = 0.0 if without_reward else own.c_r
            self.c_t = gamma if own.c_t is None else own.c_t
            self.w_dist: WDist = own.w_dist
            self.latent_dist: LatentDistance = own.latent_dist
        self.node_widths = tuple(shapes)
        self.particles = Ring(config.particles, sum(shapes)) if config.anchor == "particles" else None
        self.moving_anchor = (
            MovingAverage(1 + shapes.obs, config.anchor_rate) if config.anchor == "ema" else None
        )

    def borrow(self, metric: Metric) -> None:
        """Take the metric of a representation for one's own."""
        self.lent = [metric]
        self.c_r = 0.0 if isinstance(self.config, CentroidConfig) else metric.c_r
        self.c_t = metric.c_t
        self.w_dist, self.latent_dist = metric.config.w_dist, metric.config.latent_dist

    def _models(self, config: TebConfig, shapes: Shapes) -> MetricModels:
        return MetricModels(
            shapes.obs,
            shapes.action,
            hidden=config.pred_hidden,
            sigma_range=(config.sigma_min, config.sigma_max),
            sigma_param=config.sigma_param,
            transition=config.transition,
            reward_decoder=config.dyn_reward_decoder,
        )

    # --- the models ------------------------------------------------------------------------------------------------

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Both models with one learning rate; nothing for the control without models."""
        if self.online is None:
            return []
        assert isinstance(self.config, TebConfig)
        return [{"params": list(self.online.parameters()), "lr": self.config.model_lr}]

    def loss(self, batch: Batch, policy: Policy, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """lambda_r L_rew + lambda_p L_dyn on replayed actions (TEB after eq. 10)."""
        config = self.config
        assert self.online is not None and isinstance(config, TebConfig), "nothing of one's own to train"
        prediction = self.online(batch.obs, batch.action)
        next_obs = batch.next1_obs if config.dyn_horizon == "1" else batch.next_obs
        reward_loss = self.online.reward_loss(
            prediction, n_step_sum(batch.rewards, self.gamma, config.reward_horizon)
        )
        transition_loss = self.online.transition_loss(prediction, next_obs)
        if config.dyn_reward_decoder:
            transition_loss = transition_loss + self.online.decoder_loss(
                prediction, batch.rewards[:, :1], rng
            )
        loss = (1.0 if config.dyn_head_unscaled else config.lambda_p) * transition_loss
        if config.reward_model == "trained":
            loss = loss + config.lambda_r * config.nll_scale * reward_loss
        return loss, {
            "reward_nll": reward_loss.detach(),
            "transition_nll": transition_loss.detach(),
            "transition_rmse": error_length(prediction.next, next_obs),
            "sigma_mean": prediction.reward_sigma.detach().mean(),
        }

    def predict(self, latent: Tensor, action: Tensor) -> Prediction:
        """What the metric's current (or slow) parameters predict; without models, the latent itself and no reward."""
        if self.lent and not isinstance(self.config, CentroidConfig):
            return self.lent[0].predict(latent, action)
        models = self.slow if self.slow is not None else self.online
        if models is not None:
            return models(latent, action)
        nothing = latent.new_zeros(latent.shape[0], 1)
        return Prediction(nothing, nothing, latent, torch.zeros_like(latent))

    # --- the bonus -------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def reward(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Paid:
        """F of each window, or the potential at its end (TEB eqs. 12 to 14), [B, 1]; recomputed on each batch (D-7)."""
        starts, ends = self.window_steps(batch.window_obs.shape[1] - 1)
        policy = self._acting(batch, policy, rng)
        anchor = self.anchor(batch, policy, rng)
        if self.config.anchor == "random":
            anchor = Anchor(*(rows.repeat_interleave(starts.stop, 0) for rows in anchor))
        end = self.end_potential(batch, ends, anchor, policy, rng)
        if self.config.bonus == "potential":
            bonus = end[:, -1]
        else:
            start = self.potential(Nodes.of(batch, starts), anchor, policy, rng, self._replayed(start=True))
            bonus = self.shape(start.view_as(end), end)
        if self.particles is not None:
            bonus = torch.where(self.particles.filled(), bonus, 0.0)
        if self.config.fint_norm == "std":
            bonus = bonus / (bonus.std() + 1e-8)
        median, high = torch.quantile(bonus.abs(), bonus.new_tensor([0.5, 0.95]))
        return Paid(
            bonus.unsqueeze(1),
            {
                "bonus_mean": bonus.mean(),
                "bonus_std": bonus.std(),
                "bonus_abs_p50": median,
                "bonus_abs_p95": high,
                "phi_mean": end.mean(),
            },
        )

    def _acting(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Policy:
        """Whom the metric asks for actions: the agent's policy, or one action for all states (D-1)."""
        return common_action(batch, rng) if self.config.phi_action == "common" else policy

    def window_steps(self, n: int) -> tuple[slice, slice]:
        """Where steps start and end: all n steps of the window for `sum`, else one step, mostly the whole window."""
        if self.config.shaping == "sum" and self.config.bonus == "shaping":
            return slice(0, n), slice(1, n + 1)
        if self.config.shaping == "first_step" and self.config.bonus == "shaping":
            return slice(0, 1), slice(1, 2)
        return slice(0, 1), slice(n, n + 1)

    def shape(self, start: Tensor, end: Tensor) -> Tensor:
        """F from the potentials where steps start and end, [B, m] and [B, m] -> [B]."""
        if self.config.shaping == "sum":
            return summed_shaping(start, end, self.gamma)
        return shaping_term(start[:, 0], end[:, 0], self.end_factor)

    def end_potential(
        self, batch: Batch, ends: slice, anchor: Anchor, policy: Policy, rng: torch.Generator
    ) -> Tensor:
        """Phi where steps end, [B, m]; where the window ends in a terminal state it is 0, or what it is (D-6)."""
        nodes = Nodes.of(batch, ends)
        phi = self.potential(nodes, anchor, policy, rng, self._replayed(start=False)).view(
            batch.obs.shape[0], -1
        )
        if self.config.terminal_potential == "raw" or ends.stop < batch.window_obs.shape[1]:
            return phi
        return torch.cat([phi[:, :-1], torch.where(batch.discount == 0, 0.0, phi[:, -1:])], 1)

    def potential(
        self, nodes: Nodes, anchor: Anchor, policy: Policy, rng: torch.Generator, replayed: bool
    ) -> Tensor:
        """Phi of nodes, [M] (TEB eq. 12); with `replayed`, at the action that was taken there, if one was."""
        if self.config.phi_action == "expected":
            draws = [policy(nodes.obs, nodes.skill, rng) for _ in range(self.config.phi_samples)]
            phis = [self.distance(self.predict(nodes.obs, action), anchor, rng) for action in draws]
            return torch.stack(phis).mean(0)
        action = policy(nodes.obs, nodes.skill, None)
        if replayed:
            action = torch.where(nodes.action.isnan(), action, nodes.action)
        return self.distance(self.predict(nodes.obs, action), anchor, rng)

    def _replayed(self, *, start: bool) -> bool:
        """Whether the replayed action stands in Phi where a step starts, or where it ends (D-1)."""
        return self.config.phi_action == "replay_replay" or (
            start and self.config.phi_action == "replay_policy"
        )

    def distance(self, prediction: Prediction, anchor: Anchor, rng: torch.Generator) -> Tensor:
        """d_pre to the anchor, c_R |rhat - r*| + c_T W1(P(s, a), z'*), [M]; to particles, mean of the k nearest."""
        config = self.config
        reward = prediction.sampled_reward(rng) if config.phi_reward == "sample" else prediction.reward
        to_many = config.anchor == "particles"
        w1 = (pairwise_transition_distance if to_many else transition_distance)(
            prediction.drawn_next(rng) if self.w_dist == "sample" else prediction.next,
            prediction.next_sigma,
            anchor.next,
            anchor.next_sigma,
            "mean" if self.w_dist == "sample" else self.w_dist,
            self.latent_dist,
        )
        if not to_many:
            return self.c_r * (reward - anchor.reward).abs().squeeze(1) + self.c_t * w1
        distances = w1.mul_(self.c_t)
        if self.c_r:
            distances.add_((reward - anchor.reward.T).abs_(), alpha=self.c_r)
        return nearest_mean(distances, config.neighbours)

    # --- for pictures of a trained agent ----------------------------------------------------------------------------

    @torch.no_grad()
    def potentials(self, batch: Batch, over: Batch, policy: Policy, rng: torch.Generator) -> Tensor:
        """Phi at each o_t, [B], as where a step starts; the anchor is that of the batch `over`.

        Of random anchors one stands for all, or the curve along an episode would be noise. Before there are particles
        it is 0, as the bonus is.
        """
        policy = self._acting(over, policy, rng)
        anchor = self.anchor(over, policy, rng)
        if self.config.anchor == "random":
            anchor = Anchor(*(rows[:1] for rows in anchor))
        phi = self.potential(Nodes.of(batch, slice(0, 1)), anchor, policy, rng, self._replayed(start=True))
        return phi if self.particles is None else torch.where(self.particles.filled(), phi, 0.0)

    @torch.no_grad()
    def distances(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Measured:
        """d_pre of every o_t to every other at the mean action, [B, B]: of the pairs that the potential measures."""
        said = self.predict(batch.obs, policy(batch.obs, batch.skill, None))
        kind = "mean" if self.w_dist == "sample" else self.w_dist
        rows, columns = ((each[:, None], each[None]) for each in (said.next, said.next_sigma))
        w1 = transition_distance(rows[0], columns[0], rows[1], columns[1], kind, self.latent_dist)
        return Measured("predictive distance", self.c_r * (said.reward - said.reward.T).abs() + self.c_t * w1)

    # --- the anchor ------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def anchor(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Anchor:
        """The anchor of this batch (TEB eq. 13 and its ablations), from the same parameters as the potential."""
        if self.particles is not None:
            nodes = Nodes(*self.particles.rows().split(self.node_widths, 1))
            return self._anchor_at(nodes, None, policy, rng)
        if self.config.anchor == "s0":
            first = Nodes(batch.first_obs, batch.action[:1], batch.skill[:1])
            return self._anchor_at(first, None, policy, rng)
        each = self._anchor_at(Nodes.of(batch, slice(0, 1)), batch, policy, rng)
        if self.config.anchor == "random":
            order = torch.randperm(batch.obs.shape[0], generator=rng, device=batch.obs.device)
            return Anchor(*(rows[order] for rows in each))
        mean = torch.cat([each.reward, each.next], 1).mean(0, keepdim=True)
        if self.moving_anchor is not None:
            mean = self.moving_anchor.value(before_first=mean)
        return Anchor(mean[:, :1], mean[:, 1:], torch.zeros_like(mean[:, 1:]))

    def _anchor_at(self, nodes: Nodes, batch: Batch | None, policy: Policy, rng: torch.Generator) -> Anchor:
        """What is predicted at nodes; rewards may be replayed ones if the nodes start the windows of `batch`."""
        config = self.config
        as_policy = config.phi_action in ("policy", "expected", "common") and config.anchor_action == "match"
        action = policy(nodes.obs, nodes.skill, None) if as_policy or config.anchor == "s0" else nodes.action
        prediction = self.predict(nodes.obs, action)
        reward = prediction.reward
        if config.anchor_reward == "pred_sample":
            reward = prediction.sampled_reward(rng)
        elif batch is not None and config.anchor_reward != "pred_mean":
            steps = self._horizon() if config.anchor_reward == "replay_nstep" else 1
            reward = n_step_sum(batch.rewards, self.gamma, steps)
        return Anchor(reward, prediction.next, prediction.next_sigma)

    def _horizon(self) -> int:
        return self.lent[0].traits.horizon if self.lent else self.traits.horizon

    @torch.no_grad()
    def after_step(self, batch: Batch, policy: Policy, rng: torch.Generator) -> None:
        """Move the slow copy of the models, the moving anchor and the particles."""
        if self.slow is not None and self.online is not None:
            assert isinstance(self.config, TebConfig)
            follow(self.slow, self.online, self.config.metric_tau)
        if self.moving_anchor is not None:
            policy = self._acting(batch, policy, rng)
            each = self._anchor_at(Nodes.of(batch, slice(0, 1)), batch, policy, rng)
            self.moving_anchor.move(torch.cat([each.reward, each.next], 1).mean(0, keepdim=True))
        if self.particles is not None:
            self.particles.push(torch.cat([batch.obs, batch.action, batch.skill], 1))


def common_action(batch: Batch, rng: torch.Generator) -> Policy:
    """One uniform action for every state of an update: states are compared under the same action, whatever it is."""
    action = 2.0 * torch.rand(1, batch.action.shape[1], generator=rng, device=batch.action.device) - 1.0
    return lambda obs, skill, rng: action.expand(obs.shape[0], -1)


THEOREM_FAITHFUL: dict[str, Any] = {
    "shaping": "window_gamma_n",
    "phi_action": "policy",
    "phi_reward": "mean",
    "reward_horizon": 1,
    "transition": "deterministic",
}
"""The reading under which the paper's theorems apply most nearly."""

LITERAL: dict[str, Any] = {
    "shaping": "one",
    "phi_action": "replay_policy",
    "phi_reward": "sample",
    "anchor_reward": "pred_sample",
    "rep_grad_clip": 0.0,
}
"""The equations word by word."""

PARTICLES: dict[str, Any] = {
    "anchor": "particles",
    "phi_action": "common",
    "shaping": "first_step",
    "eta": 10.0,
}
"""Our extension: where the agent has been is a cloud, not a point, and states are compared under common actions."""

CONTROL: dict[str, Any] = {"models": "none"}
"""What remains of the bonus in a maze without its learned models."""

_SOURCE = "Liang et al. 2026, arXiv 2602.18724"
_CPU: dict[str, Any] = {"pred_hidden": 256, "model_lr": 4e-4}

BORROWED: dict[str, dict[str, Any]] = {
    "theorem-faithful": {name: THEOREM_FAITHFUL[name] for name in ("shaping", "phi_action", "phi_reward")},
    "literal": {name: value for name, value in LITERAL.items() if name != "rep_grad_clip"},
}
"""What remains of the readings for a bonus whose metric belongs to a representation."""

TEB = Entry(
    "potential-based bonus from the predictive bisimulation metric",
    _SOURCE,
    TebConfig(),
    Teb,
    _CPU,
    {"theorem-faithful": THEOREM_FAITHFUL, "literal": LITERAL},
    borrowing=BonusConfig(),
    borrowing_readings=BORROWED,
)

TEB_P = Entry(
    "TEB with a particle anchor",
    "ours, after Liang et al. 2026",
    TebConfig(**PARTICLES),
    Teb,
    _CPU | {"particles": 1024},
    borrowing=BonusConfig(**PARTICLES),
    borrowing_cpu={"particles": 1024},
)

CENTROID = Entry(
    "control: distance to the batch centroid, no learned metric",
    "ours",
    TebConfig(**CONTROL),
    Teb,
    borrowing=CentroidConfig(),
)
