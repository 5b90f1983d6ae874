"""What every explorer with skills must keep to; a new one in the registry is picked up by itself.

The letters G1 to G7 are those of the methods' specification: labels, isolation, conditioning, no leakage, no gradient,
determinism, the critic's target.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from explorer_setup import BATCH, batch_for, changed, differing, generator, small_agent, snapshot
from torch import Tensor, nn

from teb.agents.compose import ComposedAgent
from teb.agents.protocol import Batch, Paid, to_batch
from teb.config import RunConfig
from teb.envs.nometer import NoMeter
from teb.envs.protocol import Task
from teb.explorers import REGISTRY
from teb.run.train import Run

SKILLED = [name for name in REGISTRY if small_agent(name).skills.width]
every_skill_method = pytest.mark.parametrize("name", SKILLED)

READS_SKILL_WITH_STATE = {"smm"}
"""Its density model is one per skill."""
PAYS_ALL_SKILLS_ALIKE = {"cic"}
"""Its bonus is the entropy of states, whatever the skill."""

EPISODE = 120
"""Longer than two periods of fifty steps, and no multiple of them."""


class Counting(gym.Env[np.ndarray, np.ndarray]):
    """Observes (episode, step), so that every sampled window says where it is from."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, scale: float = 1.0) -> None:
        self.scale, self.episode, self.steps = scale, -1, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.episode, self.steps = self.episode + 1, 0
        return self._seen(), {}

    def step(self, action: np.ndarray) -> Any:
        self.steps += 1
        return self._seen(), 0.0, False, self.steps == EPISODE, {}

    def _seen(self) -> np.ndarray:
        return np.array([self.scale * self.episode, self.scale * self.steps], np.float32)


def played(agent: ComposedAgent, episodes: int, scale: float = 1.0, seed: int = 0) -> Run:
    """The loop's own bookkeeping over whole episodes."""
    config = RunConfig(seed=seed, uniform_steps=0, replay_capacity=20_000)
    run = Run(config, Task(Counting(scale), NoMeter(), "episode_return"), agent, Path())
    while run.episodes < episodes:
        if not run.replay.running:
            run.begin_episode()
        action = run.act()
        run.stepper.send(action)
        run.take(action)
    return run


def scripted(skill: np.ndarray) -> np.ndarray:
    """An action that tells skills apart, [K] -> [2]."""
    weights = np.random.default_rng(7).normal(size=(2, len(skill)))
    return np.tanh(weights @ skill).astype(np.float32)


