"""Theorem 3.5, and what each reading of the shaping term makes an agent want."""

from __future__ import annotations

import numpy as np

from teb.maths.exact_mdp import optimal_action_values
from teb.maths.shaping import Shaping
from teb.report import theory as draw
from teb.seeding import numpy_generator
from teb.theory import chain
from teb.theory.operators import table
from teb.theory.processes import random_process
from teb.theory.statement import Picture, Setting, Statement

GRID: tuple[tuple[str, str, int, Shaping, bool], ...] = (
    ("state only", "1-step", 1, "one", False),
    ("state only", "3-step, gamma^3 in F", 3, "window_gamma_n", False),
    ("state only", "3-step, gamma in F", 3, "window_gamma", False),
    ("Phi(s, a), replayed action", "1-step", 1, "one", True),
    ("Phi(s, a), replayed action", "3-step, gamma^3 in F", 3, "window_gamma_n", True),
    ("Phi(s, a), replayed action", "3-step, gamma in F", 3, "window_gamma", True),
)
"""Potential, backup, window length, shaping, whether the replayed action stands in the potential."""
ETAS = (0.05, 1.0, 10.0)


def invariance(setting: Setting) -> Statement:
    """Q*' = Q* - eta Phi on random processes; then the chain under every potential and backup."""
    rng = numpy_generator(setting.seed, "theory", "invariance")
    error, changed = 0.0, 0
    for _ in range(10):
        process = random_process(rng, 8, 3, 3, setting.sigma)
        phi = process.predictive(setting.c_r, setting.c_t, "shared").distance[0]
        q = optimal_action_values(process.transitions, process.rewards, setting.gamma)
        for eta in ETAS:
            shaping = setting.gamma * process.transitions @ phi - phi[:, None]
            shaped = optimal_action_values(
                process.transitions, process.rewards + eta * shaping, setting.gamma
            )
            error = max(error, float(np.abs(shaped + eta * phi[:, None] - q).max() / np.abs(shaped).max()))
            changed += int((shaped.argmax(1) != q.argmax(1)).sum())
    rows: list[list[object]] = []
    preferences = {}
    directions: dict[tuple[str, str], float] = {}
    gaps: dict[tuple[str, str], float] = {}
    for potential, backup, n, kind, replayed in GRID:
        found = [chain.optimum(setting.gamma, n, kind, replayed, seed) for seed in (0, 1)]
        away, gap = np.mean([chain.direction(*each) for each in found], 0)
        directions[potential, backup], gaps[potential, backup] = float(away), float(gap)
        wants = "indifferent" if gap < 1e-9 else "away" if away > 0 else "toward"
        rows.append([potential, backup, wants, "-" if gap < 1e-9 else f"{away:+.2f}", f"{gap:.3f}"])
        q = found[0][1]
        outward = np.where(np.arange(chain.STATES) >= chain.ANCHOR, q[:, 2] - q[:, 0], q[:, 0] - q[:, 2])
        preferences[f"{potential}\n{backup}"] = outward
    literal = directions["Phi(s, a), replayed action", "1-step"]
    printed = directions["state only", "3-step, gamma in F"]
    neutral = max(gaps["state only", "1-step"], gaps["state only", "3-step, gamma^3 in F"])
    holds = error < 1e-9 and changed == 0 and neutral < 1e-9
    return Statement(
        "Theorem 3.5",
        "Shaping with `gamma Phi(s') - Phi(s)` leaves the optimal policy as it is: `Q*' = Q* - eta Phi`.",
        "holds under conditions" if holds and literal < 0 else "fails",
        f"A fixed state-only potential and 1-step backups: relative error {error:.0e}, {changed} of "
        f"{10 * 8 * len(ETAS)} "
        f"greedy actions changed. Without reward it makes every action equal (gap {neutral:.0e}); the literal "
        f"Phi(s, a) drives toward the anchor ({literal:+.2f}), the printed gamma on 3-step windows away "
        f"from it ({printed:+.2f}).",
        table(rows, ["potential", "backup", "optimal behaviour", "mean move away", "largest action gap"]),
        (
            "The table is a reward-free chain of 41 states with the anchor in the middle, an on-policy "
            "critic and exact "
            f"policy iteration from two random policies, at gamma = {setting.gamma:g}; -1 is always "
            "toward, +1 always away.",
            "**Exact shaping is silent without reward.** If r = 0 and Phi is a fixed function of the "
            "state, every policy has "
            "`Q' = -eta Phi(s)`. What coverage it brings comes from transients of learning, from drift, or from the "
            "departures in the table.",
            "**An action inside Phi is not benign.** The backup gives `Q' = Q - eta Phi(s, a)`: the greedy "
            "action is the one "
            "whose predicted outcome lies nearest the anchor.",
            "**The printed gamma on windows of n steps** leaves over a reward `(gamma - gamma^n) Phi` per "
            "window, an ordinary "
            "bonus for distance.",
            "This is an analysis of fixed points. Anchors and parameters that change during training are "
            "dynamic shaping, "
            "invariant only in so far as they converge.",
        ),
        (
            Picture(
                "invariance",
                "How much better a move away from the anchor is than one toward it, by state, under each "
                "potential and "
                "backup.",
                draw.preferences(preferences, chain.ANCHOR),
            ),
        ),
    )
