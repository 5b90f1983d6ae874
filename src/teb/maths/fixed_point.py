"""Fixed points of bisimulation operators on finite processes, each with a certified bound of its error.

(T d)(i, j) = c_R Delta(i, j) + c_T W1(d)(P_i, P_j)                                             (TEB eq. 5)

T is monotone and T(d + x) = T d + c_T x for a constant x, so one application bounds the fixed point from both sides
(MacQueen 1966; Porteus 1971):

T d + c_T / (1 - c_T) min(T d - d)  <=  d*  <=  T d + c_T / (1 - c_T) max(T d - d)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse  # pyright: ignore[reportMissingTypeStubs]
import scipy.sparse.linalg as _linalg  # pyright: ignore[reportMissingTypeStubs]

from teb.maths.transport import Floats, Ints, Transport, transport_batch

sparse, linalg = cast(Any, scipy.sparse), cast(Any, _linalg)

_SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128)
"""Supports are filled up with states of no mass to one of these sizes, so that few shapes of problems remain."""
_NUMBERS_AT_ONCE = 2_000_000


class Solution(NamedTuple):
    """A metric and what is known of it."""

    distance: Floats
    """[S, S]."""
    error_bound: float
    """No entry is further than this from the fixed point's; certified by one exact application of the operator."""
    rounds: int
    """How often couplings were improved (or, in closed form, squarings)."""


def certified_error(c_t: float, lowest_change: float, highest_change: float) -> float:
    """The bound max |T d - d*| <= c_T / (1 - c_T) max |T d - d|, from the extremes of T d - d (Banach 1922)."""
    return c_t / (1.0 - c_t) * max(abs(lowest_change), abs(highest_change))


def apply_operator(distance: Floats, delta: Floats, kernel: Floats, c_r: float, c_t: float) -> Floats:
    """One application of T to any matrix [S, S], symmetric or not, by exact transport for all pairs."""
    states = len(kernel)
    i, j = (x.ravel() for x in np.indices((states, states)))
    w1 = np.empty(states * states)
    for group in _grouped(kernel, i, j):
        w1[group.pairs] = group.solve(distance)[0]
    return c_r * delta + c_t * w1.reshape(states, states)


def solve_metric(
    delta: Floats, kernel: Floats, c_r: float, c_t: float, tolerance: float = 1e-9, rounds: int = 60
) -> Solution:
    """The fixed point d* for symmetric Delta, by policy iteration over couplings.

    With one coupling of P_i and P_j fixed for each pair, T is linear in d, and its fixed point one sparse system over
    pairs. Exact transport under that fixed point then finds better couplings, which lowers d (Howard 1960; for
    bisimulation distances Bacci et al. 2013). A handful of rounds does what 1/(1 - c_T) log(1/tolerance) applications
    of T would. Deterministic transitions leave no choice of coupling and are solved in closed form. Below about
    200 eps max(d) / (1 - c_T) rounding hides the error, and the certificate stays there.
    """
    _check_inputs(delta, kernel, c_t)
    if bool((np.count_nonzero(kernel, 1) == 1).all()):
        return _deterministic(delta, kernel.argmax(1), c_r, c_t)
    pairs = _Pairs(kernel)
    reward = c_r * delta[pairs.i, pairs.j]
    known, bound = reward, np.inf
    for done in range(1, rounds + 1):
        applied, slack = pairs.improve(known)
        applied = reward + c_t * applied
        change = applied - known
        bound = certified_error(c_t, float((change - c_t * slack).min()), float(change.max()))
        rounding = 200 * np.finfo(np.float64).eps * float(np.abs(applied).max()) / (1.0 - c_t)
        if bound <= max(tolerance, rounding):
            return Solution(pairs.square(applied), bound, done)
        known = pairs.evaluate(reward, c_t, applied, tolerance)
    raise ValueError(f"solve_metric: error still up to {bound:g} after {rounds} rounds, wanted {tolerance:g}")


def solve_mico(reward: Floats, kernel: Floats, c_r: float, c_t: float) -> Solution:
    """MICo, U = c_R |r_i - r_j| + c_T P U P' (Castro et al. 2021): the independent coupling in the place of W1.

    sum_k c_T^k P^k R P'^k, with twice as many terms after each squaring of P.
    """
    total = c_r * np.abs(reward[:, None] - reward[None])
    _check_inputs(total, kernel, c_t)
    first, power, weight, squarings = total, kernel, c_t, 0
    while weight > np.finfo(np.float64).eps * (1.0 - c_t):
        total = total + weight * power @ total @ power.T
        power, weight, squarings = power @ power, weight * weight, squarings + 1
    change = first + c_t * kernel @ total @ kernel.T - total
    return Solution(total, certified_error(c_t, float(change.min()), float(change.max())), squarings)


def _deterministic(delta: Floats, following: Ints, c_r: float, c_t: float) -> Solution:
    """sum_k c_T^k c_R Delta(s_i^k, s_j^k) along both paths, with twice as many terms after each squaring of the map."""
    first = total = c_r * delta
    ahead, weight, squarings = following, c_t, 0
    while weight > np.finfo(np.float64).eps * (1.0 - c_t):
        total = total + weight * total[np.ix_(ahead, ahead)]
        ahead, weight, squarings = ahead[ahead], weight * weight, squarings + 1
    change = first + c_t * total[np.ix_(following, following)] - total
    return Solution(total, certified_error(c_t, float(change.min()), float(change.max())), squarings)


