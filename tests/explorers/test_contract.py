"""What every explorer in the registry must keep to; a new entry is picked up by itself."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, get_args

import numpy as np
import pytest
import torch
from explorer_setup import (
    BATCH,
    batch_for,
    changed,
    differing,
    generator,
    leaves,
    small_agent,
    snapshot,
)
from torch import Tensor, nn

from teb.agents import compose
from teb.agents.compose import ComposedAgent
from teb.agents.protocol import Batch, NStepMode, Shapes
from teb.explorers import REGISTRY

every_explorer = pytest.mark.parametrize("name", REGISTRY)


def has(name: str, field: str) -> bool:
    """Whether the explorer can be configured so."""
    return field in {field.name for field in dataclasses.fields(REGISTRY[name].config)}


explorers_of_transitions = pytest.mark.parametrize(
    "name", [name for name in REGISTRY if has(name, "nstep_mode")]
)


def module(agent: ComposedAgent) -> nn.Module:
    explorer: Any = agent.explorer
    return explorer


def learnt(name: str, updates: int = 3, **changes: Any) -> ComposedAgent:
    """An agent after some updates, so that memories hold something."""
    agent = small_agent(name, **changes)
    for seed in range(updates):
        agent.update(batch_for(agent, seed), 0)
    return agent


def parameters(agent: ComposedAgent) -> dict[str, Tensor]:
    """Copies of the explorer's parameters."""
    return {name: p.detach().clone() for name, p in module(agent).named_parameters()}


def declared_names(agent: ComposedAgent) -> set[str]:
    """Names of the parameters that the explorer declares."""
    declared = {id(p) for group in agent.explorer.parameter_groups() for p in group["params"]}
    return {name for name, p in module(agent).named_parameters() if id(p) in declared}


def paid(agent: ComposedAgent, batch: Batch, seed: int = 0) -> Tensor:
    return agent.explorer.reward(batch, agent.policy, generator(seed))[0]


@every_explorer
def test_each_step_moves_exactly_the_parameters_it_is_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = learnt(name)
    steps: list[tuple[set[str], set[str]]] = []
    descend = compose.descend

    def spy(*given: Any) -> None:
        before = snapshot(agent.backbone), snapshot(module(agent))
        descend(*given)
        steps.append(
            (changed(before[0], snapshot(agent.backbone)), changed(before[1], snapshot(module(agent))))
        )

    monkeypatch.setattr(compose, "descend", spy)
    agent.update(batch_for(agent, 9, reward_scale=0.1), 0)
    parts = {part: {f"{part}.{n}" for n, _ in getattr(agent.backbone, part).named_parameters()}
             for part in ("critic", "actor")}  # fmt: skip
    before = agent.explorer.traits.batches if declared_names(agent) else 0
    learning, acting, closing = steps[:before], steps[before : before + 2], steps[before + 2 :]
    assert acting == [(parts["critic"], set[str]()), (parts["actor"], set[str]())]
    assert len(learning) == before and len(closing) <= 1
    for backbone, explorer in (*learning, *closing):
        assert not backbone and explorer
    assert set[str]().union(*(explorer for _, explorer in (*learning, *closing))) == declared_names(agent)


@every_explorer
def test_no_gradient_is_left_on_or_reaches_undeclared_parameters(name: str) -> None:
    agent = learnt(name)
    declared = declared_names(agent)
    for parameter_name, parameter in module(agent).named_parameters():
        if parameter_name not in declared:
            assert parameter.grad is None
    assert all(p.grad is None and not p.requires_grad for p in agent.backbone.target_critic.parameters())


@every_explorer
@pytest.mark.parametrize("updates", [0, 3])
def test_reward_is_one_finite_float32_number_per_window_without_gradient(name: str, updates: int) -> None:
    agent = learnt(name, updates)
    batch = batch_for(agent, 7, terminal=2, ended=3)
    reward, metrics, *_ = agent.explorer.reward(batch, agent.policy, generator())
    assert reward.shape == batch.reward.shape == (len(batch.obs), 1)
    assert reward.dtype == torch.float32
    assert bool(reward.isfinite().all())
    for tensor in (reward, *metrics.values()):
        assert not tensor.requires_grad and tensor.grad_fn is None
    assert all(metric.ndim == 0 for metric in metrics.values())


