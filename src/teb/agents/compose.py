"""A backbone and an explorer as one agent. The order of an update, and every optimiser step, stands only here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from teb.agents.backbone import Backbone, BackboneConfig
from teb.agents.protocol import (
    Batch,
    Explorer,
    Metrics,
    Paid,
    Runtime,
    Sampling,
    Shapes,
    State,
    one_step_windows,
    parts,
)
from teb.maths.shaping import n_step_sum
from teb.nets.actor_critic import noisy_action
from teb.nets.mlp import initialised_from
from teb.seeding import child_seed, torch_generator


@dataclass(frozen=True)
class Composition:
    """The configuration of a composed agent."""

    backbone: BackboneConfig
    """The shared learner."""
    explorer: Any
    """The explorer's own `Config`."""


class ComposedAgent:
    """DDPG whose reward is r + eta * r_int."""

    def __init__(
        self,
        config: BackboneConfig,
        build_explorer: Callable[..., Any],
        shapes: Shapes,
        runtime: Runtime,
    ) -> None:
        """`build_explorer(shapes, gamma=..., n_step=..., compute=...)` makes the explorer."""
        self.device = runtime.device
        with initialised_from(child_seed(runtime.seed, "explorer")):
            explorer: Any = build_explorer(
                shapes, gamma=config.gamma, n_step=config.n_step, compute=runtime.compute
            )
        self.explorer: Explorer = explorer.to(self.device)
        traits = self.explorer.traits
        self.skills = traits.skills
        with initialised_from(child_seed(runtime.seed, "backbone")):
            backbone = Backbone(
                config, shapes._replace(skill=self.skills.width), runtime.compute, traits.critic
            )
        self.backbone = backbone.to(self.device)
        n_step = traits.n_step or config.n_step
        self.sampling: Sampling | None = Sampling(
            traits.batches * config.batch_size, n_step, max(n_step, traits.horizon), config.gamma
        )
        self.critic_optimiser = self._adam([{"params": self.backbone.critic_parameters(), "lr": config.lr}])
        self.actor_optimiser = self._adam(
            [{"params": list(self.backbone.actor.parameters()), "lr": config.lr}]
        )
        groups = self.explorer.parameter_groups()
        self.explorer_optimiser = self._adam(groups) if groups else None
        self.acting = torch_generator(runtime.seed, "acting")
        self.learning = torch_generator(runtime.seed, "learning", device=self.device)
        self.exploring = torch_generator(runtime.seed, "exploring", device=self.device)

    def _adam(self, groups: list[dict[str, Any]]) -> torch.optim.Adam:
        return torch.optim.Adam(groups, fused=True)

    @torch.inference_mode()
    def act(self, obs: np.ndarray, skill: np.ndarray, env_steps: int, *, explore: bool) -> np.ndarray:
        """Mean action, with unclipped noise if `explore` (URLB)."""
        x = torch.from_numpy(np.concatenate([obs, skill]) if skill.size else obs).to(self.device)
        mean = self.backbone.actor(x.unsqueeze(0)).squeeze(0).cpu()
        action = noisy_action(mean, self.backbone.config.noise, self.acting) if explore else mean
        return action.numpy()

    @torch.no_grad()
    def policy(self, obs: Tensor, skill: Tensor, rng: torch.Generator | None) -> Tensor:
        """The actor as explorers may ask it, see `teb.agents.protocol.Policy`."""
        x = self.backbone.encode(obs, skill)
        return self.backbone.actor(x) if rng is None else self.backbone.sample_action(x, rng)

    def update(self, batch: Batch, env_steps: int) -> Metrics:
        """Explorer step, intrinsic reward with the updated explorer, critic step, actor step, targets."""
        metrics: Metrics = {}
        traits, config = self.explorer.traits, self.backbone.config
        batches = parts(batch, traits.batches)
        batch = batches[-1]
        paid = self.pay(batch) if traits.pays_first else None
        for part in batches if self.explorer_optimiser else ():
            loss, learnt = self.explorer.loss(self._shown(part), self.policy, self.exploring)
            self._descend_explorer(loss)
            metrics |= learnt | {"explorer_loss": loss.detach()}
        paid = paid or self.pay(batch)
        reward = config.task_reward * batch.reward + traits.eta * paid.bonus

        critic_loss, critic_metrics = self.backbone.critic_loss(
            batch, reward, self.learning, paid.member, paid.next_skill
        )
        descend(critic_loss, self.critic_optimiser)
        actor_loss, actor_metrics = self.backbone.actor_loss(batch, self.learning)
        descend(actor_loss, self.actor_optimiser)

        self.backbone.follow()
        closing = self.explorer.after_step(self._shown(batch), self.policy, self.exploring)
        if closing is not None:
            self._descend_explorer(closing)
            metrics["closing_loss"] = closing.detach()
        return metrics | paid.metrics | critic_metrics | actor_metrics

    def pay(self, batch: Batch) -> Paid:
        """What the explorer pays for each window: once, or the discounted sum over its steps."""
        paid = self.explorer.reward(self._shown(batch), self.policy, self.exploring)
        if not self.explorer.traits.per_step:
            return paid
        steps = paid.bonus.view(batch.obs.shape[0], -1)
        return paid._replace(bonus=n_step_sum(steps, self.backbone.config.gamma, steps.shape[1]))

    def _shown(self, batch: Batch) -> Batch:
        """The batch as the explorer sees it."""
        return one_step_windows(batch, self.backbone.config.gamma) if self.explorer.traits.per_step else batch

    def _descend_explorer(self, loss: Tensor) -> None:
        assert self.explorer_optimiser is not None, "an explorer without parameters has no loss"
        descend(loss, self.explorer_optimiser, self.explorer.traits.grad_clip)

    def _modules(self) -> dict[str, nn.Module]:
        return {"backbone": self.backbone, "explorer": self.explorer}  # pyright: ignore[reportReturnType]

    def _optimisers(self) -> dict[str, torch.optim.Optimizer]:
        named = {
            "critic": self.critic_optimiser,
            "actor": self.actor_optimiser,
            "explorer": self.explorer_optimiser,
        }
        return {name: optimiser for name, optimiser in named.items() if optimiser is not None}

    def _generators(self) -> dict[str, torch.Generator]:
        return {"acting": self.acting, "learning": self.learning, "exploring": self.exploring}

    def state(self) -> State:
        """Parameters, buffers, optimiser moments and generators."""
        return {
            "modules": {name: module.state_dict() for name, module in self._modules().items()},
            "optimisers": {
                name: {
                    str(index): dict(moments) for index, moments in optimiser.state_dict()["state"].items()
                }
                for name, optimiser in self._optimisers().items()
            },
            "generators": {name: generator.get_state() for name, generator in self._generators().items()},
        }

    def load(self, state: State) -> None:
        """Take up a state that `state` gave; hyper-parameters come from the configuration, not from the checkpoint."""
        for name, module in self._modules().items():
            module.load_state_dict(state["modules"][name])
        for name, optimiser in self._optimisers().items():
            saved = state["optimisers"][name]
            moments = {
                int(index): {key: value.clone() for key, value in saved[index].items()} for index in saved
            }
            optimiser.load_state_dict(
                {"state": moments, "param_groups": optimiser.state_dict()["param_groups"]}
            )
        for name, generator in self._generators().items():
            generator.set_state(state["generators"][name])


def descend(loss: Tensor, optimiser: torch.optim.Optimizer, max_norm: float = 0.0) -> None:
    """One step on `loss` for exactly the optimiser's parameters: no gradient is computed for, or left in, any other."""
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    optimiser.zero_grad(set_to_none=True)
    loss.backward(inputs=parameters)
    if max_norm:
        nn.utils.clip_grad_norm_(parameters, max_norm)
    optimiser.step()
