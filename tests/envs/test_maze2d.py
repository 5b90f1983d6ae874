from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from teb.envs.layouts import load_layouts
from teb.envs.maze2d import (
    HORIZON,
    Maze2D,
    Maze2DConfig,
    gymnasium_id,
    make_maze_task,
    move,
    move_all,
    register_mazes,
    sample_start,
    uniform_coverage,
)

LAYOUTS = load_layouts()
RIGHT = np.array([1.0, 0.0], dtype=np.float32)


@cache
def golden_arrays() -> dict[str, npt.NDArray[np.generic]]:
    with np.load(Path(__file__).parents[1] / "golden" / "maze_golden.npz") as stored:
        return {key: stored[key] for key in stored}


def golden(maze: str, field: str) -> npt.NDArray[np.float64]:
    key = "square_corridor2" if maze == "corridor2" else maze.replace("-", "_")
    return golden_arrays()[f"{key}__{field}"].astype(np.float64)


def episode(env: Maze2D, seed: int, actions: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.stack([env.reset(seed=seed)[0], *(env.step(action)[0] for action in actions)])


def random_actions(seed: int, count: int = HORIZON) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).uniform(-1, 1, (count, 2)).astype(np.float32)


class OfferedDraws:
    """Stands in for the generator of an environment and hands out given draws."""

    def __init__(self) -> None:
        self.draws: list[float] = []

    def random(self) -> float:
        return self.draws.pop(0)


@pytest.mark.parametrize("maze", LAYOUTS)
def test_moves_match_all_golden_rows(maze: str) -> None:
    fields = (golden(maze, field) for field in ("state", "action", "uniform"))
    positions, hits = move_all(LAYOUTS[maze], *fields)
    assert len(positions) == 3000
    np.testing.assert_allclose(positions, golden(maze, "next_state"), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(hits, golden(maze, "n_uniform"))


@pytest.mark.parametrize("maze", LAYOUTS)
def test_moves_match_golden_rows_bit_for_bit(maze: str) -> None:
    positions, _ = move_all(LAYOUTS[maze], *(golden(maze, field) for field in ("state", "action", "uniform")))
    assert positions.dtype == np.float64
    assert np.array_equal(positions, golden(maze, "next_state"))


@pytest.mark.parametrize("maze", LAYOUTS)
def test_env_matches_golden_rollouts_bit_for_bit(maze: str) -> None:
    env = Maze2D(maze, action_limit=1.0)
    states, actions = golden(maze, "roll_state"), golden(maze, "roll_action")
    uniforms, counts = golden(maze, "roll_uniform"), golden(maze, "roll_n_uniform")
    assert np.abs(actions).max() <= 1.0, "else the environment would clip them"
    for e in range(len(states)):
        env.reset(seed=0)
        env._store(*states[e, 0])
        offered = OfferedDraws()
        env._np_random = offered  # pyright: ignore[reportAttributeAccessIssue]
        for t in range(HORIZON):
            offered.draws = uniforms[e, t].tolist()
            obs, *_ = env.step(actions[e, t])
            assert np.array_equal(obs, states[e, t + 1].astype(np.float32))
            assert 3 - len(offered.draws) == counts[e, t]


def test_move_all_refuses_arrays_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="must have shapes"):
        move_all(LAYOUTS["square-a"], np.zeros((3, 2)), np.zeros((2, 2)), np.zeros((3, 2)))


def test_move_all_takes_no_points() -> None:
    positions, hits = move_all(LAYOUTS["square-a"], np.zeros((0, 2)), np.zeros((0, 2)), np.zeros((0, 3)))
    assert positions.shape == (0, 2) and hits.shape == (0,)


def test_a_wall_cuts_pushes_back_and_lets_slide() -> None:
    x, y, hits = move(LAYOUTS["corridor2"], 0.0, 0.0, 0.25, 1.0, lambda: 0.5)
    assert (x, y, hits) == (0.25, 0.5 - 0.005, 1)


@settings(deadline=None)
@given(
    maze=st.sampled_from(sorted(LAYOUTS)),
    start=st.integers(0, 2**32),
    shift=st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
    u=st.floats(0, 1, exclude_max=True),
)
def test_a_move_hits_each_axis_at_most_once_and_never_overshoots(
    maze: str, start: int, shift: tuple[float, float], u: float
) -> None:
    layout = LAYOUTS[maze]
    x, y = sample_start(layout, np.random.default_rng(start))
    x1, y1, hits = move(layout, x, y, *shift, draw=lambda: u)
    assert hits <= 2
    for before, after, wanted in ((x, x1, shift[0]), (y, y1, shift[1])):
        assert min(0.0, wanted) - 0.01 - 1e-12 <= after - before <= max(0.0, wanted) + 0.01 + 1e-12


