"""How the cost of the exact metric grows with the number of states."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from teb.maths.fixed_point import Solution, solve_metric
from teb.report import theory as draw
from teb.seeding import numpy_generator
from teb.theory.operators import table
from teb.theory.processes import Process, grid, random_process
from teb.theory.statement import Picture, Setting, Statement

STATES = (50, 100, 200, 400)
BRANCHING = 4
BRANCHINGS = (1, 2, 4, 8, 16, 32)
BRANCHING_STATES = 60
GRID_WIDTH = 20
TOLERANCE = 1e-6


def cost(setting: Setting) -> Statement:
    """Time random processes of growing size, then of growing supports, to a certified error."""
    by_states = [_timed(_random(states, BRANCHING, setting), setting) for states in STATES]
    by_support = [_timed(_random(BRANCHING_STATES, branching, setting), setting) for branching in BRANCHINGS]
    on_grid = _timed(grid(GRID_WIDTH, setting.sigma), setting)
    every = [*by_states, *by_support, on_grid]
    growth = _power(STATES, [seconds for seconds, *_ in by_states])
    spread = _power(BRANCHINGS[2:], [seconds for seconds, *_ in by_support[2:]])
    sizes = [
        *(("random", n, BRANCHING) for n in STATES),
        *(("random", BRANCHING_STATES, k) for k in BRANCHINGS),
    ]
    sizes.append((f"grid {GRID_WIDTH} x {GRID_WIDTH}", GRID_WIDTH**2, 4))
    rows: list[list[object]] = [
        [kind, n, n * (n + 1) // 2, k, f"{seconds:.3f}", found.rounds, sweeps, f"{found.error_bound:.0e}"]
        for (kind, n, k), (seconds, found, sweeps) in zip(sizes, every, strict=True)
    ]
    seconds, largest, _ = by_states[-1]
    certified = max(found.error_bound for _, found, _ in every) <= TOLERANCE
    return Statement(
        "Cost",
        f"The exact metric, certified to {TOLERANCE:g}.",
        "measured" if certified else "fails",
        f"{STATES[-1]} states with {BRANCHING} successors each: {seconds:.1f} s of one core, certified to "
        f"{largest.error_bound:.0e}; time grows with the number of states to the power {growth:.1f}, with "
        "the number of "
        f"successors to the power {spread:.1f}.",
        table(
            rows,
            [
                "process",
                "states",
                "pairs",
                "successors",
                "seconds",
                "rounds",
                "applications of T instead",
                "certified error",
            ],
        ),
        (
            f"One draw per state, c_T = {setting.c_t:g}; seconds are processor time of "
            "the machine that "
            "wrote this. Pairs grow with the square of the states, transport with the supports; one "
            "successor is solved "
            "in closed form. The second last column is how many plain applications of T would reach the same error.",
        ),
        (
            Picture(
                "cost",
                "Processor time by number of states.",
                draw.cost(np.array(STATES), np.array([seconds for seconds, *_ in by_states]), growth),
            ),
        ),
    )


def _random(states: int, branching: int, setting: Setting) -> Process:
    rng = numpy_generator(setting.seed, "theory", "cost", states, branching)
    return random_process(rng, states, 1, branching, setting.sigma)


def _timed(process: Process, setting: Setting) -> tuple[float, Solution, int]:
    """Processor seconds, the solution, and how many applications of T would do the same."""
    delta = process.delta("shared")
    began = time.process_time()
    found = solve_metric(delta, process.kernel, setting.c_r, setting.c_t, TOLERANCE)
    seconds = time.process_time() - began
    needed = np.log(TOLERANCE / max(float(found.distance.max()), TOLERANCE))
    return seconds, found, max(1, int(np.ceil(needed / np.log(setting.c_t)))) if setting.c_t else 1


def _power(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(seconds, 1e-4)), 1)[0])
