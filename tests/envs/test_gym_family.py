from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from teb.envs.gym import GymConfig, UnitBox, make_gym_task

VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float64)
UNIT = spaces.Box(-1.0, 1.0, (2,), np.float32)


class Recorder(gym.Env[Any, Any]):
    """Keeps the actions it receives and observes zeros."""

    closed: ClassVar[int] = 0

    def __init__(
        self, observation_space: gym.Space[Any] = VECTOR, action_space: gym.Space[Any] = UNIT
    ) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.actions: list[Any] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(self.observation_space.shape or (), self.observation_space.dtype), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.actions.append(action)
        obs = np.zeros(self.observation_space.shape or (), self.observation_space.dtype)
        return obs, np.float32(2.0), np.bool_(False), False, {"seen": True}

    def close(self) -> None:
        Recorder.closed += 1


@pytest.fixture
def register() -> Iterator[Any]:
    """Registers a `Recorder` with given spaces and forgets it after the test."""

    def do(**spaces_: gym.Space[Any]) -> str:
        gym.register("Recorder-v0", entry_point=lambda **_: Recorder(**spaces_), order_enforce=False)
        return "Recorder-v0"

    yield do
    gym.registry.pop("Recorder-v0", None)


def pendulum_episode(env: gym.Env[Any, Any], seed: int, actions: npt.NDArray[np.float32]) -> list[Any]:
    outcomes: list[Any] = [env.reset(seed=seed)[0].tolist()]
    for action in actions:
        obs, *rest = env.step(action)
        outcomes.append((obs.tolist(), *rest))
    return outcomes


def test_pendulum_becomes_a_task() -> None:
    env, meter, headline, _ = make_gym_task("Pendulum-v1", GymConfig())
    assert headline == "episode_return"
    assert meter.metrics() == {} and meter.record() == {} and meter.state() == {}
    meter.observe(env.reset(seed=0)[0], 0)
    meter.load({})
    assert env.action_space == spaces.Box(-1.0, 1.0, (1,), np.float32)
    obs, reward, terminated, truncated, _ = env.step(np.array([0.5], dtype=np.float32))
    assert obs.dtype == np.float32 and obs.shape == (3,) and obs in env.observation_space
    assert type(reward) is float and type(terminated) is bool and type(truncated) is bool


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version.*:UserWarning")
def test_pendulum_passes_the_checker() -> None:
    check_env(make_gym_task("Pendulum-v1", GymConfig()).env, skip_render_check=True)


def test_same_seed_and_actions_give_the_same_episode() -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (200, 1)).astype(np.float32)
    used = make_gym_task("Pendulum-v1", GymConfig()).env
    pendulum_episode(used, 8, actions[:13])
    first = pendulum_episode(used, 7, actions)
    assert first == pendulum_episode(make_gym_task("Pendulum-v1", GymConfig()).env, 7, actions)
    assert first != pendulum_episode(used, 8, actions)
    assert [step[3] for step in first[1:]] == [False] * 199 + [True]


def test_actions_are_rescaled_like_those_of_the_plain_environment() -> None:
    plain, env = gym.make("Pendulum-v1"), make_gym_task("Pendulum-v1", GymConfig()).env
    plain.reset(seed=3)
    env.reset(seed=3)
    for action in np.linspace(-1, 1, 9, dtype=np.float32):
        expected = plain.step(np.array([2.0 * action], dtype=np.float32))[:2]
        obs, reward, *_ = env.step(np.array([action]))
        np.testing.assert_array_equal(obs, expected[0])
        assert reward == expected[1]


@settings(deadline=None)
@given(
    bounds=st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)).map(sorted),
    unit=st.floats(-2, 2),
)
def test_rescaled_actions_stay_in_the_box_and_reach_its_bounds(bounds: list[float], unit: float) -> None:
    low, high = bounds
    box = spaces.Box(low, high, (1,), np.float64)
    inner = Recorder(action_space=box)
    env = UnitBox(inner)
    env.reset(seed=0)
    for value in (unit, -1.0, 1.0):
        env.step(np.array([value]))
    assert all(action in box for action in inner.actions)
    assert [float(action[0]) for action in inner.actions[1:]] == bounds


