"""Random batches, small agents and a stand-in policy for the tests of explorers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from teb.agents.backbone import BackboneConfig
from teb.agents.compose import ComposedAgent
from teb.agents.protocol import Batch, Runtime, Shapes, Skills
from teb.explorers import REGISTRY
from teb.explorers.teb import Teb, TebConfig
from teb.nets.mlp import initialised_from

GAMMA = 0.97
BATCH = 32
SHAPES = Shapes(2, 2)
NO_SKILLS = Skills()
BACKBONE = BackboneConfig(batch_size=BATCH, width=32, lr=1e-3, gamma=GAMMA)


def random_batch(
    seed: int,
    *,
    size: int = BATCH,
    n: int = 3,
    horizon: int = 3,
    gamma: float = GAMMA,
    obs_scale: float = 2.0,
    reward_scale: float = 0.0,
    terminal: int = 0,
    ended: int = 0,
    skills: Skills = NO_SKILLS,
    shapes: Shapes = SHAPES,
) -> Batch:
    """Consistent windows; the first `terminal` of them end in a terminal state, `ended` more with their episode."""
    rng = np.random.default_rng(seed)
    window_obs = torch.from_numpy(obs_scale * rng.normal(size=(size, n + 1, shapes.obs))).float()
    window_action = torch.from_numpy(rng.uniform(-1, 1, (size, n + 1, shapes.action))).float()
    window_action[: terminal + ended, -1] = torch.nan
    rewards = reward_scale * rng.normal(size=(size, max(horizon, n)))
    rewards[:terminal, n:] = 0
    reward = sum(gamma**i * rewards[:, i] for i in range(n))
    discount = torch.full((size, 1), gamma**n)
    discount[:terminal] = 0
    return Batch(
        obs=window_obs[:, 0],
        action=window_action[:, 0],
        reward=torch.from_numpy(np.asarray(reward)).float().unsqueeze(1),
        discount=discount,
        next_obs=window_obs[:, -1],
        rewards=torch.from_numpy(rewards).float(),
        window_obs=window_obs,
        window_action=window_action,
        skill=torch.from_numpy(np.stack([skills.draw(rng) for _ in range(size)])),
        first_obs=torch.linspace(0.3, -0.2, shapes.obs).unsqueeze(0),
    )


def batch_of(window_obs: Tensor, window_action: Tensor, gamma: float = GAMMA) -> Batch:
    """The batch of given windows, [B, n+1, D] and [B, n+1, A], without reward."""
    size, n = len(window_obs), window_obs.shape[1] - 1
    zeros = torch.zeros(size, n)
    return Batch(
        obs=window_obs[:, 0],
        action=window_action[:, 0],
        reward=zeros[:, :1],
        discount=torch.full((size, 1), gamma**n),
        next_obs=window_obs[:, -1],
        rewards=zeros,
        window_obs=window_obs,
        window_action=window_action,
        skill=torch.zeros(size, 0),
        first_obs=window_obs[:1, 0],
    )


def batch_for(agent: ComposedAgent, seed: int, **options: Any) -> Batch:
    """A batch as this agent would ask the replay for it."""
    sampling = agent.sampling
    assert sampling is not None
    return random_batch(
        seed,
        size=sampling.batch_size,
        n=sampling.n_step,
        horizon=sampling.horizon,
        gamma=sampling.gamma,
        skills=agent.skills,
        **options,
    )


def windows(obs: Tensor, next_obs: Tensor, skill: Tensor) -> Batch:
    """Windows of one step from given states to given states, [B, D] each, under given skills [B, K]."""
    size = obs.shape[0]
    nothing = torch.zeros(size, 1)
    return Batch(
        obs=obs,
        action=torch.zeros(size, SHAPES.action),
        reward=nothing,
        discount=nothing + GAMMA,
        next_obs=next_obs,
        rewards=nothing,
        window_obs=torch.stack([obs, next_obs], 1),
        window_action=torch.zeros(size, 2, SHAPES.action),
        skill=skill,
        first_obs=obs[:1],
    )


def made(name: str, seed: int = 0, **changes: Any) -> Any:
    """The registered explorer alone, of official size unless changed; the same seed gives the same parameters."""
    entry = REGISTRY[name]
    config = dataclasses.replace(entry.config, **changes)
    with initialised_from(seed):
        return entry.build(config, SHAPES, gamma=GAMMA, n_step=3)


def fit(explorer: Any, batches: Iterable[Batch], lr: float | None = None) -> list[dict[str, float]]:
    """Step on each batch as the composition would, at the declared rates or at `lr`; the metrics of each step."""
    groups = explorer.parameter_groups()
    optimiser = torch.optim.Adam([group | ({} if lr is None else {"lr": lr}) for group in groups], fused=True)
    rng, seen = generator(3), []
    for batch in batches:
        loss, metrics = explorer.loss(batch, policy, rng)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        seen.append({name: float(value) for name, value in metrics.items()})
    return seen


def bonus_of(explorer: Any, batch: Batch, seed: int = 0) -> Tensor:
    """What an explorer pays for a batch, [B]."""
    return explorer.reward(batch, policy, generator(seed)).bonus.squeeze(1)


def shrunk(config: Any) -> Any:
    """A configuration with narrow layers and short memories, whatever the explorer calls them."""
    small: dict[str, int] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 32:
            small[field.name] = 32 if "hidden" in field.name or "width" in field.name else min(value, 128)
    return dataclasses.replace(config, **small)


def small_agent(name: str, seed: int = 0, shapes: Shapes = SHAPES, **changes: Any) -> ComposedAgent:
    """The registered explorer on a narrow backbone."""
    entry = REGISTRY[name]
    config = dataclasses.replace(shrunk(entry.config), **changes)
    runtime = Runtime(seed, torch.device("cpu"), torch.float32)
    return ComposedAgent(BACKBONE, partial(entry.build, config), shapes, runtime)


def small_explorer(name: str, seed: int = 0, **changes: Any) -> Any:
    """A registered explorer alone, narrow; the same seed gives the same initial models for all options."""
    return small_agent(name, seed, **changes).explorer


def pay(explorer: Any, batch: Batch) -> Tensor:
    """What it pays for a batch, [B]."""
    return explorer.reward(batch, policy, generator()).bonus.squeeze(1)


def teach(explorer: Any, batches: Iterable[Batch], lr: float = 3e-3) -> None:
    """Steps on the explorer's own loss, one for each batch."""
    adam = torch.optim.Adam([group | {"lr": lr} for group in explorer.parameter_groups()], fused=True)
    for batch in batches:
        adam.zero_grad()
        explorer.loss(batch, policy, generator())[0].backward()
        adam.step()
        explorer.after_step(batch, policy, generator())


