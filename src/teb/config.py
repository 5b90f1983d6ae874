"""What a run is: environment, agent, schedule. Frozen data, resolved once, written into the run folder."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from teb.agents.registry import KINDS, AgentSpec
from teb.checks import in_range, one_of_the_choices, positive
from teb.envs import FAMILIES, observed, split_id
from teb.envs.naming import did_you_mean

Preset = Literal["paper", "cpu"]

T = TypeVar("T")


@dataclass(frozen=True)
class RunConfig:
    """The schedule of a run, and the machine it runs on."""

    seed: int = 0
    """Seed of everything random; the same seed gives the same CPU run, bit for bit (ours)."""
    steps: int = 100_000
    """Environment steps of the whole run (paper table 3: 100K in mazes)."""
    seed_steps: int = 4000
    """Environment steps before the first update (paper table 3)."""
    uniform_steps: int = 2000
    """Environment steps with uniform actions; URLB's code plays 4000 (paper table 3)."""
    update_every: int = 2
    """Environment steps per update (paper table 3)."""
    replay_capacity: int = 200_000
    """Transitions kept (paper table 3)."""
    log_every: int = 1000
    """Environment steps per row of metrics.jsonl (ours)."""
    checkpoint_seconds: float = 60.0
    """Seconds between checkpoints (ours)."""
    device: str = "cpu"
    """cpu, cuda, or auto for cuda where there is one (ours)."""
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """Of the large matrix products; auto takes bf16 where the processor has it (ours)."""
    threads: int = 0
    """Threads of the matrix products; 0 leaves PyTorch's choice (ours)."""
    eval_every: int = 0
    """Environment steps between evaluations, on an environment of their own; 0 for none (ours)."""
    eval_episodes: int = 10
    """Episodes of an evaluation, with the mean action (paper table 3: 10)."""
    env_process: Literal["auto", "yes", "no"] = "auto"
    """Whether the environment steps in its own process while learning goes on; auto where steps are slow (ours)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        one_of_the_choices(self)
        for name in (
            "steps",
            "update_every",
            "replay_capacity",
            "log_every",
            "checkpoint_seconds",
            "eval_episodes",
        ):
            positive(name, getattr(self, name))
        for name in ("seed", "seed_steps", "uniform_steps", "threads", "eval_every"):
            in_range(name, getattr(self, name), 0, 2**63)


PIXELS: dict[str, Any] = {
    "steps": 500_000,
    "seed_steps": 2000,
    "checkpoint_seconds": 600.0,
    "eval_every": 5000,
}
"""What a schedule changes where pictures are seen: 4000 seed frames are 2000 decisions (paper table 3), and a
checkpoint holds gigabytes."""

NEUTRAL = (
    "steps",
    "log_every",
    "checkpoint_seconds",
    "threads",
    "device",
    "eval_every",
    "eval_episodes",
    "env_process",
)
"""Fields of `RunConfig` that cannot change what is learnt up to a step, beyond rounding."""


@dataclass(frozen=True)
class Config:
    """One run, completely."""

    env: str
    """Such as maze2d/square-a."""
    agent: str
    """Such as teb."""
    preset: str
    """The preset that the values started from."""
    reading: str
    """The reading that the values started from."""
    run: RunConfig
    """Schedule and machine."""
    task: Any
    """Options of the environment's family."""
    learner: Any
    """Options of the agent."""


def default_config(env: str, agent: str, preset: str = "paper", reading: str = "default") -> Config:
    """The configuration that names alone decide; a wrong name is refused with the nearest right one."""
    family, _ = split_id(env)
    kind = observed(env)
    spec = agent_spec(env, agent)
    if preset not in spec.presets:
        raise ValueError(f"preset: must be one of {', '.join(spec.presets)}, got {preset!r}")
    learner = spec.presets[preset]
    if reading != "default":
        if reading not in spec.readings:
            raise ValueError(
                f"reading: {agent!r} has {', '.join(['default', *spec.readings])}, got {reading!r}"
            )
        learner = updated(learner, spec.readings[reading])
    schedule = RunConfig(**{**(PIXELS if kind == "pixels" else {}), **FAMILIES[family].schedule})
    return Config(env, agent, preset, reading, schedule, FAMILIES[family].config(), learner)


def agent_spec(env: str, agent: str) -> AgentSpec:
    """The agent of this name for what this environment shows; a wrong name is refused with the nearest right one."""
    kind = observed(env)
    agents = KINDS[kind]
    if agent in agents:
        return agents[agent]
    for other, elsewhere in KINDS.items():
        if agent in elsewhere:
            raise ValueError(
                f"agent: {agent!r} is for {other}, {env} shows {kind}; known: {', '.join(agents)}"
            )
    raise ValueError(f"unknown agent {agent!r}{did_you_mean(agent, agents)} known: {', '.join(agents)}")


def updated(config: T, changes: Mapping[str, Any]) -> T:
    """A copy of a (nested) frozen dataclass with some fields changed; an unknown field is refused."""
    known = {f.name for f in dataclasses.fields(config)}  # pyright: ignore[reportArgumentType]
    for name in changes:
        if name not in known:
            raise ValueError(f"unknown field {name!r} of {type(config).__name__}{did_you_mean(name, known)}")
    values = {
        name: updated(getattr(config, name), value)
        if dataclasses.is_dataclass(getattr(config, name))
        else value
        for name, value in changes.items()
    }
    return dataclasses.replace(config, **values)  # pyright: ignore[reportArgumentType]


def to_json(config: Config) -> dict[str, Any]:
    """Nested plain data."""
    return dataclasses.asdict(config)


def from_json(data: Mapping[str, Any]) -> Config:
    """The configuration that `to_json` wrote."""
    start = default_config(data["env"], data["agent"], data["preset"], data["reading"])
    return updated(start, {name: data[name] for name in ("run", "task", "learner")})


def flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested plain data with their dotted paths."""
    for name, value in data.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def overrides(config: Config) -> dict[str, Any]:
    """Fields that differ from what the names alone give: what makes a run a variant.

    Seed and precision do not: one is what runs of a variant differ in, the other follows from the machine.
    """
    start = dict(flat(to_json(default_config(config.env, config.agent, config.preset, config.reading))))
    changed = {path: value for path, value in flat(to_json(config)) if value != start[path]}
    aside = {f"run.{name}" for name in (*NEUTRAL, "seed", "precision")}
    return {path.rpartition(".")[2]: value for path, value in changed.items() if path not in aside}


def label(config: Config) -> str:
    """A method's name in tables: the agent, its reading, and what was overridden."""
    words = [] if config.reading == "default" else [config.reading]
    words += [f"{name}={value}" for name, value in overrides(config).items()]
    return f"{config.agent} ({', '.join(words)})" if words else config.agent


def config_hash(config: Config) -> str:
    """Twelve hexadecimal digits that agree exactly when two runs differ in nothing but seed and neutral fields."""
    data = to_json(config)
    for name in ("preset", "reading"):
        del data[name]
    for name in ("seed", *NEUTRAL):
        del data["run"][name]
    canonical = json.dumps(data, sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]
