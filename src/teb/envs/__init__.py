"""The environments: families of tasks, found by ids of the form `family/name`.

Importing this package also registers mazes and manipulation tasks with Gymnasium, as `teb/Maze2D-square-a-v0`,
`teb/MetaWorld-box-close-v0` and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from teb.envs.gym import GymConfig, make_gym_task, observed_by_gym
from teb.envs.layouts import load_layouts
from teb.envs.maze2d import Maze2DConfig, make_maze_task, register_mazes
from teb.envs.metaworld import TASKS, MetaWorldConfig, make_metaworld_task, register_metaworld
from teb.envs.naming import did_you_mean
from teb.envs.probe import PROBES, ProbeConfig, make_probe_task
from teb.envs.process import EnvProcessError, RemoteEnv
from teb.envs.protocol import Meter, Task

__all__ = [
    "FAMILIES",
    "EnvProcessError",
    "Family",
    "Meter",
    "RemoteEnv",
    "Task",
    "make_task",
    "make_task_elsewhere",
    "observed",
    "split_id",
]

Observed = Literal["states", "pixels"]
"""Vectors of numbers, or pictures."""


class Family(NamedTuple):
    """One kind of environment; a new family is one line in `FAMILIES`."""

    config: type[Any]
    """The frozen dataclass of its options; all of them have defaults."""
    make: Callable[[str, Any], Task]
    """Builds the task of a name with such options."""
    names: tuple[str, ...]
    """The names it knows; empty if it takes any and judges by itself."""
    summary: str
    """One line for lists."""
    citation: str
    observes: Observed | Callable[[str], Observed] = "states"
    """What agents see, or for families of both kinds who tells by the name."""
    schedule: Mapping[str, Any] = MappingProxyType({})
    """Fields of a run's schedule that this family changes."""
    slow_steps: bool = False
    """Whether a step takes so long that a process of its own pays: a round trip costs 0.05 ms."""


FAMILIES: dict[str, Family] = {
    "maze2d": Family(
        Maze2DConfig,
        make_maze_task,
        tuple(load_layouts()),
        "a point explores a maze without reward; measured by state coverage",
        "Campos et al. 2020",
    ),
    "gym": Family(
        GymConfig,
        make_gym_task,
        (),
        "any Gymnasium id with a vector or a picture to observe and bounded continuous actions",
        "Towers et al. 2024",
        observed_by_gym,
    ),
    "metaworld": Family(
        MetaWorldConfig,
        make_metaworld_task,
        TASKS,
        "a robot arm manipulates objects, seen from pixels; measured by success",
        "Yu et al. 2019",
        "pixels",
        slow_steps=True,
    ),
    "probe": Family(
        ProbeConfig,
        make_probe_task,
        tuple(PROBES),
        "a square looks for a hidden goal before a moving background; small pictures, solved in minutes",
        "ours",
        "pixels",
        MappingProxyType(
            {
                "steps": 20_000,
                "seed_steps": 1000,
                "uniform_steps": 1000,
                "replay_capacity": 50_000,
                "eval_every": 2000,
            }
        ),
    ),
}


def split_id(env_id: str) -> tuple[str, str]:
    """Split `maze2d/square-a` into family and name; a `ValueError` says in one line what may be meant."""
    family, slash, name = env_id.partition("/")
    if not slash or not name:
        full_ids = [f"{key}/{known}" for key, entry in FAMILIES.items() for known in entry.names]
        guess = did_you_mean(env_id, [full for full in full_ids if full.endswith(f"/{env_id}")] or full_ids)
        raise ValueError(
            f"env: must look like family/name, got {env_id!r}{guess} families: {', '.join(FAMILIES)}"
        )
    if family not in FAMILIES:
        guess = did_you_mean(family, FAMILIES)
        raise ValueError(f"unknown family {family!r} in {env_id!r}{guess} known: {', '.join(FAMILIES)}")
    names = FAMILIES[family].names
    if names and name not in names:
        guess = did_you_mean(name, names)
        raise ValueError(f"unknown name {name!r} in {env_id!r}{guess} known: {', '.join(names)}")
    return family, name


def observed(env_id: str) -> Observed:
    """Whether agents see states or pixels there."""
    family, name = split_id(env_id)
    kind = FAMILIES[family].observes
    return kind(name) if callable(kind) else kind


def make_task(env_id: str, config: Any = None) -> Task:
    """Build the task of an id such as `maze2d/square-a`; the default config is that of its family."""
    family, name = split_id(env_id)
    expected = FAMILIES[family].config
    if config is None:
        config = expected()
    if not isinstance(config, expected):
        raise TypeError(f"config: {env_id!r} takes a {expected.__name__}, got {type(config).__name__}")
    return FAMILIES[family].make(name, config)


def make_task_elsewhere(env_id: str, config: Any) -> Task:
    """The same task with its environment in a process of its own: a step that was begun goes on by itself."""
    return RemoteEnv(env_id, config).task


register_mazes()
register_metaworld()