def small_teb(n_step: int = 3, gamma: float = GAMMA, seed: int = 0, **changes: Any) -> Teb:
    """A TEB explorer alone, with small models; the same seed gives the same initial models for all options."""
    values: dict[str, Any] = {"pred_hidden": 16, "particles": 40, "neighbours": 3} | changes
    with initialised_from(seed):
        return Teb(TebConfig(**values), SHAPES, gamma=gamma, n_step=n_step)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


_WEIGHT = torch.tensor([[0.8, -0.3], [0.4, 0.9]])


def policy(obs: Tensor, skill: Tensor, rng: torch.Generator | None) -> Tensor:
    """Some smooth deterministic actor, with clipped noise if asked for a draw."""
    mean = torch.tanh(obs @ _WEIGHT)
    if rng is None:
        return mean
    return (mean + (0.2 * torch.randn(mean.shape, generator=rng)).clamp(-0.3, 0.3)).clamp(-1, 1)


def leaves(state: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Everything in a nested state with its path."""
    if isinstance(state, Mapping):
        for name, value in state.items():
            yield from leaves(value, f"{path}/{name}")
    else:
        yield path, state


def differing(left: Any, right: Any) -> list[str]:
    """Paths at which two states differ in a single bit."""
    one, other = dict(leaves(left)), dict(leaves(right))
    assert one.keys() == other.keys()
    return [
        path
        for path, value in one.items()
        if not (torch.equal(value, other[path]) if isinstance(value, Tensor) else value == other[path])
    ]


def snapshot(module: torch.nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters and buffers."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def changed(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> set[str]:
    """Names of the entries that differ."""
    return {name for name, value in before.items() if not torch.equal(value, after[name])}
