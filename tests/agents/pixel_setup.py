"""Small pictures and agents that see them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from teb.agents import compose
from teb.agents.backbone import BackboneConfig, EncoderConfig, Pictures
from teb.agents.compose import ComposedAgent
from teb.agents.protocol import Batch, Runtime, Shapes, to_batch
from teb.agents.registry import PIXEL_AGENTS
from teb.explorers.none import NoBonus, NoBonusConfig
from teb.replay.sample import Sample
from teb.replay.stacking import windows_of_stacks

CPU = torch.device("cpu")
STACK, SIDE, ACTIONS, LATENT = 2, 16, 2, 6
IMAGE = (3 * STACK, SIDE, SIDE)
GAMMA = 0.97
SIZE = 8


def pixel_batch(
    seed: int = 0, *, size: int = SIZE, n: int = 3, skill: int = 0, rewards: float = 1.0
) -> Batch:
    """Windows of random frames with random rewards."""
    rng = np.random.default_rng(seed)
    frames = rng.integers(0, 256, (size, STACK + n, 3, SIDE, SIDE), dtype=np.uint8)
    window = windows_of_stacks(frames, STACK)
    action = rng.uniform(-1, 1, (size, n + 1, ACTIONS)).astype(np.float32)
    earned = (rewards * rng.normal(size=(size, max(n, 3)))).astype(np.float32)
    total = (earned[:, :n] * GAMMA ** np.arange(n)).sum(1, keepdims=True).astype(np.float32)
    sample = Sample(
        window[:, 0],
        action[:, 0],
        total,
        np.full((size, 1), GAMMA**n, np.float32),
        window[:, -1],
        earned,
        window,
        action,
        rng.normal(size=(size, skill)).astype(np.float32),
    )
    return to_batch(sample, window[0, 0], CPU)


NARROW: dict[str, dict[str, Any]] = {
    "backbone": {"batch_size": SIZE, "width": 16, "lr": 1e-3},
    "encoder": {"latent_dim": LATENT, "channels": 4, "shift": 2, "encoder_lr": 1e-3},
}
NARROW_MODELS = {
    "pred_hidden": 16,
    "hidden": 16,
    "particles": 32,
    "neighbours": 3,
    "feature_dim": 12,
    "fourier_pairs": 10,
    "level_width": 8,
    "feature_lr": 1e-3,
}


def small_learner(
    name: str, seed: int = 0, compute: torch.dtype = torch.float32, **parts: Mapping[str, Any]
) -> Any:
    """Any agent that learns by name, with narrow layers, fields of its parts changed."""
    spec = PIXEL_AGENTS[name]
    config = spec.presets["paper"]
    changed = {}
    for field in dataclasses.fields(config):
        part = getattr(config, field.name)
        known = {each.name for each in dataclasses.fields(part)}
        small = {key: value for key, value in NARROW_MODELS.items() if key in known}
        wanted = {**small, **NARROW.get(field.name, {}), **parts.pop(field.name, {})}
        changed[field.name] = dataclasses.replace(part, **wanted)
    assert not parts, f"{name} has no {', '.join(parts)}"
    config = dataclasses.replace(config, **changed)
    return spec.build(config, Shapes(1, ACTIONS), Runtime(seed, CPU, compute), image=IMAGE)


def small_pixel_agent(
    name: str = "teb", seed: int = 0, compute: torch.dtype = torch.float32, **parts: Mapping[str, Any]
) -> ComposedAgent:
    """The same of an agent that is a composition."""
    built = small_learner(name, seed, compute, **parts)
    assert isinstance(built, ComposedAgent)
    return built


def leaves(state: Any, place: str = "") -> dict[str, Any]:
    """What a state holds, by its path."""
    if not isinstance(state, Mapping):
        return {place: state}
    return {path: leaf for key in state for path, leaf in leaves(state[key], f"{place}/{key}").items()}


def composed(build_explorer: Any = None, seed: int = 0, **encoder: Any) -> ComposedAgent:
    """An agent that sees pictures around any explorer, without representation."""

    def no_bonus(shapes: Shapes, **terms: Any) -> NoBonus:
        return NoBonus(NoBonusConfig(), shapes, **terms)

    return ComposedAgent(
        BackboneConfig(batch_size=SIZE, width=16, lr=1e-3, gamma=GAMMA),
        build_explorer or no_bonus,
        Shapes(LATENT, ACTIONS),
        Runtime(seed, CPU, torch.float32),
        Pictures(EncoderConfig(**{"latent_dim": LATENT, "channels": 4, "shift": 2, **encoder}), IMAGE),
    )


def parameters(agent: Any) -> dict[str, Tensor]:
    """Copies of all parameters of all parts, by the part that they belong to."""
    modules: Any = agent._modules()
    return {
        f"{part}.{name}": p.detach().clone()
        for part, module in modules.items()
        for name, p in module.named_parameters()
    }


def moved(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> set[str]:
    """Names of what differs."""
    return {name for name, value in before.items() if not torch.equal(value, after[name])}


def parts_of(names: set[str]) -> set[str]:
    """Which parts of an agent parameter names belong to."""
    return {".".join(name.split(".")[: 2 if name.startswith("backbone") else 1]) for name in names}


def steps_of(agent: ComposedAgent, batch: Batch, monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """What each optimiser step of an update moves."""
    seen: list[set[str]] = []
    descend = compose.descend

    def spy(*arguments: Any) -> Any:
        before = parameters(agent)
        norm = descend(*arguments)
        seen.append(moved(before, parameters(agent)))
        return norm

    with monkeypatch.context() as patch:
        patch.setattr(compose, "descend", spy)
        agent.update(batch, 0)
    return seen
