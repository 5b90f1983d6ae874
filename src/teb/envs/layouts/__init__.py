"""The layouts of the point mazes of EDL (Campos et al. 2020), as data.

Cell (i, j) is the unit square centred on (i, j), y grows upwards, and every wall is a unit segment between
half-integers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

Cell = tuple[int, int]
Interval = tuple[float, float]
Segment = tuple[tuple[float, float], tuple[float, float]]
WallKeys = frozenset[tuple[float, int]]


@dataclass(frozen=True)
class Layout:
    """One maze: its cells, its walls and where episodes start (Campos et al. 2020)."""

    name: str
    """The name users type, as in `maze2d/square-a`."""
    title: str
    """The name in tables."""
    bounds: tuple[Interval, Interval]
    """Bounding box of the cells: ((xmin, xmax), (ymin, ymax))."""
    coverage_bin: float
    """Side of a coverage bin (paper: 0.1 for Square-bottleneck and Square-tree, 0.05 for the others)."""
    start_cells: tuple[Cell, ...]
    start_boxes: tuple[tuple[Interval, Interval], ...]
    """The start cells, shrunk by the start margin on each side that has a wall."""
    cells: tuple[Cell, ...]
    walls: tuple[Segment, ...]

    @cached_property
    def vertical(self) -> WallKeys:
        """Walls across the x axis, as (x of the wall, row of the cells beside it)."""
        return frozenset((x0, round(y0 + 0.5)) for (x0, y0), (x1, _) in self.walls if x0 == x1)

    @cached_property
    def horizontal(self) -> WallKeys:
        """Walls across the y axis, as (y of the wall, column of the cells beside it)."""
        return frozenset((y0, round(x0 + 0.5)) for (x0, y0), (_, y1) in self.walls if y0 == y1)

    @cached_property
    def enclosed_cells(self) -> frozenset[Cell]:
        """Cells from which walls bar every way out of the bounding box: the area of the wall polygons.

        That is all cells of the maze, and in Square-d also the two pockets that its corridors surround.
        """
        (xmin, xmax), (ymin, ymax) = self.bounds
        columns = range(round(xmin + 0.5), round(xmax + 0.5))
        rows = range(round(ymin + 0.5), round(ymax + 0.5))
        outside = self._flood(range(columns[0] - 1, columns[-1] + 2), range(rows[0] - 1, rows[-1] + 2))
        return frozenset((i, j) for i in columns for j in rows if (i, j) not in outside)

    def _flood(self, columns: range, rows: range) -> set[Cell]:
        """Every cell of a grid that can be reached from its lower left corner without crossing a wall."""
        reached = {(columns[0], rows[0])}
        frontier = list(reached)
        while frontier:
            i, j = frontier.pop()
            neighbours = [(i + s, j) for s in (-1, 1) if (i + 0.5 * s, j) not in self.vertical]
            neighbours += [(i, j + s) for s in (-1, 1) if (j + 0.5 * s, i) not in self.horizontal]
            fresh = [c for c in neighbours if c[0] in columns and c[1] in rows and c not in reached]
            reached.update(fresh)
            frontier.extend(fresh)
        return reached


@cache
def load_layouts() -> dict[str, Layout]:
    """All layouts by name, read once from the package data; the dictionary is shared, do not change it."""
    text = files(__name__).joinpath("mazes.json").read_text(encoding="utf-8")
    return {name: Layout(name=name, **_frozen(entry)) for name, entry in json.loads(text)["mazes"].items()}


def _frozen(value: Any) -> Any:
    """JSON with its lists turned into tuples, so that a layout cannot change."""
    if isinstance(value, dict):
        return {key: _frozen(entry) for key, entry in value.items()}
    return tuple(_frozen(entry) for entry in value) if isinstance(value, list) else value