@every_skill_method
def test_g1_every_stored_skill_is_the_one_that_chose_the_action(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = small_agent(name)
    monkeypatch.setattr(agent, "act", lambda obs, skill, env_steps, *, explore: scripted(skill))
    run = played(agent, 100)
    sample = run.replay.sample(40_000, 1, 1, 0.99, run.sampler)
    labels: dict[tuple[int, int], np.ndarray] = {}
    for obs, action, skill in zip(sample.obs, sample.action, sample.skill, strict=True):
        assert np.array_equal(action, scripted(skill))
        labels[int(obs[0]), int(obs[1])] = skill
    period = agent.skills.period or EPISODE
    blocks: dict[tuple[int, int], set[bytes]] = {}
    for (episode, step), skill in labels.items():
        blocks.setdefault((episode, step // period), set()).add(skill.tobytes())
    assert len(blocks) == 100 * -(-EPISODE // period), "not every block of every episode was sampled"
    assert all(len(kept) == 1 for kept in blocks.values()), "a skill changed within its block"
    for boundary in range(0, EPISODE, period):
        at_boundary = [skill for (_, step), skill in labels.items() if step == boundary]
        assert len(at_boundary) > 50, "first transitions are sampled too"
        assert len({skill.tobytes() for skill in at_boundary}) > 1
    changes = [blocks[e, b] != blocks[e, b - 1] for e, b in blocks if b > 0]
    assert not changes or 0.5 < np.mean(changes) <= 1.0, "a new block draws anew"


@every_skill_method
def test_g1_skills_are_drawn_as_stated(name: str) -> None:
    skills, rng = small_agent(name).skills, np.random.default_rng(0)
    drawn = np.stack([skills.draw(rng) for _ in range(4000)])
    assert drawn.shape == (4000, skills.width) and drawn.dtype == np.float32
    if skills.kind == "one-hot":
        assert set(np.unique(drawn)) == {0.0, 1.0} and (drawn.sum(1) == 1).all()
        assert np.allclose(drawn.mean(0), 1 / skills.width, atol=0.03)
    else:
        low, high, mean, std = (0, 1, 0.5, 12**-0.5) if skills.kind == "uniform" else (-9, 9, 0, 1)
        assert low <= drawn.min() and drawn.max() <= high
        assert np.allclose(drawn.mean(0), mean, atol=0.1) and np.allclose(drawn.std(0), std, atol=0.1)


@every_skill_method
def test_g2_no_loss_reaches_what_it_is_not_for(name: str) -> None:
    agent = small_agent(name)
    batch = batch_for(agent, 0)
    explorer: Any = agent.explorer
    parts: dict[str, list[nn.Parameter]] = {
        "explorer": list(explorer.parameters()),
        "critic": list(agent.backbone.critic.parameters()),
        "actor": list(agent.backbone.actor.parameters()),
        "target": list(agent.backbone.target_critic.parameters()),
    }
    bonus = agent.pay(batch)
    losses = {
        "explorer": lambda: explorer.loss(batch, agent.policy, generator())[0],
        "critic": lambda: agent.backbone.critic_loss(
            batch, bonus.bonus, generator(), bonus.member, bonus.next_skill
        )[0],
    }
    for own, loss in losses.items():
        for parameter in (p for group in parts.values() for p in group):
            parameter.grad = None
        loss().backward()
        reached = {part for part, group in parts.items() if any(p.grad is not None for p in group)}
        assert reached == {own}


@every_skill_method
def test_g2_the_actors_step_moves_the_actor_alone(name: str) -> None:
    agent = small_agent(name)
    batch = batch_for(agent, 0)
    explorer: Any = agent.explorer
    before = snapshot(agent.backbone), snapshot(explorer)
    agent.actor_optimiser.zero_grad()
    agent.backbone.actor_loss(batch, generator())[0].backward()
    agent.actor_optimiser.step()
    moved = changed(before[0], snapshot(agent.backbone))
    assert moved and all(parameter.startswith("actor.") for parameter in moved)
    assert not changed(before[1], snapshot(explorer))


@every_skill_method
def test_g3_actor_and_critic_depend_on_the_skill(name: str) -> None:
    agent = small_agent(name)
    rng, backbone = np.random.default_rng(0), agent.backbone
    one = agent.skills.draw(rng)
    other = next(z for z in (agent.skills.draw(rng) for _ in range(100)) if not np.array_equal(z, one))
    obs, action = torch.randn(8, 2, generator=generator()), torch.zeros(8, 2)
    rows = [torch.from_numpy(z).expand(8, -1) for z in (one, other)]
    actions = [backbone.actor(backbone.joined(obs, z)).detach() for z in rows]
    assert float((actions[0] - actions[1]).abs().min()) > 0
    values = [backbone.critic(backbone.joined(obs, z), action).detach() for z in rows]
    assert float((values[0] - values[1]).abs().min()) > 0
    acts = [agent.act(obs[0].numpy(), z, 0, explore=False) for z in (one, other)]
    assert not np.array_equal(acts[0], acts[1])
    if agent.explorer.traits.critic is None:
        skill = rows[0].clone().requires_grad_()
        backbone.critic(backbone.joined(obs, skill), action).sum().backward()
        assert skill.grad is not None and bool((skill.grad.abs().sum(1) > 0).all())


def first_inputs(agent: ComposedAgent, batch: Batch) -> list[Tensor]:
    """What layers as wide as the observation read while the explorer learns from a batch and pays for it."""
    explorer: Any = agent.explorer
    seen: list[Tensor] = []
    layers = [m for m in explorer.modules() if getattr(m, "weight", None) is not None and m.weight.ndim == 2]
    hooks = [
        layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach().clone()))
        for layer in layers
        if layer.weight.shape[1] == 2
    ]
    explorer.loss(batch, agent.policy, generator())
    explorer.reward(batch, agent.policy, generator())
    for hook in hooks:
        hook.remove()
    return seen


@every_skill_method
def test_g4_skills_reach_the_bonus_but_never_the_inputs_of_the_models(name: str) -> None:
    agent, twin = small_agent(name), small_agent(name)
    batch = batch_for(agent, 0)
    skill = batch.skill.roll(1, 0)
    permuted = batch._replace(skill=skill)
    pairs = list(zip(first_inputs(agent, batch), first_inputs(twin, permuted), strict=True))
    assert pairs and all(torch.equal(x, y) for x, y in pairs)
    explorer: Any = agent.explorer
    widths = {m.weight.shape[1] for m in explorer.modules() if getattr(m, "weight", torch.empty(0)).ndim == 2}
    assert 2 in widths
    assert (2 + agent.skills.width in widths) == (name in READS_SKILL_WITH_STATE)
    changes = (batch.skill != skill).any(1)
    paid, after = (explorer.reward(b, agent.policy, generator()).bonus.squeeze(1) for b in (batch, permuted))
    if name not in PAYS_ALL_SKILLS_ALIKE:
        assert float((paid != after)[changes].float().mean()) > 0.5


@every_skill_method
def test_g5_the_bonus_has_one_column_and_no_gradient(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = small_agent(name)
    handed: list[Tensor] = []
    critic_loss = agent.backbone.critic_loss

    def spy(batch: Batch, reward: Tensor, *others: Any) -> Any:
        handed.append(reward)
        return critic_loss(batch, reward, *others)

    monkeypatch.setattr(agent.backbone, "critic_loss", spy)
    agent.update(batch_for(agent, 0), 0)
    (reward,) = handed
    assert reward.shape == (BATCH, 1) and not reward.requires_grad and reward.grad_fn is None
    with pytest.raises(ValueError, match="reward: expected shape"):
        critic_loss(batch_for(small_agent("eta0"), 0), torch.zeros(BATCH), generator())


@every_skill_method
def test_g6_the_same_seed_gives_the_same_skills_samples_and_updates(name: str) -> None:
    states = []
    for _ in range(2):
        agent = small_agent(name)
        run = played(agent, 3, scale=0.01)
        sampling = agent.sampling
        assert sampling is not None
        for _ in range(200):
            agent.update(to_batch(run.replay.sample(*sampling, run.sampler), run.first_obs, agent.device), 0)
        states.append((agent.state(), run.replay.state()["skill"]))
    parted = differing(states[0][0], states[1][0])
    assert parted == []
    assert np.array_equal(states[0][1], states[1][1])
    assert not np.array_equal(states[0][1], played(small_agent(name), 3, seed=1).replay.state()["skill"])


class Constant(nn.Module):
    """A critic that says one number."""

    def forward(self, x: Tensor, action: Tensor, *member: Tensor) -> Tensor:
        return torch.full((len(x), 2), 5.0)


@every_skill_method
def test_g7_the_target_is_the_bonus_and_the_discounted_value(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = small_agent(name)
    agent.explorer.traits = agent.explorer.traits._replace(eta=1.0)
    agent.backbone.target_critic = Constant()
    monkeypatch.setattr(agent.backbone, "follow", lambda: None)
    pay = agent.pay

    def one(batch: Batch) -> Paid:
        return pay(batch)._replace(bonus=torch.ones(BATCH, 1))

    monkeypatch.setattr(agent, "pay", one)
    batch, n_step = batch_for(agent, 0), agent.sampling.n_step if agent.sampling else 0
    assert float(agent.update(batch, 0)["q_target"]) == pytest.approx(1 + 0.97**n_step * 5.0, rel=1e-6)
    assert bool((batch.discount == 0.97**n_step).all())
