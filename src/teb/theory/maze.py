"""A maze cut into square cells: a finite process whose transitions are estimated from the maze's own motion rule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from teb.envs.layouts import Layout
from teb.envs.maze2d import Maze2DConfig, layout_of, move_all
from teb.theory.processes import Floats, Process, chain_of

PER_CELL = 2
"""Cells per unit of length and axis."""


@dataclass(frozen=True)
class CutMaze:
    """The cells of a maze, and the uniform policy's transitions between them."""

    layout: Layout
    centres: Floats
    """[S, 2]."""
    kernel: Floats
    """P^pi between cells under uniform actions, [S, S]."""
    moves: tuple[Floats, Floats, Floats]
    """Positions, actions and next positions of the moves that transitions are estimated from, [N, 2] each."""
    goal: npt.NDArray[np.bool_]
    """Cells of the unit square that is rewarded in the rewarded variant, [S]."""
    start: int
    """A cell of the start region."""

    def process(self, rewarded: bool, sigma: float) -> Process:
        """As a chain under the uniform policy, with reward 1 in the goal's cells or without reward."""
        return chain_of(self.kernel, self.goal * float(rewarded), sigma)


def cut_maze(maze: str, samples: int, rng: np.random.Generator) -> CutMaze:
    """Estimate P^pi from `samples` uniform moves out of each cell, starting uniformly in it."""
    layout = layout_of(maze)
    side = 1.0 / PER_CELL
    inner = (np.arange(PER_CELL) + 0.5) * side - 0.5
    centres = np.array([(i + dx, j + dy) for i, j in layout.cells for dx in inner for dy in inner])
    (left, right), (bottom, top) = layout.bounds
    place = np.full((round((right - left) / side), round((top - bottom) / side)), -1)
    column, row = cell_indices(centres, layout)
    place[column, row] = np.arange(len(centres))
    start = np.repeat(centres, samples, 0) + rng.uniform(-side / 2, side / 2, (len(centres) * samples, 2))
    actions = rng.uniform(-1.0, 1.0, start.shape)
    end = move_all(layout, start, Maze2DConfig.action_limit * actions, rng.random((len(start), 8)))[0]
    column, row = cell_indices(end, layout)
    inside = (column >= 0) & (column < place.shape[0]) & (row >= 0) & (row < place.shape[1])
    reached = np.full(len(end), -1)
    reached[inside] = place[column[inside], row[inside]]
    origin = np.repeat(np.arange(len(centres)), samples)
    kept = reached >= 0  # the rare point that slips through an outer wall is left out
    kernel = np.zeros((len(centres), len(centres)))
    np.add.at(kernel, (origin[kept], reached[kept]), 1.0)
    kernel[kernel < 0.002 * samples] = 0.0  # leaks through walls: single points among thousands
    kernel /= kernel.sum(1, keepdims=True)
    starts = np.array(layout.start_cells, dtype=np.float64)
    from_start = np.linalg.norm(centres - starts[0], axis=1)
    goal = np.array(layout.cells[int(np.linalg.norm(np.array(layout.cells) - starts[0], axis=1).argmax())])
    return CutMaze(
        layout,
        centres,
        kernel,
        (start, actions, end),
        np.asarray((np.abs(centres - goal) < 0.5).all(1)),
        int(from_start.argmin()),
    )


def cell_indices(points: Floats, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Column and row of the cell of each point, [N, 2] -> [N], [N]."""
    low = np.array(layout.bounds)[:, 0]
    column, row = np.floor((points - low) * PER_CELL).astype(np.int64).T
    return column, row
