from __future__ import annotations

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from teb.envs import make_task
from teb.envs.probe import PROBES, SIDE, ProbeConfig, ProbeEnv


def play(name: str, seed: int, actions: np.ndarray, **options: float) -> list[tuple]:
    env = ProbeEnv(PROBES[name], ProbeConfig(**options))  # pyright: ignore[reportArgumentType]
    frame, _ = env.reset(seed=seed)
    return [(frame,), *(env.step(action) for action in actions)]


def towards(name: str, steps: int) -> np.ndarray:
    return np.tile(np.sign(np.subtract(PROBES[name].goal, PROBES[name].start)), (steps, 1))


@pytest.mark.parametrize("name", PROBES)
def test_it_is_a_gymnasium_environment(name: str) -> None:
    check_env(make_task(f"probe/{name}").env.unwrapped, skip_render_check=True)


def test_an_episode_follows_from_its_seed_and_actions() -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (50, 2))
    one, same, other = (play("far", seed, actions) for seed in (3, 3, 4))
    assert all(np.array_equal(a[0], b[0]) and a[1:] == b[1:] for a, b in zip(one, same, strict=True))
    assert not np.array_equal(one[0][0], other[0][0])


def test_frames_are_bytes_with_channels_first_and_the_square_moves() -> None:
    steps = play("near", 0, np.tile([1.0, 0.0], (3, 1)), distraction=0.0)
    columns = []
    for frame, *_ in steps:
        assert frame.shape == (3, SIDE, SIDE) and frame.dtype == np.uint8
        white = np.argwhere(frame[0] == 255)
        assert len(white) == 25 and set(np.unique(frame)) == {0, 255}
        columns.append(white[:, 1].min())
    assert columns == sorted(set(columns))


def test_the_background_moves_by_itself_and_says_nothing_of_the_goal() -> None:
    still = play("far", 1, np.zeros((5, 2)))
    frames = [frame for frame, *_ in still]
    assert all(not np.array_equal(a, b) for a, b in zip(frames, frames[1:], strict=False))
    assert max(frame[frame < 255].max() for frame in frames) <= 0.6 * 255


@pytest.mark.parametrize("name", PROBES)
def test_reward_is_one_exactly_within_reach_and_so_is_success(name: str) -> None:
    steps = play(name, 0, towards(name, 20))[1:]
    rewards = [reward for _, reward, *_ in steps]
    assert set(rewards) == {0.0, 1.0}
    assert [info["success"] for *_, info in steps] == [reward == 1.0 for reward in rewards]
    assert not any(terminated for _, _, terminated, *_ in steps)


def test_episodes_end_by_truncation_at_the_horizon() -> None:
    steps = play("far", 0, np.zeros((7, 2)), horizon=7)[1:]
    assert [truncated for *_, truncated, _ in steps] == [False] * 6 + [True]


def test_chance_finds_the_near_goal_often_and_the_far_one_hardly_ever() -> None:
    found = {}
    for name in PROBES:
        rng = np.random.default_rng(0)
        played = (play(name, seed, rng.uniform(-1, 1, (50, 2))) for seed in range(60))
        found[name] = np.mean([any(step[4]["success"] for step in steps[1:]) for steps in played])
    assert found["near"] > 0.25 and found["far"] < 0.1


def test_the_task_is_measured_by_success_and_stacks_frames() -> None:
    task = make_task("probe/far", ProbeConfig(frame_stack=2))
    assert (task.headline, task.frame_stack) == ("success", 2)
    assert task.headline in task.meter.metrics()


@pytest.mark.parametrize(("field", "value"), [("horizon", 0), ("distraction", 1.5), ("frame_stack", -1)])
def test_impossible_options_are_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"^{field}: .*got {value}"):
        ProbeConfig(**{field: value})  # pyright: ignore[reportArgumentType]
