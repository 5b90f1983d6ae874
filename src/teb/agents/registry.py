"""The agents by name, for each kind of observation: explorers on the shared learner, and agents that bring their own.

On states an agent is a backbone and an explorer. From pixels a representation joins them, and the paper's ablations
are compositions by name. `NAME+rep` is every explorer beside the paper's representation; those names are made, not
written down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

from teb.agents.backbone import BackboneConfig, EncoderConfig, Pictures
from teb.agents.compose import ComposedAgent, Composition, PixelComposition
from teb.agents.ctrlsr import CPU_SPECTRAL, CtrlsrAgent, CtrlsrConfig, SpectralConfig
from teb.agents.drm import DrmAgent, DrmAgentConfig, DrmConfig
from teb.agents.mixing import MixingConfig
from teb.agents.protocol import Agent, Runtime, Shapes
from teb.agents.uniform import UniformAgent, UniformConfig
from teb.explorers import REGISTRY
from teb.explorers.entry import Entry
from teb.representations import REPRESENTATIONS

Kind = Literal["states", "pixels"]
"""What an environment lets agents observe."""

Image = tuple[int, int, int]


@dataclass(frozen=True)
class AgentSpec:
    """One agent as the command line offers it."""

    summary: str
    citation: str
    presets: Mapping[str, Any]
    """Configuration by preset: `paper` and `cpu`."""
    build: Callable[..., Agent]
    """(config, shapes, runtime) -> agent; from pixels also the shape of a stack of frames."""
    readings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Named sets of fields, nested like the configuration, offered as --reading."""


# --- on states -----------------------------------------------------------------------------------------------------

CPU_BACKBONE = BackboneConfig(batch_size=256, width=256, lr=4e-4)
"""A tenth of the paper's cost with nearly its dynamics: the learning rate grows as the width shrinks."""


def _compose(entry: Entry, config: Composition, shapes: Shapes, runtime: Runtime) -> Agent:
    return ComposedAgent(config.backbone, partial(entry.build, config.explorer), shapes, runtime)


def _composed(entry: Entry) -> AgentSpec:
    presets = {
        "paper": Composition(BackboneConfig(), entry.config),
        "cpu": Composition(CPU_BACKBONE, replace(entry.config, **entry.cpu)),
    }
    readings = {name: {"explorer": fields} for name, fields in entry.readings.items()}
    return AgentSpec(entry.summary, entry.citation, presets, partial(_compose, entry), readings)


_UNIFORM = AgentSpec(
    "uniform random actions, no learning",
    "none",
    {"paper": UniformConfig(), "cpu": UniformConfig()},
    lambda config, shapes, runtime, image=None: UniformAgent(shapes, runtime),
)

AGENTS: dict[str, AgentSpec] = {name: _composed(entry) for name, entry in REGISTRY.items()} | {
    "uniform": _UNIFORM
}

# --- from pixels ---------------------------------------------------------------------------------------------------

PIXEL_BACKBONE = BackboneConfig(batch_size=256, gamma=0.97, noise="linear(1.0,0.1,500000)")
"""DrQ-v2 as in the paper's table 3."""

CPU_PIXEL_BACKBONE = replace(PIXEL_BACKBONE, batch_size=128, width=256, lr=4e-4)

CPU_ENCODER: dict[str, Any] = {"channels": 16, "encoder_lr": 2e-4}
"""Half the channels take a third of the time."""


def _compose_pixels(
    explorer: Entry,
    representation: Entry,
    config: PixelComposition,
    shapes: Shapes,
    runtime: Runtime,
    image: Image,
) -> Agent:
    return ComposedAgent(
        config.backbone,
        partial(explorer.build, config.explorer),
        shapes._replace(obs=config.encoder.latent_dim),
        runtime,
        Pictures(config.encoder, image),
        partial(representation.build, config.representation),
        config.mixing.calibration(),
    )