@pytest.mark.parametrize("maze", LAYOUTS)
def test_starts_lie_in_the_start_boxes_and_fill_them(maze: str) -> None:
    env = Maze2D(maze)
    env.reset(seed=3)
    starts = np.array([env.reset()[0] for _ in range(2000)], dtype=np.float64)
    ((xmin, xmax), (ymin, ymax)), *others = LAYOUTS[maze].start_boxes
    assert not others
    low, high = np.array([xmin, ymin]), np.array([xmax, ymax])
    assert (starts >= low - 1e-6).all() and (starts <= high + 1e-6).all()
    share = (starts - low) / (high - low)
    assert (share.min(axis=0) < 0.01).all() and (share.max(axis=0) > 0.99).all()
    np.testing.assert_allclose(share.mean(axis=0), 0.5, atol=0.03)


def test_the_start_probe_is_diagonal() -> None:
    """In Square-d it also rejects points near two corners of the box, where only a neighbour has a wall."""
    rng, layout = np.random.default_rng(0), LAYOUTS["square-d"]
    starts = np.array([sample_start(layout, rng) for _ in range(20_000)])
    near_corner = (np.abs(starts[:, 0]) > 0.45) & (starts[:, 1] < -0.45)
    uniform_share = 2 * 0.05 * 0.05 / (1.0 * 0.95)
    assert near_corner.mean() < 0.25 * uniform_share


def test_episode_is_50_steps_by_truncation_without_reward() -> None:
    env = Maze2D("square-a")
    env.reset(seed=0)
    outcomes = [env.step(action)[1:4] for action in random_actions(0)]
    assert outcomes == [(0.0, False, False)] * 49 + [(0.0, False, True)]


def test_step_after_truncation_is_refused_until_reset() -> None:
    env = Maze2D("square-a")
    episode(env, 0, random_actions(0))
    with pytest.raises(gym.error.ResetNeeded, match=r"call reset\(\) before step\(\)"):
        env.step(RIGHT)
    env.reset()
    env.step(RIGHT)


def test_step_before_the_first_reset_is_refused() -> None:
    with pytest.raises(gym.error.ResetNeeded, match=r"call reset\(\) before step\(\)"):
        Maze2D("square-a").step(RIGHT)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ([np.nan, 0.0], r"action: must not be NaN, got \[nan, 0.0\]"),
        ([0.0, np.nan], r"action: must not be NaN, got \[0.0, nan\]"),
        ([0.0], r"action: must have shape \(2,\), got \(1,\)"),
        ([[0.0, 0.0]], r"action: must have shape \(2,\), got \(1, 2\)"),
    ],
)
def test_bad_actions_are_refused(action: list[float], message: str) -> None:
    env = Maze2D("square-a")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        env.step(action)


def test_a_refused_action_leaves_the_episode_as_it_was() -> None:
    env, actions = Maze2D("square-a"), random_actions(1)
    expected = episode(env, 5, actions)
    env.reset(seed=5)
    with pytest.raises(ValueError):
        env.step([np.nan, 0.0])
    np.testing.assert_array_equal([env.step(action)[0] for action in actions], expected[1:])


@pytest.mark.parametrize("limit", [0.95, 1.0, 0.25])
def test_action_limit_scales_clipped_actions(limit: float) -> None:
    env = Maze2D("corridor2", action_limit=limit)
    start, _ = env.reset(seed=0)
    obs, *_ = env.step([7.0, 0.0])
    assert obs[0] == np.float32(float(start[0]) + limit) and obs[1] == start[1]
    hall = Maze2D("square-bottleneck", action_limit=limit)
    start, _ = hall.reset(seed=0)
    obs, *_ = hall.step([0.0, np.inf])
    assert obs[1] == np.float32(float(start[1]) + limit) and obs[0] == start[0]


@pytest.mark.parametrize("limit", [-1.0, 0.0, 1.5, float("nan")])
def test_action_limit_is_validated(limit: float) -> None:
    with pytest.raises(ValueError, match=rf"action_limit: must lie in \(0, 1\], got {limit}"):
        Maze2DConfig(action_limit=limit)
    with pytest.raises(ValueError, match="action_limit: must lie in"):
        Maze2D("square-a", action_limit=limit)


def test_task_passes_its_config_on() -> None:
    task = make_maze_task("square-b", Maze2DConfig(action_limit=0.5))
    assert isinstance(task.env, Maze2D) and task.env.action_limit == 0.5
    assert task.env.layout is LAYOUTS["square-b"]
    assert task.headline in task.meter.metrics()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31 - 1))
def test_same_seed_and_actions_give_the_same_episode(seed: int) -> None:
    used, actions = Maze2D("square-c"), random_actions(seed)
    episode(used, seed + 1, actions[:7])
    fresh = episode(Maze2D("square-c"), seed, actions)
    assert fresh.dtype == np.float32
    np.testing.assert_array_equal(episode(used, seed, actions), fresh)


