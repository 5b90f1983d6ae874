"""Optimal transport between finite distributions: one problem by linear programming, thousands at once by a simplex.

min sum_ij x_ij c_ij  subject to  sum_j x_ij = a_i,  sum_i x_ij = b_j,  x >= 0        (Kantorovich 1942)
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import scipy.optimize  # pyright: ignore[reportMissingTypeStubs]

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.int64]

_LARGEST_FIRST = 30
"""Pivots per row and column that follow the largest violation; after them Bland's rule, which cannot cycle."""
_BLAND = 300
"""Pivots per row and column under Bland's rule before a problem is given up with the slack it has."""


class Transport(NamedTuple):
    """Solutions of B problems with m supplies and n demands each; a basis has k = m + n - 1 cells."""

    value: Floats
    """Cost of the plan, an upper bound of the least cost, [B]."""
    slack: Floats
    """The least cost lies in [value - slack, value]: how far the dual variables are from feasible, [B]."""
    basis: Ints
    """Cells i n + j that may carry mass, [B, k]."""
    flow: Floats
    """The mass that they carry, [B, k]."""


def transport_lp(cost: Floats, supply: Floats, demand: Floats) -> float:
    """The least cost of one problem, [m, n], [m], [n], as a linear program (HiGHS); slow, and an oracle."""
    m, n = cost.shape
    rows = np.concatenate([np.kron(np.eye(m), np.ones(n)), np.kron(np.ones(m), np.eye(n))])
    found = cast(Any, scipy.optimize).linprog(
        cost.ravel(), A_eq=rows[:-1], b_eq=np.concatenate([supply, demand])[:-1], bounds=(0, None)
    )
    if found.status != 0:
        raise ValueError(f"transport_lp: the solver stopped with: {found.message}")
    return float(found.fun)


def transport_batch(cost: Floats, supply: Floats, demand: Floats, basis: Ints | None = None) -> Transport:
    """Solve B problems by the simplex method, one pivot of each at a time, [B, m, n], [B, m], [B, n].

    `basis` is where to start, such as the solution under another cost. The constraints are totally unimodular
    (Hoffman & Kruskal 1956), so each inverse basis consists of -1, 0 and 1 and stays exact however many pivots.
    """
    batch, m, n = cost.shape
    flat = cost.reshape(batch, m * n)
    tableau = _Tableau(
        flat, supply, demand, cheapest_first_basis(cost, supply, demand) if basis is None else basis
    )
    slack = np.zeros(batch)
    done_basis, done_flow = np.empty_like(tableau.basis), np.empty_like(tableau.flow)
    limit = (m + n) * (_LARGEST_FIRST + _BLAND)
    for pivot in range(limit + 1):
        reduced = tableau.reduced_costs()
        lowest = reduced.min(1)
        going = (lowest < -tableau.tolerance) & (pivot < limit)
        if not going.all():
            # What is solved is put away; the rest is carried along in smaller and smaller copies.
            solved = tableau.place[~going]
            done_basis[solved], done_flow[solved] = tableau.basis[~going], tableau.flow[~going]
            slack[solved] = np.maximum(-lowest[~going], 0.0)
            if not going.any():
                break
            reduced = reduced[going]
            tableau.keep(going)
        tableau.pivot(reduced, bland=pivot >= (m + n) * _LARGEST_FIRST)
    value = (done_flow * np.take_along_axis(flat, done_basis, 1)).sum(1)
    return Transport(value, slack, done_basis, done_flow)


