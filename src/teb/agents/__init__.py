"""The agents by name: every explorer on the shared backbone, and the agents that bring their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from teb.agents.backbone import BackboneConfig
from teb.agents.compose import ComposedAgent, Composition
from teb.agents.protocol import Agent, Runtime, Shapes
from teb.agents.uniform import UniformAgent, UniformConfig
from teb.explorers import REGISTRY
from teb.explorers.entry import Entry


@dataclass(frozen=True)
class AgentSpec:
    """One agent as the command line offers it."""

    summary: str
    citation: str
    presets: Mapping[str, Any]
    """Configuration by preset: `paper` and `cpu`."""
    build: Callable[[Any, Shapes, Runtime], Agent]
    readings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Named sets of explorer fields, offered as --reading."""


CPU_BACKBONE = BackboneConfig(batch_size=256, width=256, lr=4e-4)
"""A tenth of the paper's cost with nearly its dynamics: the learning rate grows as the width shrinks."""


def _compose(entry: Entry, config: Composition, shapes: Shapes, runtime: Runtime) -> Agent:
    return ComposedAgent(config.backbone, partial(entry.build, config.explorer), shapes, runtime)


def _composed(entry: Entry) -> AgentSpec:
    presets = {
        "paper": Composition(BackboneConfig(), entry.config),
        "cpu": Composition(CPU_BACKBONE, replace(entry.config, **entry.cpu)),
    }
    return AgentSpec(entry.summary, entry.citation, presets, partial(_compose, entry), entry.readings)


_UNIFORM = AgentSpec(
    "uniform random actions, no learning",
    "none",
    {"paper": UniformConfig(), "cpu": UniformConfig()},
    lambda config, shapes, runtime: UniformAgent(shapes, runtime),
)

AGENTS: dict[str, AgentSpec] = {name: _composed(entry) for name, entry in REGISTRY.items()} | {
    "uniform": _UNIFORM
}