@every_explorer
def test_reward_gives_no_gradient_even_where_the_policy_and_the_batch_would_take_one(name: str) -> None:
    agent = learnt(name)
    batch = batch_for(agent, 7)
    batch = batch._replace(window_obs=batch.window_obs.clone().requires_grad_())
    weight = torch.eye(2, requires_grad=True)
    reward = agent.explorer.reward(batch, lambda o, z, g: torch.tanh(o @ weight), generator()).bonus
    assert not reward.requires_grad


@every_explorer
def test_reward_is_a_function_of_state_and_batch_and_moves_no_parameter(name: str) -> None:
    agent = learnt(name)
    batch = batch_for(agent, 7)
    copies = [x.clone() for x in batch]
    twin = copy.deepcopy(agent)
    kept = parameters(agent)
    first, again = paid(agent, batch), paid(twin, batch)
    assert torch.equal(first, again)
    assert not changed(kept, parameters(agent))
    assert not changed(snapshot(module(agent)), snapshot(module(twin)))
    assert all(torch.equal(x, y) for x, y in zip(batch, copies, strict=True)), "the batch was written to"


@every_explorer
def test_loss_is_a_scalar_and_leaves_the_batch_alone(name: str) -> None:
    agent = learnt(name)
    if agent.explorer_optimiser is None:
        assert not agent.explorer.parameter_groups()
        return
    batch = batch_for(agent, 7)
    copies = [x.clone() for x in batch]
    loss, metrics = agent.explorer.loss(batch, agent.policy, generator())
    assert loss.ndim == 0 and loss.requires_grad and bool(loss.isfinite())
    assert all(metric.ndim == 0 and not metric.requires_grad for metric in metrics.values())
    assert all(torch.equal(x, y) for x, y in zip(batch, copies, strict=True))


@every_explorer
def test_loss_does_not_train_the_actor_through_the_batch(name: str) -> None:
    agent = learnt(name)
    if agent.explorer_optimiser is None:
        return
    batch = batch_for(agent, 7)
    agent.backbone.zero_grad(set_to_none=True)
    agent.explorer.loss(batch, agent.policy, generator())[0].backward()
    assert all(p.grad is None for p in agent.backbone.parameters())


@every_explorer
def test_given_its_parameters_the_bonus_does_not_read_the_stored_rewards(name: str) -> None:
    agent = learnt(name)
    batch = batch_for(agent, 7)
    altered = batch._replace(reward=batch.reward + 5.0, rewards=batch.rewards - 3.0)
    assert torch.equal(paid(copy.deepcopy(agent), batch), paid(agent, altered))