def test_infinite_actions_are_clipped(register: Any) -> None:
    env = make_gym_task(register(action_space=spaces.Box(0.0, 3.0, (2,))), GymConfig()).env
    env.reset(seed=0)
    env.step(np.array([np.inf, -np.inf]))
    inner = env.unwrapped
    assert isinstance(inner, Recorder) and inner.actions[0].tolist() == [3.0, 0.0]


def test_observations_are_cast_to_float32(register: Any) -> None:
    env = make_gym_task(register(observation_space=spaces.Box(0, 255, (4,), np.uint8)), GymConfig()).env
    assert env.reset(seed=0)[0].dtype == np.float32
    obs, reward, terminated, _, info = env.step(np.zeros(2, dtype=np.float32))
    assert obs.dtype == np.float32 and env.observation_space.dtype == np.float32
    assert type(reward) is float and terminated is False and info == {"seen": True}


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ([np.nan, 0.0], r"action: must not be NaN, got \[nan, 0.0\]"),
        ([0.0], r"action: must have shape \(2,\), got \(1,\)"),
    ],
)
def test_bad_actions_are_refused(register: Any, action: list[float], message: str) -> None:
    env = make_gym_task(register(), GymConfig()).env
    env.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        env.step(np.array(action))


@pytest.mark.parametrize(
    ("unfit", "found"),
    [
        ({"action_space": spaces.Discrete(2)}, "Discrete actions"),
        ({"action_space": spaces.Box(-1.0, 1.0, (2, 2))}, r"Box actions of shape \(2, 2\)"),
        ({"action_space": spaces.Box(-np.inf, 1.0, (2,))}, "Box actions without finite bounds"),
        ({"action_space": spaces.Box(0, 3, (2,), np.int64)}, "Box actions of type int64"),
        ({"observation_space": spaces.Dict(x=VECTOR)}, "Dict observations"),
        ({"observation_space": spaces.Discrete(5)}, "Discrete observations"),
        (
            {"observation_space": spaces.Box(0, 255, (8, 8, 3), np.uint8)},
            r"Box observations of shape \(8, 8, 3\)",
        ),
    ],
)
def test_unfit_spaces_are_refused_and_closed(register: Any, unfit: dict[str, Any], found: str) -> None:
    closed = Recorder.closed
    name = register(**unfit)
    with pytest.raises(ValueError, match=f"^gym/Recorder-v0 has {found}; supported are 1-D Box .*$"):
        make_gym_task(name, GymConfig())
    assert Recorder.closed == closed + 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("CartPole-v1", "gym/CartPole-v1 has Discrete actions; supported are"),
        ("Pendulumm-v1", "gym/Pendulumm-v1: unknown to Gymnasium; did you mean 'gym/Pendulum-v1'?"),
        ("pendulum-v1", "did you mean 'gym/Pendulum-v1'?"),
        ("Pendulum-v9", "gym/Pendulum-v9: unknown to Gymnasium; did you mean 'gym/Pendulum-v1'?"),
        ("qqq/zzz-v0", "gym/qqq/zzz-v0: unknown to Gymnasium; gymnasium.pprint_registry() lists all"),
        (
            "no_such_module:X-v0",
            "gym/no_such_module:X-v0 needs something that is not installed: No module named",
        ),
        ("not an id", "gym/not an id"),
    ],
)
def test_ids_that_cannot_be_built_are_refused_in_one_line(name: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        make_gym_task(name, GymConfig())
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_simulator_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(**_: Any) -> gym.Env[Any, Any]:
        raise gym.error.DependencyNotInstalled('Sim is not installed, run `pip install "sim"`. Or not.')

    monkeypatch.setitem(gym.registry, "Sim-v0", EnvSpec("Sim-v0", entry_point=missing))
    with pytest.raises(ValueError) as caught:
        make_gym_task("Sim-v0", GymConfig())
    expected = (
        'gym/Sim-v0 needs something that is not installed: Sim is not installed, run `pip install "sim"`'
    )
    assert str(caught.value) == expected


def test_episode_length_can_be_set() -> None:
    env = make_gym_task("Pendulum-v1", GymConfig(max_episode_steps=3)).env
    env.reset(seed=0)
    assert [env.step(np.zeros(1, dtype=np.float32))[3] for _ in range(3)] == [False, False, True]
    with pytest.raises(ValueError, match="max_episode_steps: must be at least 1 or none, got 0"):
        GymConfig(max_episode_steps=0)
