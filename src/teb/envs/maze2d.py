"""Maze2D: a point moves in a maze without reward (Campos et al. 2020).

The motion rule is written once, for one point, in plain Python floats: they are the same IEEE doubles as
numpy's float64, without its cost per call, which for single points is most of the time. `move_all` applies it
to arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import copysign, inf
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from teb.envs.coverage import CoverageMeter
from teb.envs.layouts import Layout, WallKeys, load_layouts
from teb.envs.naming import did_you_mean
from teb.envs.protocol import Task

HORIZON = 50
"""Environment steps per episode, always ended by truncation."""
REPULSION = 0.01
"""A wall pushes the point back by a random distance up to this."""
START_MARGIN = 0.05
"""Length per axis of the probe that keeps starts away from walls."""


@dataclass(frozen=True)
class Maze2DConfig:
    """Options of the maze family."""

    action_limit: float = 0.95
    """Displacement per step and axis at action 1 (Campos et al. 2020; URLB's convention is 1.0)."""

    def __post_init__(self) -> None:
        """Refuse a limit that the dynamics were never meant for."""
        if not 0.0 < self.action_limit <= 1.0:
            raise ValueError(f"action_limit: must lie in (0, 1], got {self.action_limit}")


def move(
    layout: Layout, x: float, y: float, dx: float, dy: float, draw: Callable[[], float]
) -> tuple[float, float, int]:
    """Move the point (x, y) by (dx, dy) among the walls (Campos et al. 2020).

    The move is cut at the first wall, set back from it by 0.01 * draw(), and goes on with what is left of the
    other component. Hits at equal fractions of the way count in the order down, left, right, up. The
    published code also limits the number of hits; that limit is never reached, as a second hit leaves
    nothing to move.

    Returns:
        The new position, and the number of hits, each of which called `draw` once.
    """
    hits = 0
    while True:
        rx = _hit_fraction(layout.vertical, x, y, dx, dy)
        ry = _hit_fraction(layout.horizontal, y, x, dy, dx)
        if rx == ry == inf:
            return x + dx, y + dy, hits
        hits += 1
        push = abs(draw() * REPULSION)
        if ry < rx or (ry == rx and dy < 0.0):
            x, y = x + ry * dx, y + (ry * dy - copysign(push, dy))
            dx, dy = (1.0 - ry) * dx, 0.0
        else:
            x, y = x + (rx * dx - copysign(push, dx)), y + rx * dy
            dx, dy = 0.0, (1.0 - rx) * dy


def _hit_fraction(walls: WallKeys, p: float, q: float, dp: float, dq: float) -> float:
    """The fraction of the way from (p, q) by (dp, dq) at which a wall across the p axis is hit, or infinity.

    Halves round to even and the wall looked up is that of the cell just before the crossing, so a point on a
    grid line or a move close to a corner can pass a wall. Both belong to the published dynamics and are kept.
    """
    cell = round(p)
    sign = 1 if dp > 0.0 else -1
    for crossing in range(abs(round(p + dp) - cell)):
        r = (cell + sign * (crossing + 0.5) - p) / dp
        before = 0.999 * r
        if (round(p + before * dp) + 0.5 * sign, round(q + before * dq)) in walls:
            return r
    return inf


def move_all(
    layout: Layout,
    positions: npt.NDArray[np.float64],
    displacements: npt.NDArray[np.float64],
    uniforms: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Move points [N, 2] by displacements [N, 2], with uniform draws [N, at least 2] offered in order.

    Returns:
        The new positions [N, 2] and how many draws each move consumed [N].
    """
    count = len(positions)
    if positions.shape != (count, 2) or displacements.shape != (count, 2) or len(uniforms) != count:
        raise ValueError(
            "positions, displacements, uniforms: must have shapes [N, 2], [N, 2] and [N, 2 or more], "
            f"got {positions.shape}, {displacements.shape} and {uniforms.shape}"
        )
    rows = zip(positions.tolist(), displacements.tolist(), uniforms.tolist(), strict=True)
    moved = [move(layout, x, y, dx, dy, iter(draws).__next__) for (x, y), (dx, dy), draws in rows]
    table = np.array(moved, dtype=np.float64).reshape(count, 3)
    return table[:, :2], table[:, 2].astype(np.int64)


def sample_start(layout: Layout, rng: np.random.Generator) -> tuple[float, float]:
    """Draw a start: uniform in a start cell, unless a diagonal probe away from its centre hits a wall."""
    i, j = layout.start_cells[int(rng.integers(len(layout.start_cells)))]
    while True:
        sx, sy = rng.random() - 0.5, rng.random() - 0.5
        probe = copysign(START_MARGIN, sx), copysign(START_MARGIN, sy)
        if move(layout, i + sx, j + sy, *probe, draw=lambda: 0.0)[2] == 0:
            return i + sx, j + sy


def given_start(layout: Layout, start: Sequence[float]) -> tuple[float, float]:
    """The start that was asked for, if it lies in a cell and in no wall."""
    point = np.asarray(start, dtype=np.float32)  # as positions are kept
    if point.shape != (2,) or not np.isfinite(point).all():
        raise ValueError(f"start: must be two finite numbers, got {start}")
    x, y = point.tolist()
    (left, right), (bottom, top) = layout.bounds
    if (round(x), round(y)) not in layout.cells:
        raise ValueError(
            f"start: ({x:g}, {y:g}) lies in no cell of {layout.name}, whose cells are the unit squares around "
            f"whole numbers within x {left:g} to {right:g} and y {bottom:g} to {top:g}"
        )
    if (x, round(y)) in layout.vertical or (y, round(x)) in layout.horizontal:
        raise ValueError(f"start: ({x:g}, {y:g}) lies in a wall of {layout.name}")
    return x, y


class Maze2D(gym.Env[np.ndarray, np.ndarray]):
    """A point in a maze: observation (x, y), action in [-1, 1]^2, reward 0, truncation after 50 steps.

    Walls push back by random distances (Campos et al. 2020), so the moves are stochastic; all draws come from
    the environment's own generator, and the same seed with the same actions gives the same episode bit for
    bit. Positions are never clamped: in about one of a thousand episodes of random actions the point slips
    through a wall, as in the original.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(self, maze: str = "square-a", action_limit: float = Maze2DConfig.action_limit) -> None:
        """Build the maze of this name; `action_limit` as in `Maze2DConfig`."""
        self.layout = layout_of(maze)
        self.action_limit = Maze2DConfig(action_limit).action_limit
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self._x = self._y = 0.0
        self._env_steps_left = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Start an episode at a random point of the start region, or at `options["start"]`, a point (x, y).

        A seed restarts the generator. A start outside all cells or in a wall is refused with a `ValueError`.
        """
        super().reset(seed=seed, options=options)
        start = (options or {}).get("start")
        place = (
            sample_start(self.layout, self.np_random) if start is None else given_start(self.layout, start)
        )
        self._env_steps_left = HORIZON
        return self._store(*place), {}

    def step(
        self, action: npt.ArrayLike
    ) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Move by `action_limit` times the action, which is clipped to [-1, 1] first."""
        if self._env_steps_left == 0:
            raise gym.error.ResetNeeded(
                f"Maze2D: call reset() before step(); no episode has begun, or its {HORIZON} steps are over"
            )
        ax, ay = _checked(action)
        dx = self.action_limit * min(max(ax, -1.0), 1.0)
        dy = self.action_limit * min(max(ay, -1.0), 1.0)
        x, y, _ = move(self.layout, self._x, self._y, dx, dy, self.np_random.random)
        self._env_steps_left -= 1
        return self._store(x, y), 0.0, False, self._env_steps_left == 0, {}

    def _store(self, x: float, y: float) -> npt.NDArray[np.float32]:
        """Keep the position rounded to float32, from where the next move starts in the original too."""
        obs = np.array((x, y), dtype=np.float32)
        self._x, self._y = obs.tolist()
        return obs


def _checked(action: npt.ArrayLike) -> tuple[float, float]:
    values = np.asarray(action, dtype=np.float64)
    if values.shape != (2,):
        raise ValueError(f"action: must have shape (2,), got {values.shape}")
    ax, ay = values.tolist()
    if ax != ax or ay != ay:
        raise ValueError(f"action: must not be NaN, got [{ax}, {ay}]")
    return ax, ay


def layout_of(maze: str) -> Layout:
    """The layout of this name, or a `ValueError` that lists the known names."""
    layouts = load_layouts()
    if maze not in layouts:
        raise ValueError(
            f"maze: unknown name {maze!r}{did_you_mean(maze, layouts)} known: {', '.join(layouts)}"
        )
    return layouts[maze]


def gymnasium_id(maze: str) -> str:
    """The Gymnasium id of a maze: `teb/Maze2D-square-a-v0`."""
    return f"teb/Maze2D-{maze}-v0"


def register_mazes() -> None:
    """Make every maze known to `gymnasium.make`; a second call changes nothing."""
    for maze in load_layouts():
        if gymnasium_id(maze) not in gym.registry:
            gym.register(gymnasium_id(maze), entry_point="teb.envs.maze2d:Maze2D", kwargs={"maze": maze})


def make_maze_task(maze: str, config: Maze2DConfig) -> Task:
    """A maze and its coverage meter."""
    env = Maze2D(maze, config.action_limit)
    return Task(env, CoverageMeter(env.layout), "coverage")


def uniform_coverage(
    maze: str,
    env_steps: int,
    seed: int,
    action_limit: float = Maze2DConfig.action_limit,
    at: Sequence[int] = (),
) -> dict[int, float]:
    """Coverage of uniformly random actions: the row that stands in every coverage table.

    Returns:
        Coverage by environment steps: after each of the counts in `at`, and after `env_steps`.
    """
    env = Maze2D(maze, action_limit)
    meter = CoverageMeter(env.layout)
    # With the plain seed the actions would repeat the random numbers of the environment.
    rng = np.random.default_rng((seed, 1))
    for start in range(0, env_steps, HORIZON):
        obs, _ = env.reset(seed=seed if start == 0 else None)
        path = [obs]
        for action in rng.uniform(-1.0, 1.0, (min(HORIZON, env_steps - start), 2)):
            path.append(env.step(action)[0])
        meter.observe_all(path, start + np.arange(len(path)))
    return {count: meter.coverage_at(count) for count in sorted({*at, env_steps})}
