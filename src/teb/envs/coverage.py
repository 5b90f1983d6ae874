"""State coverage of a maze: the share of small square bins that training has visited."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from teb.envs.layouts import Layout

NEVER = 65535
"""Mark of a bin without a visit in the compressed map of a record."""


class CoverageMeter:
    """Counts visited bins; a `Meter` for mazes.

    `coverage` is (bins inside cells with a visited position) / (bins inside cells). Bins are half-open, a
    position on the upper edge of the bounding box belongs to the last bin, and positions outside all cells
    are left out, so the ratio cannot exceed 1. Values published for these mazes exceed the share of the
    bounding box that cells fill, so they too divide by the area of the cells.

    `coverage_exdm` follows the evaluation script of ExDM (ICLR 2026): positions outside are moved into the
    nearest border bin, bins count wherever they lie in the bounding box, and the divisor is the area that
    the walls enclose, whether or not it can be entered. In Square-d that is 28 cells instead of 22, which
    leaves a ceiling of 0.786.
    """

    def __init__(self, layout: Layout, bin_size: float | None = None) -> None:
        """Measure on `layout`, with bins of its own size or of `bin_size`, which has to divide 1."""
        self.layout = layout
        self.bin_size = layout.coverage_bin if bin_size is None else bin_size
        (self._xmin, self._xmax), (self._ymin, self._ymax) = layout.bounds
        per_cell = round(1.0 / self.bin_size) if self.bin_size > 0.0 else 0
        if not abs(per_cell * self.bin_size - 1.0) < 1e-9:
            raise ValueError(f"bin_size: a whole number of bins must fit into 1, got {bin_size}")
        self._nx = round(self._xmax - self._xmin) * per_cell
        self._ny = round(self._ymax - self._ymin) * per_cell
        self._in_cell = np.zeros((self._nx, self._ny), dtype=np.bool_)
        for i, j in layout.cells:
            column, row = round(i - 0.5 - self._xmin) * per_cell, round(j - 0.5 - self._ymin) * per_cell
            self._in_cell[column : column + per_cell, row : row + per_cell] = True
        self.bins_total = len(layout.cells) * per_cell**2
        self.bins_total_exdm = len(layout.enclosed_cells) * per_cell**2
        self._first_visit = np.full((self._nx, self._ny), -1, dtype=np.int32)
        self._seen_exdm = np.zeros((self._nx, self._ny), dtype=np.bool_)
        self._bins = self._bins_exdm = self._env_steps = 0
        # Reading one element through a memoryview takes a third of the time that indexing the array would.
        self._flat_in_cell = self._in_cell.reshape(-1).data
        self._flat_first = self._first_visit.reshape(-1).data
        self._flat_seen = self._seen_exdm.reshape(-1).data

    def __reduce__(self) -> tuple[Any, ...]:
        """Built anew where it is sent to: views of memory do not travel."""
        return CoverageMeter, (self.layout, self.bin_size), self.state()

    def __setstate__(self, state: dict[str, np.ndarray]) -> None:
        self.load(state)

    @property
    def first_visit(self) -> npt.NDArray[np.int32]:
        """Environment steps at the first visit of each bin of the box, -1 = never; a copy [nx, ny]."""
        return self._first_visit.copy()

    def observe(self, obs: np.ndarray, env_steps: int) -> None:
        """Count one position [2], seen after `env_steps` environment steps; `observe_all` counts many."""
        x, y = obs.tolist()
        inside = self._xmin <= x <= self._xmax and self._ymin <= y <= self._ymax
        column = int((x - self._xmin) / self.bin_size + 1e-9) if x > self._xmin else 0
        row = int((y - self._ymin) / self.bin_size + 1e-9) if y > self._ymin else 0
        if column >= self._nx:
            column = self._nx - 1
        if row >= self._ny:
            row = self._ny - 1
        index = column * self._ny + row
        if not self._flat_seen[index]:
            self._flat_seen[index] = True
            self._bins_exdm += 1
        if inside and self._flat_first[index] < 0 and self._flat_in_cell[index]:
            self._flat_first[index] = env_steps
            self._bins += 1
        if env_steps > self._env_steps:
            self._env_steps = env_steps

    def observe_step(self, info: Mapping[str, Any], ended: bool) -> Mapping[str, float]:
        """Nothing: coverage is about positions, over all episodes."""
        return {}

    def observe_all(self, obs: npt.ArrayLike, env_steps: npt.ArrayLike) -> None:
        """Count positions [N, 2], seen after `env_steps` [N] steps, as `observe` on each in turn would."""
        points = np.asarray(obs, dtype=np.float64)
        when = np.broadcast_to(np.asarray(env_steps, dtype=np.int64), len(points))
        if not len(points):
            return
        low, high = np.array(self.layout.bounds).T
        bins = np.floor((points - low) / self.bin_size + 1e-9)
        bins = np.clip(bins, 0, [self._nx - 1, self._ny - 1]).astype(np.int64)
        index = bins[:, 0] * self._ny + bins[:, 1]
        inside = ((points >= low) & (points <= high)).all(axis=1) & self._in_cell.reshape(-1)[index]
        visited, first = np.unique(index[inside], return_index=True)
        fresh = self._first_visit.reshape(-1)[visited] < 0
        self._first_visit.reshape(-1)[visited[fresh]] = when[inside][first[fresh]]
        self._seen_exdm.reshape(-1)[index] = True
        self._env_steps = max(self._env_steps, int(when.max()))
        self._count()

    def coverage_at(self, env_steps: int) -> float:
        """The coverage reached after `env_steps` environment steps, for learning curves."""
        return float(((self._first_visit >= 0) & (self._first_visit <= env_steps)).sum()) / self.bins_total

    def metrics(self) -> dict[str, float]:
        """Both definitions of coverage, as shares."""
        return {
            "coverage": self._bins / self.bins_total,
            "coverage_exdm": self._bins_exdm / self.bins_total_exdm,
        }

    def record(self) -> dict[str, Any]:
        """The maze and the time of each bin's first visit, as JSON.

        `first_visit` is base64 of zlib of little-endian uint16 numbers, in C order with shape `shape` over
        the bounding box: ceil(1000 * step / env_steps) in 0..1000, or 65535 for never.
        """
        steps = self._first_visit.astype(np.int64)
        permille = np.clip(-(-1000 * steps // max(self._env_steps, 1)), 0, 1000)
        packed = np.where(steps < 0, NEVER, permille).astype("<u2").tobytes()
        return {
            "kind": "maze2d",
            "maze": self.layout.name,
            "bin": self.bin_size,
            "bounds": _lists(self.layout.bounds),
            "walls": _lists(self.layout.walls),
            "cells": _lists(self.layout.cells),
            "shape": [self._nx, self._ny],
            "env_steps": self._env_steps,
            "first_visit": base64.b64encode(zlib.compress(packed, 9)).decode("ascii"),
        }

    def state(self) -> dict[str, np.ndarray]:
        """Copies of the two maps and the largest step seen."""
        return {
            "first_visit": self._first_visit.copy(),
            "seen_exdm": self._seen_exdm.copy(),
            "env_steps": np.array([self._env_steps], dtype=np.int64),
        }

    def load(self, state: dict[str, np.ndarray]) -> None:
        """Take up a state that `state` gave for the same maze and bin size."""
        shape = state["first_visit"].shape
        if shape != self._first_visit.shape:
            raise ValueError(f"first_visit: must have shape {self._first_visit.shape}, got {shape}")
        self._first_visit[...] = state["first_visit"]
        self._seen_exdm[...] = state["seen_exdm"]
        self._env_steps = int(state["env_steps"].item())
        self._count()

    def _count(self) -> None:
        self._bins = int((self._first_visit >= 0).sum())
        self._bins_exdm = int(self._seen_exdm.sum())


def _lists(value: Any) -> Any:
    """Nested tuples as nested lists, so that a record equals itself after a trip through JSON."""
    return [_lists(entry) for entry in value] if isinstance(value, tuple) else value