def _seen(
    explorer: str,
    representation: str = "none",
    summary: str = "",
    citation: str = "",
    encoder: Mapping[str, Any] = MappingProxyType({}),
    changes: Mapping[str, Any] = MappingProxyType({}),
) -> AgentSpec:
    """An explorer beside a representation; `encoder` and `changes` are fields of encoder and representation."""
    bonus, shaping = REGISTRY[explorer], REPRESENTATIONS[representation]
    lends = representation != "none" and bonus.borrowing is not None
    first: Any = bonus.borrowing if lends else bonus.pixels or bonus.config
    mixing = MixingConfig(bonus.calibrate_updates)
    cpu = bonus.borrowing_cpu if lends else bonus.cpu
    learnt = replace(shaping.config, **changes)
    presets = {
        "paper": PixelComposition(PIXEL_BACKBONE, EncoderConfig(**encoder), learnt, first, mixing),
        "cpu": PixelComposition(
            CPU_PIXEL_BACKBONE,
            EncoderConfig(**{**CPU_ENCODER, **encoder}),
            replace(learnt, **shaping.cpu),
            replace(first, **cpu),
            mixing,
        ),
    }
    own = bonus.borrowing_readings if lends else bonus.readings
    readings = {
        name: {
            key: fields[name]
            for key, fields in (("explorer", own), ("representation", shaping.readings))
            if name in fields
        }
        for name in {**own, **shaping.readings}
    }
    return AgentSpec(
        summary or bonus.summary,
        citation or bonus.citation,
        presets,
        partial(_compose_pixels, bonus, shaping),
        readings,
    )


_CTRLSR = AgentSpec(
    "contrastive spectral features, and a critic on them",
    "Gao et al. 2025, arXiv 2512.15036",
    {
        "paper": CtrlsrConfig(replace(PIXEL_BACKBONE, width=512), EncoderConfig(), SpectralConfig()),
        "cpu": CtrlsrConfig(CPU_PIXEL_BACKBONE, EncoderConfig(**CPU_ENCODER), SpectralConfig(**CPU_SPECTRAL)),
    },
    CtrlsrAgent,
)

_PAPER = "Liang et al. 2026, arXiv 2602.18724"
_PRIVATE: dict[str, Any] = {"latent_layout": "critic_trunk"}
_UNSQUASHED = {"squash": "none"}

_DRM = AgentSpec(
    "drqv2 that perturbs weights and explores by its actor's share of dormant units",
    "Xu et al. 2024, arXiv 2310.19668",
    {
        "paper": DrmAgentConfig(PIXEL_BACKBONE, EncoderConfig(**_PRIVATE), DrmConfig()),
        "cpu": DrmAgentConfig(CPU_PIXEL_BACKBONE, EncoderConfig(**CPU_ENCODER, **_PRIVATE), DrmConfig()),
    },
    DrmAgent,
    {"official": {"backbone": {"n_step": 10}}},
)

PIXEL_AGENTS: dict[str, AgentSpec] = {
    "teb": _seen("teb", "bisim", "bisimulation metric: representation and bonus", _PAPER),
    "teb-no-rep": _seen(
        "teb",
        "bisim",
        "the bonus alone; its models learn on latents that they do not shape",
        _PAPER,
        changes={"lambda_b": 0.0, "rew_grad_to_encoder": False, "dyn_grad_to_encoder": False},
    ),
    "teb-no-int": _seen("eta0", "bisim", "the representation alone", _PAPER),
    "teb-env-metric": _seen(
        "eta0",
        "bisim",
        "the representation alone, rewards instead of their predictions in the metric",
        _PAPER,
        changes={"delta_r": "env_nstep"},
    ),
    "drqv2": _seen(
        "eta0",
        "none",
        "the backbone without representation and bonus",
        "Yarats et al. 2022, arXiv 2107.09645",
        _PRIVATE,
    ),
    "drm": _DRM,
    "ctrlsr": _CTRLSR,
    "uniform": _UNIFORM,
}
PIXEL_AGENTS |= {
    name: _seen("eta0", name, REPRESENTATIONS[name].summary, REPRESENTATIONS[name].citation, _UNSQUASHED)
    for name in ("rap", "dbc", "mico")
}
PIXEL_AGENTS |= {name: _seen(name) for name in REGISTRY if name not in PIXEL_AGENTS}

REPRESENTED = "+rep"
"""What stands behind the name of an explorer that is joined by the paper's representation."""

PIXEL_AGENTS |= {
    f"{name}{REPRESENTED}": _seen(name, "bisim", f"{entry.summary}; with teb's representation")
    for name, entry in REGISTRY.items()
    if not entry.own_metric
}

KINDS: dict[str, dict[str, AgentSpec]] = {"states": AGENTS, "pixels": PIXEL_AGENTS}
"""The agents for each kind of observation."""
