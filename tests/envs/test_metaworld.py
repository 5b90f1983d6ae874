"""The manipulation tasks: goals, time, reward and success without pictures, then the pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest
from gymnasium.utils.env_checker import check_env

from teb.envs import FAMILIES, make_task
from teb.envs.metaworld import (
    TASKS,
    MetaWorld,
    MetaWorldConfig,
    MetaWorldPixels,
    gymnasium_id,
    paid,
)
from teb.envs.rendering import load_mujoco
from teb.envs.success import SuccessMeter

PAPER = TASKS[:6]
FAST = MetaWorldConfig(render_quality="fast")
NOTHING = np.zeros(4, np.float32)

metaworld = pytest.mark.metaworld
drawn = pytest.mark.rendering


def actions(count: int, seed: int = 0) -> list[npt.NDArray[np.float32]]:
    return list(np.random.default_rng(seed).uniform(-1.0, 1.0, (count, 4)).astype(np.float32))


def episode(env: MetaWorld, seed: int, played: Sequence[npt.NDArray[np.float32]]) -> list[Any]:
    """All that the simulator holds after the reset and after each action, with what the steps said."""
    outcomes: list[Any] = [(env.reset(seed=seed)[0].tolist(), *inside(env))]
    for action in played:
        obs, reward, _, truncated, info = env.step(action)
        outcomes.append((obs.tolist(), reward, truncated, info, *inside(env)))
    return outcomes


def inside(env: MetaWorld) -> list[Any]:
    data = env.package.data
    return [getattr(data, name).tolist() for name in ("qpos", "qvel", "site_xpos", "xpos")]


@pytest.fixture(scope="module")
def hand() -> MetaWorld:
    """A task of objects that are pushed around, as numbers."""
    return MetaWorld("coffee-push")


# --- names and options ------------------------------------------------------------------------------------------------


def test_the_six_tasks_of_the_paper_come_first() -> None:
    assert set(PAPER) == {
        "pick-out-of-hole",
        "pick-place",
        "push-back",
        "box-close",
        "stick-pull",
        "coffee-push",
    }
    assert FAMILIES["metaworld"].names == TASKS and len(set(TASKS)) == len(TASKS)


@metaworld
def test_every_task_of_the_package_is_there_and_registered() -> None:
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    assert {f"{task}-v3" for task in TASKS} == set(ALL_V3_ENVIRONMENTS)
    assert {gymnasium_id(task) for task in TASKS} <= set(gym.registry)


def test_without_the_package_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("teb.envs.metaworld.find_spec", lambda name: None)
    with pytest.raises(ValueError) as caught:
        make_task("metaworld/box-close")
    assert str(caught.value) == 'metaworld/box-close needs Meta-World: pip install "teb[metaworld]"'


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"reward_mode": "shaped"},
            "reward_mode: must be one of sparse, sparse_cost, dense_scaled, dense, got",
        ),
        ({"render_quality": "ultra"}, "render_quality: must be one of full, no_shadows, fast, got 'ultra'"),
        ({"horizon": 0}, "horizon: must be above 0, got 0"),
        ({"action_repeat": 0}, "action_repeat: must be above 0, got 0"),
        ({"frame_stack": 0}, "frame_stack: must be above 0, got 0"),
        ({"distract_scale": 0.4}, r"distract_scale: must lie in \[0, 0.3\], got 0.4"),
        ({"distract_scale": 0.0}, "distract_scale: must be above 0, got 0.0"),
        ({"distract_seed": -1}, r"distract_seed: must lie in \[0, "),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MetaWorldConfig(**options)


def test_a_wrong_option_of_the_registered_id_is_refused_with_the_nearest_right_one() -> None:
    with pytest.raises(ValueError, match="unknown option 'rewardmode'; did you mean 'reward_mode'?"):
        gym.make(gymnasium_id("reach"), rewardmode="dense")


# --- reward and success -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("sparse", (0.0, 1.0)),
        ("sparse_cost", (-1.0, 0.0)),
        ("dense_scaled", (0.4, 0.4)),
        ("dense", (8.0, 8.0)),
    ],
)
def test_reward_modes(mode: str, expected: tuple[float, float]) -> None:
    assert tuple(paid(mode, [3.0, 5.0], success) for success in (False, True)) == pytest.approx(expected)


def told(env: MetaWorld, monkeypatch: pytest.MonkeyPatch, outcomes: Sequence[tuple[float, float]]) -> None:
    """Let the package say given dense rewards and successes, one per simulator step."""
    left = iter(outcomes)

    def step(action: np.ndarray) -> Any:
        dense, success = next(left)
        return np.zeros(39), dense, False, False, {"success": success}

    monkeypatch.setattr(env.package, "step", step)


@metaworld
def test_success_is_that_of_any_repeat_and_the_episode_remembers_it(
    hand: MetaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand.reset(seed=0)
    told(hand, monkeypatch, [(1, 0), (2, 0), (3, 1.0), (4, 0), (5, 1.0), (6, 1.0), (7, 0), (8, 0)])
    outcomes = [hand.step(NOTHING) for _ in range(4)]
    assert [reward for _, reward, *_ in outcomes] == [0.0, 1.0, 1.0, 0.0]
    assert [info["success_now"] for *_, info in outcomes] == [False, True, True, False]
    assert [info["success"] for *_, info in outcomes] == [False, True, True, True]
    assert not any(terminated for _, _, terminated, *_ in outcomes)
    monkeypatch.undo()
    hand.reset(seed=0)
    assert hand.step(NOTHING)[-1] == {"success": False, "success_now": False}


@metaworld
def test_dense_rewards_are_those_of_the_package() -> None:
    sums, means = (
        MetaWorld("push-back", MetaWorldConfig(reward_mode=mode)) for mode in ("dense", "dense_scaled")
    )
    twin = MetaWorld("push-back")
    for env in (sums, means, twin):
        env.reset(seed=5)
    for action in actions(20):
        dense = [float(twin.package.step(action)[1]) for _ in range(2)]
        assert sums.step(action)[1] == sum(dense) > 0
        assert means.step(action)[1] == pytest.approx(sum(dense) / 20)


@metaworld
@pytest.mark.filterwarnings("ignore:Constant.s. may be too high:UserWarning")
@pytest.mark.parametrize(
    ("task", "episodes", "least"),
    [
        pytest.param("pick-place", 2, 1.0),
        pytest.param("pick-out-of-hole", 20, 0.9, marks=pytest.mark.slow),
        pytest.param("pick-place", 20, 0.9, marks=pytest.mark.slow),
        pytest.param("coffee-push", 20, 0.9, marks=pytest.mark.slow),
        pytest.param("push-back", 20, 0.7, marks=pytest.mark.slow),
        pytest.param("box-close", 20, 0.7, marks=pytest.mark.slow),
        pytest.param("stick-pull", 20, 0.7, marks=pytest.mark.slow),
    ],
)
def test_the_scripted_policies_of_the_package_succeed(task: str, episodes: int, least: float) -> None:
    from metaworld.policies import ENV_POLICY_MAP

    env, meter = MetaWorld(task), SuccessMeter()
    outcomes: list[float] = []
    for seed in range(episodes):
        policy: Any = ENV_POLICY_MAP[f"{task}-v3"]()
        obs, _ = env.reset(seed=seed)
        truncated, info, paid_at_all = False, {}, False
        while not truncated:
            obs, reward, _, truncated, info = env.step(policy.get_action(obs))
            assert reward in (0.0, 1.0)
            paid_at_all = paid_at_all or reward == 1.0
        assert paid_at_all == info["success"]
        outcomes.append(meter.observe_step(info, True)["success"])
    assert np.mean(outcomes) >= least


# --- time and seeds ---------------------------------------------------------------------------------------------------


@metaworld
@pytest.mark.parametrize(("horizon", "repeat", "decisions"), [(500, 2, 250), (9, 2, 5), (1000, 4, 250)])
def test_an_episode_is_truncated_at_its_horizon_and_goes_no_further(
    horizon: int, repeat: int, decisions: int
) -> None:
    env = MetaWorld("reach", MetaWorldConfig(horizon=horizon, action_repeat=repeat))
    with pytest.raises(gym.error.ResetNeeded, match="no episode has begun"):
        env.step(NOTHING)
    env.reset(seed=0)
    ends = [env.step(NOTHING)[2:4] for _ in range(decisions)]
    assert ends == [(False, False)] * (decisions - 1) + [(False, True)]
    assert env.package.curr_path_length == horizon
    message = rf"metaworld/reach: call reset\(\) before step\(\); .* its {horizon} simulator steps are over"
    with pytest.raises(gym.error.ResetNeeded, match=message):
        env.step(NOTHING)
    env.reset()
    env.step(NOTHING)


@metaworld
def test_the_seed_decides_an_episode_whatever_was_played_before(hand: MetaWorld) -> None:
    played = actions(12)
    episode(hand, 8, played[:5])
    first = episode(hand, 7, played)
    assert first == episode(MetaWorld("coffee-push"), 7, played)
    np.random.default_rng(0)
    np.random.seed(3)  # the package would take its goals from here
    assert first == episode(hand, 7, played)
    other = episode(hand, 8, played)
    assert all(mine != others for mine, others in zip(first, other, strict=True))


@metaworld
def test_goals_differ_from_episode_to_episode_and_repeat_with_the_seed(hand: MetaWorld) -> None:
    goals = [hand.reset(seed=4 if at == 0 else None)[0][-3:].tolist() for at in range(4)]
    assert len({tuple(goal) for goal in goals}) == 4 and all(any(goal) for goal in goals)
    assert goals == [hand.reset(seed=4 if at == 0 else None)[0][-3:].tolist() for at in range(4)]


@metaworld
@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_every_task_repeats_its_episodes(task: str) -> None:
    used, fresh = MetaWorld(task), MetaWorld(task)
    episode(used, 3, actions(30, seed=1))
    assert episode(used, 7, actions(30)) == episode(fresh, 7, actions(30))


@metaworld
@pytest.mark.parametrize(
    ("action", "message"),
    [
        ([0.0] * 3, r"action: must have shape \(4,\), got \(3,\)"),
        ([0.0, np.nan, 0.0, 0.0], "action: must not be NaN"),
    ],
)
def test_bad_actions_are_refused(hand: MetaWorld, action: list[float], message: str) -> None:
    hand.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        hand.step(np.array(action))


@metaworld
def test_actions_are_clipped_before_the_package_sees_them(
    hand: MetaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand.reset(seed=0)
    seen: list[Any] = []
    step = hand.package.step
    monkeypatch.setattr(hand.package, "step", lambda action: seen.append(action.tolist()) or step(action))
    hand.step(np.array([0.5, -9.0, np.inf, 4.0]))
    assert seen == [[0.5, -1.0, 1.0, 1.0]] * 2


# --- pictures ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pixels() -> Iterator[MetaWorldPixels]:
    """A task whose goal moves many pixels, drawn fast."""
    env = MetaWorldPixels(MetaWorld("coffee-push", FAST))
    yield env
    env.close()


def film(env: MetaWorldPixels, seed: int, played: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [env.reset(seed=seed)[0], *(env.step(action)[0] for action in played)]


@drawn
def test_a_frame_is_bytes_with_channels_first(pixels: MetaWorldPixels) -> None:
    for frame in film(pixels, 0, actions(2)):
        assert frame.shape == (3, 84, 84) and frame.dtype == np.uint8 and frame in pixels.observation_space


@drawn
def test_the_family_delivers_single_frames_and_says_how_many_to_stack() -> None:
    env, meter, headline, frame_stack = make_task("metaworld/reach", FAST)
    assert isinstance(env, MetaWorldPixels) and frame_stack == 3
    assert headline == "success" and headline in meter.metrics()
    env.close()


@drawn
def test_the_seed_decides_all_pictures(pixels: MetaWorldPixels) -> None:
    played = actions(6)
    film(pixels, 2, played[:3])
    first = film(pixels, 1, played)
    again = film(pixels, 1, played)
    assert all(np.array_equal(*pair) for pair in zip(first, again, strict=True))
    assert all((mine != others).any() for mine, others in zip(first, film(pixels, 2, played), strict=True))


@drawn
def test_frames_stay_as_they_are_when_the_episode_goes_on(pixels: MetaWorldPixels) -> None:
    frames = film(pixels, 1, [])
    kept = frames[0].copy()
    for action in actions(3):
        pixels.step(action)
    np.testing.assert_array_equal(frames[0], kept)


@drawn
def test_the_first_picture_already_shows_the_goal_of_its_episode(pixels: MetaWorldPixels) -> None:
    for seed in range(3):
        first, _ = pixels.reset(seed=seed)
        task = pixels.unwrapped
        assert isinstance(task, MetaWorld)
        load_mujoco().mj_forward(task.package.model, task.package.data)
        np.testing.assert_array_equal(pixels._frame(), first)


@drawn
def test_two_tasks_do_not_disturb_each_other(pixels: MetaWorldPixels) -> None:
    played = actions(4)
    alone = film(pixels, 1, played)
    other = MetaWorldPixels(MetaWorld("box-close", FAST))
    try:
        other.reset(seed=1)
        woven = [pixels.reset(seed=1)[0]]
        for action in played:
            other.step(action)
            woven.append(pixels.step(action)[0])
    finally:
        other.close()
    np.testing.assert_array_equal(woven, alone)
    np.testing.assert_array_equal(film(pixels, 1, played), alone)


@drawn
@pytest.mark.parametrize("task", PAPER)
def test_pictures_are_upright_with_the_robot_on_the_right(task: str) -> None:
    env = MetaWorldPixels(MetaWorld(task, MetaWorldConfig(render_quality="full")))
    frame = env.reset(seed=0)[0].astype(np.float64)
    env.close()
    wall, table = frame[:, :8, :40].reshape(3, -1), frame[:, -8:, :40].reshape(3, -1)
    np.testing.assert_allclose(wall.mean(axis=1), (127, 126, 122), atol=1.0)
    assert wall.std(axis=1).max() < 3.5
    np.testing.assert_allclose(table.mean(axis=1), (131, 102, 84), atol=6.0)
    red = (frame[0] > 80) & (frame[1] < 40) & (frame[2] < 40)
    columns = np.nonzero(red)[1]
    assert red.mean() > 0.05 and np.median(columns) > 50


@drawn
@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version.*:UserWarning")
def test_the_registered_id_stacks_frames_and_passes_the_checker() -> None:
    env = gym.make(gymnasium_id("coffee-push"), render_quality="fast", horizon=8)
    assert env.observation_space == gym.spaces.Box(0, 255, (9, 84, 84), np.uint8)
    obs, _ = env.reset(seed=1)
    assert all(np.array_equal(obs[:3], obs[at : at + 3]) for at in (3, 6))
    obs, *_ = env.step(actions(1)[0])
    np.testing.assert_array_equal(obs[:3], obs[3:6])
    assert (obs[6:] != obs[3:6]).any()
    check_env(env, skip_render_check=True)
    env.close()