def _check_inputs(delta: Floats, kernel: Floats, c_t: float) -> None:
    if not 0.0 <= c_t < 1.0:
        raise ValueError(f"c_t: must lie in [0, 1), got {c_t}")
    if delta.shape != kernel.shape or kernel.ndim != 2 or kernel.shape[0] != kernel.shape[1]:
        raise ValueError(f"delta and kernel: must both be [S, S], got {delta.shape} and {kernel.shape}")
    if not np.array_equal(delta, delta.T):
        raise ValueError("delta: must be symmetric")


@dataclass
class _Group:
    """Transport problems of one shape: pairs of states by their place in the list, with supports and masses."""

    pairs: Ints
    left: Ints
    """Support of the first state of each pair, [G, m]."""
    right: Ints
    supply: Floats
    demand: Floats
    basis: Ints | None = None
    flow: Floats | None = None

    def solve(self, distance: Floats) -> tuple[Floats, Floats]:
        """W1 of each pair under a ground distance [S, S], and its slack; keeps the couplings found."""
        count, m, n = len(self.pairs), self.left.shape[1], self.right.shape[1]
        chunk = max(1, _NUMBERS_AT_ONCE // (m + n) ** 2)
        parts: list[Transport] = []
        for first in range(0, count, chunk):
            some = slice(first, first + chunk)
            cost = distance[self.left[some, :, None], self.right[some, None, :]]
            start = None if self.basis is None else self.basis[some]
            parts.append(transport_batch(cost, self.supply[some], self.demand[some], start))
        value, slack, self.basis, self.flow = (np.concatenate(part) for part in zip(*parts, strict=True))
        return value, slack


def _grouped(kernel: Floats, i: Ints, j: Ints) -> list[_Group]:
    """The pairs (i, j) by the sizes of their supports."""
    support, mass, size = _supports(kernel)
    shape = size[i] * (len(kernel) + 1) + size[j]
    groups: list[_Group] = []
    for code in np.unique(shape):
        pairs = np.flatnonzero(shape == code)
        m, n = int(code) // (len(kernel) + 1), int(code) % (len(kernel) + 1)
        a, b = i[pairs], j[pairs]
        groups.append(_Group(pairs, support[a, :m], support[b, :n], mass[a, :m], mass[b, :n]))
    return groups


def _supports(kernel: Floats) -> tuple[Ints, Floats, Ints]:
    """Successors by falling probability and their masses, [S, K], and how many of them count, [S]."""
    order = np.argsort(-kernel, 1, kind="stable")
    mass = np.take_along_axis(kernel, order, 1)
    exact = np.count_nonzero(kernel, 1)
    steps = np.array([size for size in _SIZES if size < len(kernel)] + [len(kernel)])
    size = steps[np.searchsorted(steps, exact)]
    return order[:, : size.max()], mass[:, : size.max()], size


class _Pairs:
    """All unordered pairs of states, a coupling of the successors of each, and the linear system of the couplings."""

    def __init__(self, kernel: Floats) -> None:
        self.states = len(kernel)
        upper: Any = np.triu_indices(self.states)
        size = np.count_nonzero(kernel, 1)
        swap = size[upper[0]] > size[upper[1]]  # the smaller support first: fewer shapes
        self.i = np.where(swap, upper[1], upper[0])
        self.j = np.where(swap, upper[0], upper[1])
        self.number = np.empty((self.states, self.states), np.int32)
        self.number[self.i, self.j] = self.number[self.j, self.i] = np.arange(len(self.i))
        self.groups = _grouped(kernel, self.i, self.j)

    def square(self, values: Floats) -> Floats:
        """Values of unordered pairs as a symmetric matrix."""
        return values[self.number]

    def improve(self, values: Floats) -> tuple[Floats, Floats]:
        """The best couplings under these distances: W1 of each pair and its slack."""
        ground = self.square(values)
        w1, slack = np.empty_like(values), np.empty_like(values)
        for group in self.groups:
            w1[group.pairs], slack[group.pairs] = group.solve(ground)
        return w1, slack

    def evaluate(self, reward: Floats, c_t: float, start: Floats, tolerance: float) -> Floats:
        """The fixed point for the present couplings, x = reward + c_T M x, to well below `tolerance`."""
        matrix = c_t * self._couplings()
        system = sparse.eye_array(len(reward), format="csr") - matrix
        wanted = 0.01 * tolerance * (1.0 - c_t)
        x: Floats = linalg.bicgstab(system, reward, start, rtol=0.0, atol=wanted, maxiter=500)[0]
        if not np.isfinite(x).all() or float(np.abs(reward + matrix @ x - x).max()) > float(
            np.abs(reward + matrix @ start - start).max()
        ):
            x = start  # a breakdown of the recurrence; sweeps get there from anywhere, only later
        enough = max(wanted, 64 * np.finfo(np.float64).eps * float(np.abs(x).max()))
        change, sweeps = np.inf, 0
        while change > enough and sweeps < 64 / (1.0 - c_t):
            following = reward + matrix @ x
            change, x, sweeps = float(np.abs(following - x).max()), following, sweeps + 1
        return x

    def _couplings(self) -> Any:
        """M [pairs, pairs]: row p holds the coupling of the successors of pair p."""
        rows: list[npt.NDArray[Any]] = []
        columns: list[npt.NDArray[Any]] = []
        masses: list[Floats] = []
        for group in self.groups:
            assert group.basis is not None and group.flow is not None, "couplings are improved first"
            every, n = np.arange(len(group.pairs))[:, None], group.right.shape[1]
            columns.append(
                self.number[group.left[every, group.basis // n], group.right[every, group.basis % n]].ravel()
            )
            rows.append(np.repeat(group.pairs, group.basis.shape[1]))
            masses.append(group.flow.ravel())
        place = (np.concatenate(rows), np.concatenate(columns))
        return sparse.csr_array((np.concatenate(masses), place), shape=(len(self.i), len(self.i)))