def test_different_seeds_give_different_starts_and_walls() -> None:
    env = Maze2D("corridor2")
    starts = {tuple(env.reset(seed=seed)[0].tolist()) for seed in range(50)}
    assert len(starts) == 50
    upward = np.tile(np.array([0.0, 1.0], dtype=np.float32), (5, 1))
    heights = [episode(env, seed, upward)[-1, 1] for seed in range(50)]
    assert len(set(heights)) > 40 and min(heights) >= np.float32(0.49) and max(heights) <= 0.5


def test_observations_are_not_views_of_the_state() -> None:
    env = Maze2D("square-a")
    obs, _ = env.reset(seed=0)
    start = obs.copy()
    obs[:] = 100.0
    after, *_ = env.step([0.0, 0.0])
    np.testing.assert_array_equal(after, start)


@pytest.mark.parametrize("maze", LAYOUTS)
def test_registered_env_passes_the_checker(maze: str) -> None:
    env = gym.make(gymnasium_id(maze), action_limit=1.0).unwrapped
    assert isinstance(env, Maze2D) and env.layout.name == maze and env.action_limit == 1.0
    with warnings.catch_warnings():
        # Positions are never clamped, so the observation space is rightly without bounds.
        warnings.filterwarnings(
            "ignore", message=".*Box observation space (minimum|maximum) value is -?infinity.*"
        )
        # The environment has nothing to render.
        warnings.filterwarnings("ignore", message=".*not able to test alternative render modes.*")
        check_env(env)


def test_registering_twice_is_silent() -> None:
    register_mazes()
    assert sum(key.startswith("teb/Maze2D-") for key in gym.registry) == len(LAYOUTS) == 9


@pytest.mark.parametrize(
    ("maze", "early", "late"),
    [("square-a", 0.247, 0.737), ("corridor2", 0.319, 0.801), ("square-d", 0.247, 0.836)],
)
def test_uniform_coverage_matches_the_measured_baseline(maze: str, early: float, late: float) -> None:
    coverage = uniform_coverage(maze, 100_000, seed=1, at=(4000,))
    assert list(coverage) == [4000, 100_000]
    assert coverage[4000] == pytest.approx(early, abs=0.03)
    assert coverage[100_000] == pytest.approx(late, abs=0.03)


def test_uniform_coverage_depends_on_seed_and_limit_alone() -> None:
    first = uniform_coverage("square-a", 1030, seed=1)
    assert first == uniform_coverage("square-a", 1030, seed=1)
    assert first != uniform_coverage("square-a", 1030, seed=2)
    assert first != uniform_coverage("square-a", 1030, seed=1, action_limit=1.0)


# --- a start that is asked for ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [(0.0, 0.0), [0.25, -3.4], np.array([4.3, 0.3])])
def test_an_episode_starts_where_it_is_asked_to(start: npt.ArrayLike) -> None:
    env = Maze2D("square-a")
    obs, _ = env.reset(seed=0, options={"start": start})
    assert np.array_equal(obs, np.asarray(start, np.float32))
    after, *_ = env.step(np.array([0.01, -0.01], np.float32))
    assert np.allclose(after, obs + 0.95 * np.array([0.01, -0.01]), atol=1e-6)


def test_walls_push_back_as_the_seed_says_whatever_the_start() -> None:
    env, actions = Maze2D("square-a"), np.ones((HORIZON, 2), np.float32)

    def path(seed: int) -> npt.NDArray[np.float32]:
        first = env.reset(seed=seed, options={"start": (0.0, 0.0)})[0]
        return np.stack([first, *(env.step(action)[0] for action in actions)])

    assert np.array_equal(path(1), path(1))
    assert not np.array_equal(path(1), path(2))


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ((9.0, 9.0), r"start: \(9, 9\) lies in no cell of square-a"),
        ((1.0, 0.0), r"lies in no cell of square-a, whose cells .* within x -0.5 to 4.5 and y -4.5 to 0.5$"),
        ((0.5, 0.0), r"start: \(0.5, 0\) lies in a wall of square-a$"),
        ((0.0, 0.5), r"start: \(0, 0.5\) lies in a wall"),
        ((0.5 - 1e-9, 0.0), "lies in a wall"),
        ((0.0,), "start: must be two finite numbers"),
        ((np.nan, 0.0), "start: must be two finite numbers"),
    ],
)
def test_a_start_outside_or_in_a_wall_is_refused(start: tuple[float, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Maze2D("square-a").reset(options={"start": start})


@pytest.mark.parametrize("maze", LAYOUTS)
def test_every_start_that_is_drawn_may_also_be_asked_for(maze: str) -> None:
    env = Maze2D(maze)
    env.reset(seed=0)
    for _ in range(200):
        obs, _ = env.reset()
        assert np.array_equal(env.reset(options={"start": obs})[0], obs)
