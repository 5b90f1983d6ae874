from __future__ import annotations

import dataclasses

import gymnasium as gym
import numpy as np
import pytest

from teb.envs import FAMILIES, make_task, observed, split_id
from teb.envs.gym import GymConfig
from teb.envs.maze2d import Maze2D, Maze2DConfig
from teb.envs.naming import nearest

EXAMPLES = [
    *(f"{family}/{name}" for family, entry in FAMILIES.items() for name in entry.names if family != "gym"),
    "gym/Pendulum-v1",
]


def test_known_mazes() -> None:
    assert FAMILIES["maze2d"].names == (
        "square-a",
        "square-b",
        "square-c",
        "square-d",
        "corridor2",
        "square-tree",
        "square-bottleneck",
        "square-corridor",
        "square-large",
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_family_configs_are_frozen_with_defaults(family: str) -> None:
    config = FAMILIES[family].config()
    assert dataclasses.is_dataclass(config)
    for field in dataclasses.fields(config):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(config, field.name, None)


@pytest.mark.parametrize("env_id", EXAMPLES)
def test_every_task_keeps_the_contract(env_id: str) -> None:
    env, meter, headline, frame_stack = make_task(env_id)
    seen, acted = env.observation_space, env.action_space
    assert isinstance(seen, gym.spaces.Box) and isinstance(acted, gym.spaces.Box)
    pictures = observed(env_id) == "pixels"
    assert len(acted.shape) == 1 and len(seen.shape) == (3 if pictures else 1)
    assert frame_stack >= 1 if pictures else frame_stack == 1
    stored = np.uint8 if pictures else np.float32
    assert (acted.low == -1.0).all() and (acted.high == 1.0).all()
    assert acted.dtype == np.float32 and seen.dtype == stored
    obs, info = env.reset(seed=0)
    assert obs.dtype == stored and obs in seen and info == {}
    meter.observe(obs, 0)
    obs, reward, terminated, truncated, info = env.step(acted.high)
    assert obs.dtype == stored and obs in seen
    assert meter.observe_step(info, ended=False) == {}
    assert all(isinstance(value, float) for value in meter.observe_step(info, ended=True).values())
    assert type(reward) is float and type(terminated) is bool and type(truncated) is bool
    meter.observe(obs, 1)
    assert headline == "episode_return" or headline in meter.metrics()


@pytest.mark.parametrize(
    ("env_id", "expected"),
    [
        ("maze2d/square-a", ("maze2d", "square-a")),
        ("gym/Pendulum-v1", ("gym", "Pendulum-v1")),
        ("gym/teb/Maze2D-square-a-v0", ("gym", "teb/Maze2D-square-a-v0")),
        ("gym/module:Own-v0", ("gym", "module:Own-v0")),
    ],
)
def test_ids_are_split_at_the_first_slash(env_id: str, expected: tuple[str, str]) -> None:
    assert split_id(env_id) == expected


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        (
            "maze2d/square-z",
            "unknown name 'square-z' in 'maze2d/square-z'; did you mean 'square-a'? known: square-a, ",
        ),
        ("maze2d/corridor", "did you mean 'corridor2'?"),
        ("maze2d/Square-D", "did you mean 'square-d'?"),
        ("maze2d/zzzz", "unknown name 'zzzz' in 'maze2d/zzzz'; known: square-a, "),
        (
            "maze/square-a",
            "unknown family 'maze' in 'maze/square-a'; did you mean 'maze2d'? known: maze2d, gym",
        ),
        (
            "square-b",
            "env: must look like family/name, got 'square-b'; did you mean 'maze2d/square-b'? families: ",
        ),
        ("maze2d/", "env: must look like family/name, got 'maze2d/'"),
        ("", "env: must look like family/name, got ''; families: maze2d, gym"),
    ],
)
def test_wrong_ids_are_refused_with_the_nearest_right_one(env_id: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        make_task(env_id)
    assert str(caught.value).startswith(message) or message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_config_reaches_the_environment() -> None:
    env = make_task("maze2d/corridor2", Maze2DConfig(action_limit=0.5)).env
    assert isinstance(env, Maze2D) and env.action_limit == 0.5


def test_config_of_another_family_is_refused() -> None:
    with pytest.raises(TypeError, match="config: 'maze2d/square-a' takes a Maze2DConfig, got GymConfig"):
        make_task("maze2d/square-a", GymConfig())


def test_unknown_maze_in_the_constructor() -> None:
    with pytest.raises(
        ValueError, match="maze: unknown name 'square-e'; did you mean 'square-a'\\? known: square-a"
    ):
        Maze2D("square-e")


def test_nearest_prefers_the_first_of_equals_and_gives_up_on_strangers() -> None:
    assert nearest("ab", ["abc", "abd"]) == "abc"
    assert nearest("xyz", ["abc"]) is None
