"""A backbone, a representation and an explorer as one agent. Every optimiser step of it, in its order, stands here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from teb.agents.backbone import Backbone, BackboneConfig, EncoderConfig, Pictures
from teb.agents.descent import descend
from teb.agents.mixing import Calibration, MixingConfig
from teb.agents.protocol import (
    Batch,
    Explorer,
    Measured,
    Metrics,
    Paid,
    Representation,
    Runtime,
    Sampling,
    Shapes,
    State,
    one_step_windows,
    parts,
)
from teb.agents.sight import Sight
from teb.agents.state import state_of, take_up
from teb.maths.distances import latent_distance
from teb.maths.shaping import n_step_sum
from teb.nets.mlp import initialised_from
from teb.seeding import child_seed, torch_generator


@dataclass(frozen=True)
class Composition:
    """The configuration of a composed agent on states."""

    backbone: BackboneConfig
    """The shared learner."""
    explorer: Any
    """The explorer's own `Config`."""


@dataclass(frozen=True)
class PixelComposition:
    """The configuration of a composed agent that sees pictures."""

    backbone: BackboneConfig
    """The shared learner."""
    encoder: EncoderConfig
    """How pictures become latents."""
    representation: Any
    """The representation's own `Config`."""
    explorer: Any
    """The explorer's own `Config`."""
    mixing: MixingConfig = MixingConfig()
    """How the bonus stands beside the task's reward."""


