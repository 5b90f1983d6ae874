"""Lemmas 3.1 and 3.2, and whether the predictive metric reduces to the classical one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from teb.maths.exact_mdp import mean_differential
from teb.maths.fixed_point import apply_operator
from teb.report import theory as draw
from teb.report.tables import markdown
from teb.seeding import numpy_generator
from teb.theory.processes import Process, chain_of, random_process, ring, two_rooms
from teb.theory.statement import Picture, Setting, Statement


def reduction(setting: Setting) -> Statement:
    """After eq. (6): "when rhat = r and Phat = P, [the operator] reduces to the standard metric"."""
    rng = numpy_generator(setting.seed, "theory", "reduction")
    stochastic, determined, unlike = [], [], 0.0
    for _ in range(20):
        process = random_process(rng, 6, 3, 3, 0.0)
        one_action = replace(process, policy=np.eye(3)[rng.integers(3, size=6)])
        stochastic.append(_apart(process, setting))
        determined.append(_apart(one_action, setting))
        classical = process.classical(setting.c_r, setting.c_t).distance.max()
        unlike = max(unlike, stochastic[-1] / classical)
    holds = max(determined) < 1e-6 * setting.c_r
    return Statement(
        "Reduction",
        "With exact rewards and transitions the predictive metric is the classical one (after eq. 6).",
        "holds under conditions" if holds and min(stochastic) > 1e-3 * setting.c_r else "fails",
        f"Policies that never randomise: largest difference {max(determined):.1e} over 20 random processes. "
        f"Random policies: at least {min(stochastic):.3g}, at most {unlike:.2g} times the classical diameter.",
        remarks=(
            "`E|r_i - r_j|` over the actions of both states is at least `|E r_i - E r_j|`; the two agree only where "
            "the reward does not depend on chance. The operator compares reward distributions, not mean rewards.",
        ),
    )


def _apart(process: Process, setting: Setting) -> float:
    exact = process.predictive(setting.c_r, setting.c_t).distance
    return float(np.abs(exact - process.classical(setting.c_r, setting.c_t).distance).max())


def diameter(setting: Setting) -> Statement:
    """Lemma 3.1, its equality case, and the collapse that follows."""
    rng = numpy_generator(setting.seed, "theory", "diameter")
    processes = [random_process(rng, 8, 1, 3 - number % 3, setting.sigma) for number in range(42)]
    found = np.array([_diameter_and_bound(process, setting) for process in processes])
    tight, tight_bound = _diameter_and_bound(two_rooms(0.0), setting)
    silent = chain_of(processes[0].kernel, np.zeros(8), setting.sigma)
    collapsed = float(silent.classical(setting.c_r, setting.c_t).distance.max())
    scales = 10.0 ** np.arange(-4, 0.5, 0.5)
    curves: dict[str, list[float]] = {
        "classical": [],
        "predictive, shared": [],
        "predictive, independent": [],
    }
    for scale in scales:
        process = chain_of(processes[0].kernel, scale * processes[0].reward, setting.sigma)
        curves["classical"].append(float(process.classical(setting.c_r, setting.c_t).distance.max()))
        for kind in ("shared", "independent"):
            d = process.predictive(setting.c_r, setting.c_t, kind).distance
            curves[f"predictive, {kind}"].append(float(d.max()))
    within = bool((found[:, 0] <= found[:, 1] * (1 + 1e-9) + 1e-9).all()) and collapsed < 1e-9
    share = found[:, 0] / found[:, 1]
    return Statement(
        "Lemma 3.1",
        "The classical metric's diameter is at most `c_R / (1 - c_T)` times the largest reward difference; "
        "without reward it is 0.",
        "holds" if within else "fails",
        f"Diameter is {share.min():.2f} to {share.max():.2f} of the bound on 42 random processes, "
        f"{tight / tight_bound:.6f} of it where two rooms never meet; without reward {collapsed:.1e}.",
        pictures=(
            Picture(
                "diameter",
                "Left: diameters under the bound. Right: rewards of one process scaled down; the classical metric "
                "shrinks with them, the predictive one stays at the scale of the predictor's noise.",
                draw.diameters(found, (tight, tight_bound), scales, curves),
            ),
        ),
    )


def _diameter_and_bound(process: Process, setting: Setting) -> tuple[float, float]:
    largest = float(mean_differential(process.reward).max())
    d = process.classical(setting.c_r, setting.c_t).distance
    return float(d.max()), setting.c_r / (1 - setting.c_t) * largest


def contraction(setting: Setting) -> Statement:
    """Lemma 3.2: the rate, its tightness, and one fixed point from two starts."""
    rng = numpy_generator(setting.seed, "theory", "contraction")
    ratios: list[float] = []
    tight = 0.0
    for process in [ring(6, setting.sigma), *(random_process(rng, 6, 2, 3, setting.sigma) for _ in range(9))]:
        delta = process.delta()
        pairs = rng.uniform(0.0, 3.0, (5, 2, 6, 6))
        ratios += [_ratio(left, right, delta, process, setting) for left, right in pairs]
        tight = max(tight, _ratio(pairs[0, 0], pairs[0, 0] + 1.0, delta, process, setting))
    process = random_process(rng, 8, 2, 3, setting.sigma)
    delta = process.delta()
    exact = process.predictive(setting.c_r, setting.c_t, tolerance=1e-11 * max(setting.c_r, 1.0))
    top = 2.0 * float(exact.distance.max()) + 1.0
    starts = {"from 0": np.zeros((8, 8)), "from above": np.full((8, 8), top)}
    errors: dict[str, list[float]] = {}
    for name, d in starts.items():
        errors[name] = [float(np.abs(d - exact.distance).max())]
        for _ in range(150):
            d = apply_operator(d, delta, process.kernel, setting.c_r, setting.c_t)
            errors[name].append(float(np.abs(d - exact.distance).max()))
    allowed = {name: found[0] * setting.c_t ** np.arange(151) for name, found in errors.items()}
    excess = max(float((np.array(found) - allowed[name]).max()) for name, found in errors.items())
    self_distance = float(np.diag(exact.distance).min())
    rounding = 1e-9 * max(1.0, top)
    holds = max(ratios) <= setting.c_t + 1e-9 and excess <= rounding
    return Statement(
        "Lemma 3.2",
        "The predictive operator contracts in the maximum norm at rate `c_T` and has one fixed point.",
        "holds" if holds else "fails",
        f"Largest ratio {max(ratios):.4f} on 50 random pairs of matrices, {tight:.4f} where they differ by "
        "a constant "
        f"(c_T = {setting.c_t:g}); two starts come within {errors['from above'][-1]:.1e} of one fixed point "
        f"after 150 applications (allowed: {allowed['from above'][-1]:.1e}).",
        remarks=(
            "It is the operator that contracts. It does not map pseudometrics to pseudometrics: with independent "
            f"draws every state is away from itself, here by at least {self_distance:.3g}. Symmetry and the triangle "
            "inequality survive. With one draw per state the fixed point is a pseudometric.",
        ),
        pictures=(
            Picture(
                "contraction",
                "Distance to the fixed point over applications of the operator, from two starts, and what the rate "
                "`c_T` allows.",
                draw.contraction(errors, setting.c_t),
            ),
        ),
    )


def _ratio(
    left: np.ndarray, right: np.ndarray, delta: np.ndarray, process: Process, setting: Setting
) -> float:
    one, other = (apply_operator(d, delta, process.kernel, setting.c_r, setting.c_t) for d in (left, right))
    return float(np.abs(one - other).max() / np.abs(left - right).max())


def table(rows: list[list[object]], header: list[str]) -> str:
    """A Markdown table whose numbers have three significant digits."""
    return markdown([[f"{x:.3g}" if isinstance(x, float) else x for x in row] for row in rows], header)