@every_explorer
def test_critic_learns_from_the_reward_of_the_updated_explorer(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = learnt(name)
    batch = batch_for(agent, 9, reward_scale=0.1)
    explorer, critic_loss = agent.explorer, agent.backbone.critic_loss
    pay = explorer.reward
    models: list[dict[str, Tensor]] = [parameters(agent)]
    bonuses: list[Tensor] = []
    handed: list[tuple[Batch, Tensor]] = []

    def spied_reward(batch: Batch, policy: Any, rng: torch.Generator) -> Any:
        models.append(parameters(agent))
        paid = pay(batch, policy, rng)
        bonuses.append(paid.bonus)
        return paid

    def spied_loss(batch: Batch, reward: Tensor, *others: Any) -> Any:
        models.append(parameters(agent))
        handed.append((batch, reward))
        return critic_loss(batch, reward, *others)

    monkeypatch.setattr(explorer, "reward", spied_reward)
    monkeypatch.setattr(agent.backbone, "critic_loss", spied_loss)
    agent.update(batch, 0)
    before, paying, valued = models
    ((critics_batch, reward),) = handed
    assert torch.equal(critics_batch.obs, batch.obs[-BATCH:])
    if not explorer.traits.per_step:
        (bonus,) = bonuses
        assert torch.equal(reward, critics_batch.reward + explorer.traits.eta * bonus)
    if agent.explorer_optimiser is not None:
        assert changed(before, valued), "the explorer did not learn before the critic"
        assert not changed(paying, before if explorer.traits.pays_first else valued)


@every_explorer
def test_same_seed_gives_the_same_two_hundred_updates_bit_for_bit(name: str) -> None:
    agents = [small_agent(name) for _ in range(2)]
    torch.manual_seed(int.from_bytes(name.encode()[:4], "little"))  # the global generator must not matter
    for agent in agents:
        torch.rand(3)
        for seed in range(200):
            agent.update(batch_for(agent, seed % 20, reward_scale=0.1), 0)
    parted = differing(agents[0].state(), agents[1].state())
    assert parted == []


@every_explorer
def test_another_seed_gives_other_parameters(name: str) -> None:
    first, second = small_agent(name, seed=0), small_agent(name, seed=1)
    different = changed(snapshot(first.backbone), snapshot(second.backbone))
    assert "actor.mean.weight" in different and any(n.startswith("critic.") for n in different)
    if declared_names(first):
        assert changed(snapshot(module(first)), snapshot(module(second))) & declared_names(first)


@every_explorer
def test_a_fresh_agent_continues_from_a_state_as_the_first_one_does(name: str) -> None:
    first = learnt(name, 5)
    fresh = small_agent(name, seed=99)
    fresh.load(copy.deepcopy(first.state()))
    parted = differing(first.state(), fresh.state())
    assert parted == []
    obs, skill = np.zeros(2, np.float32), np.zeros(first.skills.width, np.float32)
    for step in range(3):
        for agent in (first, fresh):
            agent.update(batch_for(agent, 50 + step), 0)
        one, other = (agent.act(obs, skill, 0, explore=True) for agent in (first, fresh))
        assert np.array_equal(one, other)
    parted = differing(first.state(), fresh.state())
    assert parted == []


@every_explorer
def test_an_agent_that_took_up_a_state_shares_no_memory_with_the_one_that_gave_it(name: str) -> None:
    first, fresh = learnt(name, 2), small_agent(name, seed=99)
    fresh.load(first.state())
    kept = copy.deepcopy(fresh.state())
    first.update(batch_for(first, 50), 0)
    shared = differing(fresh.state(), kept)
    assert shared == []


@every_explorer
def test_all_state_of_the_explorer_is_in_the_checkpoint(name: str) -> None:
    agent = learnt(name, 2)
    stored = {path.removeprefix("/modules/explorer/") for path, _ in leaves(agent.state())}
    for tensor_name, _ in (*module(agent).named_parameters(), *module(agent).named_buffers()):
        assert tensor_name in stored


@every_explorer
def test_extreme_observations_leave_everything_finite(name: str) -> None:
    agent = small_agent(name)
    for seed in range(4):
        batch = batch_for(agent, seed, obs_scale=1e4, terminal=1, ended=2)
        metrics = agent.update(batch, 0)
        assert bool(paid(agent, batch).isfinite().all())
        assert all(bool(metric.isfinite()) for metric in metrics.values()), metrics
    for path, value in leaves(agent.state()):
        if isinstance(value, Tensor):
            assert bool(value.isfinite().all()), path


@every_explorer
def test_identical_observations_leave_everything_finite(name: str) -> None:
    agent = small_agent(name)
    for seed in range(2):
        batch = batch_for(agent, seed)
        still = torch.ones_like(batch.window_obs)
        metrics = agent.update(batch._replace(obs=still[:, 0], next_obs=still[:, -1], window_obs=still), 0)
        assert all(bool(metric.isfinite()) for metric in metrics.values()), metrics
    assert all(
        bool(value.isfinite().all()) for _, value in leaves(agent.state()) if isinstance(value, Tensor)
    )


@every_explorer
def test_without_weight_the_bonus_leaves_the_backbone_as_it_is_without_explorer(name: str) -> None:
    if not has(name, "eta"):
        return
    agent, plain = small_agent(name, eta=0.0), small_agent("eta0")
    traits = agent.explorer.traits
    if agent.sampling != plain.sampling or traits.skills.width or traits.critic:
        return
    for seed in range(50):
        batch = batch_for(agent, seed)
        agent.update(batch, 0)
        plain.update(batch, 0)
    parted = differing(agent.backbone.state_dict(), plain.backbone.state_dict())
    assert parted == []


@every_explorer
def test_weight_scales_the_bonus_that_the_critic_gets(name: str) -> None:
    if not has(name, "eta"):
        return
    targets: list[float] = []
    for eta in (0.0, 1.0, 3.0):
        agent = learnt(name, eta=0.0)
        agent.explorer.traits = agent.explorer.traits._replace(eta=eta)
        targets.append(float(agent.update(batch_for(agent, 9), 0)["q_target"]))
    none, single, triple = targets
    assert single != none
    assert triple - none == pytest.approx(3 * (single - none), rel=1e-3, abs=1e-5)


@explorers_of_transitions
@pytest.mark.parametrize("mode", get_args(NStepMode))
def test_a_transition_is_what_the_mode_says(
    name: str, mode: NStepMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = small_agent(name, nstep_mode=mode)
    n = 1 if mode == "one" else 3
    assert agent.sampling is not None and agent.sampling.n_step == n
    batch = batch_for(agent, 0)
    steps = torch.arange(n + 1.0).view(1, -1, 1)
    window_obs, window_action = (100 * rows[:, :1] + steps for rows in batch[6:8])
    batch = batch._replace(
        obs=window_obs[:, 0], action=window_action[:, 0], next_obs=window_obs[:, -1],
        window_obs=window_obs, window_action=window_action,
    )  # fmt: skip
    shown: dict[str, Batch] = {}
    for verb in ("loss", "reward", "after_step"):
        asked = getattr(agent.explorer, verb)

        def spy(batch: Batch, *others: Any, verb: str = verb, asked: Any = asked) -> Any:
            shown[verb] = batch
            return asked(batch, *others)

        monkeypatch.setattr(agent.explorer, verb, spy)
    agent.update(batch, 0)
    assert shown.keys() == {"loss", "reward", "after_step"}
    firsts = [0, 1, 2] if mode == "sum" else [0]
    apart = 3.0 if mode == "window" else 1.0
    for seen in shown.values():
        assert torch.equal(seen.obs, window_obs[:, firsts].flatten(0, 1))
        assert torch.equal(seen.action, window_action[:, firsts].flatten(0, 1))
        assert torch.allclose(seen.next_obs - seen.obs, torch.tensor(apart), atol=1e-4)


@every_explorer
def test_the_task_s_reward_teaches_only_those_that_ask_for_it(name: str) -> None:
    losses: list[Tensor] = []
    asks = False
    for scale in (0.0, 3.0):
        agent = learnt(name)
        if agent.explorer_optimiser is None:
            return
        asks = agent.explorer.traits.horizon > 0
        batch = batch_for(agent, 7, reward_scale=scale)
        losses.append(agent.explorer.loss(batch, agent.policy, generator())[0])
    assert torch.equal(*losses) != asks


@every_explorer
def test_observations_and_actions_may_have_any_width(name: str) -> None:
    shapes = Shapes(7, 3)
    agent = small_agent(name, shapes=shapes)
    for seed in range(2):
        metrics = agent.update(batch_for(agent, seed, shapes=shapes), 0)
        assert all(bool(metric.isfinite()) for metric in metrics.values())
    batch = batch_for(agent, 7, shapes=shapes)
    assert agent.pay(batch).bonus.shape == batch.reward.shape


@every_explorer
def test_explorer_states_its_terms(name: str) -> None:
    agent = small_agent(name)
    traits = agent.explorer.traits
    assert traits.eta >= 0 and traits.grad_clip >= 0 and traits.horizon >= 0 and traits.batches >= 1
    assert traits.n_step is None or traits.n_step >= 1
    assert agent.sampling is not None
    assert agent.sampling.batch_size == traits.batches * BATCH
    assert agent.sampling.n_step == (traits.n_step or 3)
    assert agent.sampling.horizon == max(agent.sampling.n_step, traits.horizon)
    assert agent.skills == traits.skills
    assert REGISTRY[name].summary and REGISTRY[name].citation


@every_explorer
def test_presets_and_readings_build(name: str) -> None:
    entry = REGISTRY[name]
    for changes in (entry.cpu, *entry.readings.values()):
        config = dataclasses.replace(entry.config, **changes)
        assert small_agent(name, **dict(changes)).explorer is not None
        assert type(config) is type(entry.config)