class ComposedAgent:
    """Actor and critic whose reward is r + eta * r_int."""

    def __init__(
        self,
        config: BackboneConfig,
        build_explorer: Callable[..., Any],
        shapes: Shapes,
        runtime: Runtime,
        pictures: Pictures | None = None,
        build_representation: Callable[..., Any] | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        """`build_explorer(shapes, gamma=..., n_step=..., compute=...)` makes the explorer, the other one alike.

        With `pictures`, `shapes.obs` is the width of a latent. A representation needs them.
        """
        self.device = runtime.device
        terms = {"gamma": config.gamma, "n_step": config.n_step, "compute": runtime.compute}
        with initialised_from(child_seed(runtime.seed, "explorer")):
            explorer: Any = build_explorer(shapes, **terms)
        with initialised_from(child_seed(runtime.seed, "representation")):
            built: Any = build_representation(shapes, **terms) if build_representation else None
        self.representation: Representation | None = built.to(self.device) if built else None
        if explorer.traits.borrows_metric:
            explorer.borrow(self.representation)
        self.explorer: Explorer = explorer.to(self.device)
        traits = self.explorer.traits
        self.skills = traits.skills
        with initialised_from(child_seed(runtime.seed, "backbone")):
            backbone = Backbone(
                config,
                shapes._replace(skill=self.skills.width),
                runtime.compute,
                traits.critic,
                pictures,
            )
        if self.representation and self.representation.traits.slow_tau:
            backbone.keep_slow_encoder(self.representation.traits.slow_tau)
        self.backbone = backbone.to(self.device)
        n_step = traits.n_step or config.n_step
        read = max(traits.horizon, self.representation.traits.horizon if self.representation else 1)
        self.sampling: Sampling | None = Sampling(
            traits.batches * config.batch_size, n_step, max(n_step, read), config.gamma
        )
        self.critic_optimiser = self._adam([{"params": self.backbone.critic_parameters(), "lr": config.lr}])
        self.actor_optimiser = self._adam(
            [{"params": list(self.backbone.actor.parameters()), "lr": config.lr}]
        )
        self.explorer_optimiser = self._declared(self.explorer)
        self.representation_optimiser = self._declared(self.representation)
        seen = self.backbone.encoder_parameters()
        self.encoder_optimiser = (
            self._adam([{"params": seen, "lr": pictures.config.encoder_lr}]) if pictures else None
        )
        self.critic_trains_encoder = pictures is not None and pictures.config.critic_grad_to_encoder
        self.explorer_trains_encoder = pictures is not None and self._explorer_trains(pictures.config)
        self.calibration = calibration.to(self.device) if calibration else None
        self.acting = torch_generator(runtime.seed, "acting")
        self.learning = torch_generator(runtime.seed, "learning", device=self.device)
        self.exploring = torch_generator(runtime.seed, "exploring", device=self.device)
        if pictures:
            self.shifting = torch_generator(runtime.seed, "shifting", device=self.device)
            self.representing = torch_generator(runtime.seed, "representing", device=self.device)

    def _explorer_trains(self, seeing: EncoderConfig) -> bool:
        wanted, declared = seeing.explorer_grad_to_encoder, self.explorer.traits.trains_encoder
        if wanted and (self.explorer_optimiser is None or declared is None):
            raise ValueError(
                "explorer_grad_to_encoder: this explorer has no loss that depends on o_t, got True"
            )
        return bool(declared if wanted is None else wanted)

    def _adam(self, groups: list[dict[str, Any]]) -> torch.optim.Adam:
        return torch.optim.Adam(groups, fused=True)

    def _declared(self, part: Explorer | Representation | None) -> torch.optim.Adam | None:
        groups = part.parameter_groups() if part is not None else []
        return self._adam(groups) if groups else None

    @torch.inference_mode()
    def act(self, obs: np.ndarray, skill: np.ndarray, env_steps: int, *, explore: bool) -> np.ndarray:
        """Mean action, with unclipped noise if `explore` (URLB, DrQ-v2)."""
        return self.backbone.act(obs, skill, env_steps, self.acting if explore else None)

    @torch.no_grad()
    def policy(self, obs: Tensor, skill: Tensor, rng: torch.Generator | None) -> Tensor:
        """The actor as explorers may ask it, see `teb.agents.protocol.Policy`."""
        if not self.backbone.shared:
            raise ValueError(
                "latent_layout: an explorer or representation that asks the actor at a latent needs 'shared_trunk'; "
                "here the actor has a trunk of its own"
            )
        x = self.backbone.joined(obs, skill)
        return self.backbone.actor(x) if rng is None else self.backbone.sample_action(x, rng)

    def update(self, batch: Batch, env_steps: int) -> Metrics:
        """Representation step, explorer step, intrinsic reward, critic step, actor step, targets.

        A representation may also step between critic and actor; the actor learns on the features of the critic's step.
        """
        metrics: Metrics = {}
        traits, config = self.explorer.traits, self.backbone.config
        self.backbone.at(env_steps)
        sights = [self.look(part) for part in parts(batch, traits.batches)]
        sight = sights[-1]
        late = self.representation is not None and self.representation.traits.after_critic
        pull = None if late else self._represent(sights, metrics)
        paid = self.pay(self._shown(sight)) if traits.pays_first else None
        if optimiser := self.explorer_optimiser:
            through = self.explorer_trains_encoder
            for each in sights:
                shown = self._shown(each, gradient=through)
                loss, learnt = self.explorer.loss(self._cut(shown), self.policy, self.exploring)
                self._descend(loss, optimiser, through, traits.grad_clip)
                if through:
                    _moved(sights)
                metrics |= learnt | {"explorer_loss": loss.detach()}
        shown = self._shown(sight)
        paid = paid or self.pay(shown)
        reward = config.task_reward * sight.batch.reward + traits.eta * self._calibrated(paid.bonus, metrics)

        learnt_from = sight.learnt_from(through_encoder=self.critic_trains_encoder)
        critic_loss, critic_metrics = self.backbone.critic_loss(
            learnt_from, reward, self.learning, paid.member, paid.next_skill
        )
        if pull is not None:
            critic_loss = critic_loss + (self.backbone.latent(sight.features(0)) * pull).sum()
        self._descend(critic_loss, self.critic_optimiser, self.critic_trains_encoder or pull is not None)
        if late:
            _moved(sights)
            self._represent(sights, metrics)
        actor_loss, actor_metrics = self.backbone.actor_loss(learnt_from, self.learning)
        descend(actor_loss, self.actor_optimiser)

        self.backbone.follow()
        closing = self.explorer.after_step(self._cut(shown), self.policy, self.exploring)
        if closing is not None:
            assert self.explorer_optimiser is not None, "an explorer without parameters has no loss"
            descend(closing, self.explorer_optimiser, traits.grad_clip)
            metrics["closing_loss"] = closing.detach()
        if self.representation:
            self.representation.after_step()
        return metrics | paid.metrics | critic_metrics | actor_metrics

    def _calibrated(self, bonus: Tensor, metrics: Metrics) -> Tensor:
        if self.calibration is None:
            return bonus
        metrics["bonus_factor"] = self.calibration.factor(bonus)
        return metrics["bonus_factor"] * bonus

    def _represent(self, sights: Sequence[Sight], metrics: Metrics) -> Tensor | None:
        """The representation's step. A joint one leaves to the critic's step what pulls at the latents, [B, D]."""
        part, optimiser = self.representation, self.representation_optimiser
        if part is None or not (optimiser or part.traits.trains_encoder):
            return None
        traits, pull = part.traits, None
        through = bool(traits.trains_encoder) and not traits.joint
        shown = sights[-1].shown(traits.reads, gradient=through, slow=traits.slow_tau > 0)
        if traits.joint and traits.trains_encoder:
            pull = shown.obs.clone().requires_grad_()
            shown = shown._replace(obs=pull)
        loss, learnt = part.loss(shown, self.policy, self.representing)
        norm = self._descend(loss, optimiser, through, traits.grad_clip, [] if pull is None else [pull])
        if through:
            _moved(sights)
        metrics |= learnt | {"representation_loss": loss.detach()}
        if norm is not None:
            metrics["representation_grad_norm"] = norm
        return None if pull is None else pull.grad

    def look(self, batch: Batch) -> Sight:
        """The batch as this agent sees it."""
        if self.backbone.pictures is None:
            return Sight(self.backbone, batch, self.learning, self.exploring)
        return Sight(self.backbone, batch, self.shifting, self.representing)

    @torch.inference_mode()
    def appraise(self, batch: Batch, over: Batch) -> Measured:
        """The explorer's potential, if it has one, else the smaller value of the critic at the mean action.

        All calls draw the same random numbers, so that episodes are measured alike.
        """
        sight, potentials = self._unshifted(batch), getattr(self.explorer, "potentials", None)
        if potentials is not None:
            shown = [each.shown((0,)) for each in (sight, self._unshifted(over))]
            return Measured("potential", potentials(*shown, self.policy, self._repeated()))
        x = self.backbone.joined(sight.features(0), batch.skill)
        return Measured("critic's value", self.backbone.critic(x, self.backbone.actor(x)).amin(-1))

    @torch.inference_mode()
    def distances(self, batch: Batch) -> Measured:
        """In the representation's metric, if it has one, else in the explorer's, else between latents."""
        shown = self._unshifted(batch).shown((0,))
        for part in (self.representation, self.explorer):
            offered = getattr(part, "distances", None)
            measured = offered(shown, self.policy, self._repeated()) if offered else None
            if measured is not None:
                return measured
        z = shown.obs
        return Measured("Euclidean distance of the critic's latents", latent_distance(z[:, None], z[None]))

    def _unshifted(self, batch: Batch) -> Sight:
        return Sight(self.backbone, batch, None, None)

    def _repeated(self) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(0)

    def pay(self, shown: Batch) -> Paid:
        """What the explorer pays for each window: once, or the discounted sum over its steps."""
        paid = self.explorer.reward(self._cut(shown), self.policy, self.exploring)
        if not self.explorer.traits.per_step:
            return paid
        steps = paid.bonus.view(shown.obs.shape[0], -1)
        return paid._replace(bonus=n_step_sum(steps, self.backbone.config.gamma, steps.shape[1]))

    def _shown(self, sight: Sight, *, gradient: bool = False) -> Batch:
        return sight.shown(self.explorer.traits.reads, gradient=gradient)

    def _cut(self, shown: Batch) -> Batch:
        """The windows as the explorer takes them: whole, or each step by itself."""
        return one_step_windows(shown, self.backbone.config.gamma) if self.explorer.traits.per_step else shown

    def _descend(
        self,
        loss: Tensor,
        optimiser: torch.optim.Optimizer | None,
        through_encoder: bool,
        max_norm: float = 0.0,
        also: Sequence[Tensor] = (),
    ) -> Tensor | None:
        both = (optimiser, self.encoder_optimiser if through_encoder else None)
        return descend(loss, tuple(one for one in both if one is not None), max_norm, also)

    def _modules(self) -> dict[str, nn.Module]:
        named = {
            "backbone": self.backbone,
            "explorer": self.explorer,
            "representation": self.representation,
            "calibration": self.calibration,
        }
        return {name: module for name, module in named.items() if module is not None}  # pyright: ignore[reportReturnType]

    def _optimisers(self) -> dict[str, torch.optim.Optimizer]:
        named = {
            "critic": self.critic_optimiser,
            "actor": self.actor_optimiser,
            "explorer": self.explorer_optimiser,
            "encoder": self.encoder_optimiser,
            "representation": self.representation_optimiser,
        }
        return {name: optimiser for name, optimiser in named.items() if optimiser is not None}

    def _generators(self) -> dict[str, torch.Generator]:
        named = {"acting": self.acting, "learning": self.learning, "exploring": self.exploring}
        if self.backbone.pictures:
            named |= {"shifting": self.shifting, "representing": self.representing}
        return named

    def state(self) -> State:
        """Parameters, buffers, optimiser moments and generators."""
        return state_of(self._modules(), self._optimisers(), self._generators())

    def load(self, state: State) -> None:
        """Take up a state that `state` gave."""
        take_up(state, self._modules(), self._optimisers(), self._generators())


def _moved(sights: Sequence[Sight]) -> None:
    for sight in sights:
        sight.moved()
