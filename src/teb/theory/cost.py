"""How the cost of the exact metric grows with the number of states."""

from __future__ import annotations

import time

import numpy as np

from teb.maths.exact_mdp import predictive_differential
from teb.maths.fixed_point import solve_metric
from teb.report import theory as draw
from teb.seeding import numpy_generator
from teb.theory.operators import table
from teb.theory.processes import random_process
from teb.theory.statement import Picture, Setting, Statement

STATES = (50, 100, 200, 400)
BRANCHING = 4
TOLERANCE = 1e-6


def cost(setting: Setting) -> Statement:
    """Time random sparse processes of growing size to a certified error."""
    rng = numpy_generator(setting.seed, "theory", "cost")
    rows: list[list[object]] = []
    seconds: list[float] = []
    within = True
    for states in STATES:
        process = random_process(rng, states, 1, BRANCHING, setting.sigma)
        delta = predictive_differential(process.reward_mean, process.reward_sigma, process.policy, "shared")
        began = time.process_time()
        found = solve_metric(delta, process.kernel, setting.c_r, setting.c_t, TOLERANCE)
        seconds.append(time.process_time() - began)
        within &= found.error_bound <= TOLERANCE
        sweeps = (
            int(np.ceil(np.log(TOLERANCE / found.distance.max()) / np.log(setting.c_t))) if setting.c_t else 1
        )
        rows.append(
            [
                states,
                states * (states + 1) // 2,
                f"{seconds[-1]:.2f}",
                found.rounds,
                sweeps,
                f"{found.error_bound:.0e}",
            ]
        )
    growth = float(np.polyfit(np.log(STATES), np.log(np.maximum(seconds, 1e-4)), 1)[0])
    return Statement(
        "Cost",
        "How long the exact metric takes.",
        "measured",
        f"{STATES[-1]} states with {BRANCHING} successors each: {seconds[-1]:.1f} s of one core, certified to "
        f"{float(str(rows[-1][-1])):.0e}; time grows with the number of states to the power {growth:.1f}.",
        table(rows, ["states", "pairs", "seconds", "rounds", "applications of T instead", "certified error"]),
        (
            f"Random processes with {BRANCHING} successors per state, c_T = {setting.c_t:g}; seconds are "
            "processor time of this "
            "machine. The number of pairs grows with the square of the states. What a pair costs grows "
            "with the supports: about "
            "with the third to fourth power of the number of successors, so dense processes beyond some 80 "
            "states take minutes. "
            "Deterministic transitions are solved in closed form, in well under a second for 1,000 states.",
        ),
        (
            Picture(
                "cost",
                "Processor time by number of states.",
                draw.cost(np.array(STATES), np.array(seconds), growth),
            ),
        ),
    )