class _Tableau:
    """Bases of many problems with what follows from them: inverse [B, k, k], flow and dual variables [B, k]."""

    def __init__(self, flat: Floats, supply: Floats, demand: Floats, basis: Ints) -> None:
        self.m, self.n = supply.shape[1], demand.shape[1]
        self.flat, self.basis = flat, basis.copy()
        self.inverse = _inverse_of(basis, self.m, self.n)
        marginals = np.concatenate([supply, demand[:, :-1]], 1)
        self.flow: Floats = np.maximum((self.inverse @ marginals[:, :, None])[:, :, 0], 0.0)
        self.dual: Floats = (np.take_along_axis(flat, basis, 1)[:, None, :] @ self.inverse)[:, 0]
        self.tolerance: Floats = 4.0 * np.finfo(np.float64).eps * (self.m + self.n) * np.abs(flat).max(1)
        self.place: Ints = np.arange(len(flat), dtype=np.int64)

    def reduced_costs(self) -> Floats:
        """c_ij - u_i - v_j, [B, m n]; all are non-negative at an optimum."""
        u, v = self.dual[:, : self.m, None], np.zeros((len(self.dual), 1, self.n))
        v[:, 0, :-1] = self.dual[:, self.m :]
        return (self.flat.reshape(-1, self.m, self.n) - u - v).reshape(self.flat.shape)

    def keep(self, chosen: npt.NDArray[np.bool_]) -> None:
        """Go on with some of the problems."""
        self.flat, self.basis, self.inverse = self.flat[chosen], self.basis[chosen], self.inverse[chosen]
        self.flow, self.dual = self.flow[chosen], self.dual[chosen]
        self.tolerance, self.place = self.tolerance[chosen], self.place[chosen]

    def pivot(self, reduced: Floats, *, bland: bool) -> None:
        """One pivot of every problem: the entering cell takes the place of the first that runs empty."""
        enter = (reduced < -self.tolerance[:, None]).argmax(1) if bland else reduced.argmin(1)
        every = np.arange(len(enter), dtype=np.int64)
        row, column = enter // self.n, enter % self.n
        direction = self.inverse[every, :, row]
        inside = np.flatnonzero(column < self.n - 1)
        direction[inside] += self.inverse[inside, :, self.m + column[inside]]
        ratio = np.where(direction > 0.5, self.flow, np.inf)
        step = ratio.min(1)
        # Among equal ratios Bland's rule takes the cell of the lowest number.
        leave = (
            np.where(ratio <= step[:, None], self.basis, self.m * self.n).argmin(1)
            if bland
            else ratio.argmin(1)
        )
        self.flow -= step[:, None] * direction
        self.flow[every, leave] = step
        np.maximum(self.flow, 0.0, out=self.flow)
        self.basis[every, leave] = enter
        pivot_row = self.inverse[every, leave]
        direction[every, leave] = 0.0
        self.inverse -= direction[:, :, None] * pivot_row[:, None, :]
        self.dual += reduced[every, enter][:, None] * pivot_row


def cheapest_first_basis(cost: Floats, supply: Floats, demand: Floats) -> Ints:
    """A feasible basis by filling the cheapest cell that is left, again and again, [B, m, n] -> [B, m + n - 1].

    Each step closes one row or one column, never both, so the cells form a spanning tree, zeros in it included.
    """
    batch, m, n = cost.shape
    every = np.arange(batch, dtype=np.int64)
    left, supply, demand = cost.reshape(batch, m * n).copy(), supply.copy(), demand.copy()
    open_left = left.reshape(batch, m, n)
    rows, columns = np.full(batch, m), np.full(batch, n)
    basis = np.empty((batch, m + n - 1), np.int64)
    for step in range(m + n - 1):
        cell = left.argmin(1)
        basis[:, step] = cell
        row, column = cell // n, cell % n
        by_row = ((supply[every, row] <= demand[every, column]) & (rows > 1)) | (columns == 1)
        moved = np.where(by_row, supply[every, row], demand[every, column])
        supply[every, row] -= moved
        demand[every, column] -= moved
        open_left[every[by_row], row[by_row]] = np.inf
        open_left[every[~by_row], :, column[~by_row]] = np.inf
        rows -= by_row
        columns -= ~by_row
    return basis


def _inverse_of(basis: Ints, m: int, n: int) -> Floats:
    """The inverse of the constraints' columns in each basis; the last demand follows from the others."""
    batch, k = basis.shape
    columns = np.zeros((batch, k + 1, k))
    cells = np.arange(k, dtype=np.int64)[None]
    columns[np.arange(batch)[:, None], basis // n, cells] = 1.0
    columns[np.arange(batch)[:, None], m + basis % n, cells] = 1.0
    return np.rint(np.linalg.inv(columns[:, :k]))
