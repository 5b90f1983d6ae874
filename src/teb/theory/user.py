"""The statements on one process of the user's, and its metrics as arrays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from teb.maths.exact_mdp import mean_differential, optimal_action_values
from teb.maths.fixed_point import apply_operator
from teb.report import theory as draw
from teb.seeding import numpy_generator
from teb.theory.learned import rank_correlation
from teb.theory.operators import table
from teb.theory.processes import Floats, Process
from teb.theory.statement import Picture, Setting, Statement

NAMES = {
    "classical": "classical",
    "predictive_independent": "predictive, independent",
    "predictive_shared": "predictive, shared",
    "mico": "MICo",
}
MOST_DRAWN = 200
"""Matrices of more states are not drawn: a pixel would be less than a state."""


def metrics_of(process: Process, setting: Setting) -> dict[str, Floats]:
    """The arrays of metrics.npz: values, four metrics, the certified error of each, and the weights."""
    solved = {
        "classical": process.classical(setting.c_r, setting.c_t),
        "predictive_independent": process.predictive(setting.c_r, setting.c_t),
        "predictive_shared": process.predictive(setting.c_r, setting.c_t, "shared"),
        "mico": process.mico(setting.c_r, setting.c_t),
    }
    arrays = {"values": process.values(setting.gamma)}
    for name, found in solved.items():
        arrays[name] = found.distance
        arrays[f"{name}_error_bound"] = np.array(found.error_bound)
    return arrays | {name: np.array(getattr(setting, name)) for name in ("c_r", "c_t", "gamma")}


def statements_of(
    process: Process, own: Floats | None, arrays: dict[str, Floats], setting: Setting
) -> list[Statement]:
    """Every statement for this process, and the user's own metric if there is one."""
    found = [
        _reduction(process, arrays, setting),
        _diameter(process, arrays, setting),
        _contraction(process, setting),
        _nondegeneracy(process, arrays, setting),
        _values(process, arrays, setting),
        _invariance(process, arrays, setting),
    ]
    return [*found, _own(own, arrays)] if own is not None else found


def _reduction(process: Process, arrays: dict[str, Floats], setting: Setting) -> Statement:
    exact = replace(process.with_sigma(0.0), reward_mean=process.rewards)
    apart = float(np.abs(exact.predictive(setting.c_r, setting.c_t).distance - arrays["classical"]).max())
    same = apart <= 1e-6 * max(1.0, float(arrays["classical"].max()))
    return Statement(
        "Reduction",
        "With exact rewards the predictive metric is the classical one.",
        "holds" if same else "fails",
        f"They differ by up to {apart:.3g} (classical diameter {arrays['classical'].max():.3g}).",
    )


def _diameter(process: Process, arrays: dict[str, Floats], setting: Setting) -> Statement:
    found = float(arrays["classical"].max())
    bound = setting.c_r / (1 - setting.c_t) * float(mean_differential(process.reward).max())
    collapsed = " The classical metric has collapsed." if found < 1e-9 else ""
    return Statement(
        "Lemma 3.1",
        "The classical diameter is at most `c_R / (1 - c_T)` times the largest reward difference.",
        "holds" if found <= bound * (1 + 1e-9) + 1e-8 else "fails",
        f"Diameter {found:.4g}, bound {bound:.4g}.{collapsed}",
    )


def _contraction(process: Process, setting: Setting) -> Statement:
    rng = numpy_generator(setting.seed, "theory", "user")
    delta, ratio = process.delta(), 0.0
    for _ in range(3):
        left, right = rng.uniform(0.0, 3.0, (2, process.states, process.states))
        one, other = (
            apply_operator(d, delta, process.kernel, setting.c_r, setting.c_t) for d in (left, right)
        )
        ratio = max(ratio, float(np.abs(one - other).max() / np.abs(left - right).max()))
    return Statement(
        "Lemma 3.2",
        "The predictive operator contracts at rate `c_T`.",
        "holds" if ratio <= setting.c_t + 1e-9 else "fails",
        f"Largest ratio {ratio:.4f} on 3 random pairs of matrices; c_T = {setting.c_t:g}.",
    )


def _nondegeneracy(process: Process, arrays: dict[str, Floats], setting: Setting) -> Statement:
    claim = "The mean distance on S_0 lies in `(0, c_R / (1 - c_T) (2 / sqrt(pi)) sqrt(Sigma)]`."
    inside = np.flatnonzero((process.rewards == 0).all(1))
    if not len(inside):
        return Statement(
            "Theorem 3.3", claim, "does not apply", "No state is without reward under every action."
        )
    sigma = float(process.reward_sigma[inside].max())
    bound = setting.c_r / (1 - setting.c_t) * 2 / np.sqrt(np.pi) * sigma
    d = arrays["predictive_independent"][np.ix_(inside, inside)]
    mean, spread = float(d.mean()), float(np.ptp(d))
    leaves = float(
        process.kernel[inside][:, np.setdiff1d(np.arange(process.states), inside)].sum(1).max(initial=0.0)
    )
    biased = float(np.abs(process.reward_mean[inside]).max())
    order = " All of its distances are equal: no order." if spread <= 1e-6 * max(mean, 1e-300) else ""
    return Statement(
        "Theorem 3.3",
        claim,
        "holds" if 0 < mean <= bound * (1 + 1e-9) + 1e-9 else "fails",
        f"{len(inside)} states without reward: mean {mean:.4g} (to themselves {np.diag(d).min():.4g}), "
        f"bound {bound:.4g}. "
        f"They leave S_0 with probability up to {leaves:.2g}, the predictor's bias there is up to "
        f"{biased:.2g}.{order}",
    )


def _values(process: Process, arrays: dict[str, Floats], setting: Setting) -> Statement:
    gaps = np.abs(arrays["values"][:, None] - arrays["values"][None])
    rows: list[list[object]] = []
    ratios: dict[str, float] = {}
    for name, title in NAMES.items():
        ratios[name] = largest_ratio(gaps, arrays[name])
        beyond = (
            float((gaps > arrays[name] + _rounding(arrays[name]))[np.triu_indices(process.states, 1)].mean())
            if process.states > 1
            else 0.0
        )
        rows.append(
            [title, float(arrays[name].max()), float(np.diag(arrays[name]).max()), ratios[name], beyond]
        )
    worst = ratios["predictive_independent"]
    needs = f"c_R = {setting.c_r:g} (needs >= 1), c_T = {setting.c_t:g} (needs >= gamma = {setting.gamma:g})"
    bias = float(np.abs(process.reward_mean - process.rewards).max())
    few = process.states <= MOST_DRAWN
    shown = {NAMES[name]: arrays[name] for name in NAMES}
    pictures = [
        Picture("value-pairs", "Differences of value against each metric, over pairs of states.",
                draw.scatter_of_values(gaps, shown)),
        *([Picture("metrics", "The metrics between all states.", draw.matrices(shown))] if few else []),
    ]  # fmt: skip
    return Statement(
        "Theorem 3.4",
        "`|V(s_i) - V(s_j)| <= d(s_i, s_j)`.",
        "holds" if worst <= 1 + 1e-6 else "fails",
        f"Largest |V_i - V_j| / d: {worst:.4g} for the predictive metric, {ratios['classical']:.4g} for "
        "the classical one. "
        f"{needs}; the predictor is off by up to {bias:.2g}.",
        table(
            rows,
            ["metric", "diameter", "largest to itself", "largest ratio of value", "share of pairs beyond"],
        ),
        pictures=tuple(pictures),
    )


def _rounding(metric: Floats) -> float:
    return 1e-7 * max(1.0, float(np.abs(metric).max()))


def largest_ratio(gaps: Floats, metric: Floats) -> float:
    """The largest |V_i - V_j| / d over pairs of different states; 0 / 0 counts as 0."""
    pairs = np.triu_indices(len(metric), 1)
    gap, d = gaps[pairs], metric[pairs]
    real = gap > _rounding(gaps)
    if not real.any():
        return 0.0
    with np.errstate(divide="ignore"):
        return float(np.max(gap[real] / np.maximum(d[real], 0.0)))


def _invariance(process: Process, arrays: dict[str, Floats], setting: Setting) -> Statement:
    phi = arrays["predictive_shared"][0]
    q = optimal_action_values(process.transitions, process.rewards, setting.gamma)
    shaping = setting.gamma * process.transitions @ phi - phi[:, None]
    shaped = optimal_action_values(process.transitions, process.rewards + shaping, setting.gamma)
    error = float(np.abs(shaped + phi[:, None] - q).max() / max(1.0, float(np.abs(shaped).max())))
    return Statement(
        "Theorem 3.5",
        "Shaping by the distance to state 0 gives `Q*' = Q* - Phi` with 1-step backups.",
        "holds" if error < 1e-9 else "fails",
        f"Relative error {error:.0e}.",
    )


def _own(own: Floats, arrays: dict[str, Floats]) -> Statement:
    """The user's metric against each exact one."""
    gaps = np.abs(arrays["values"][:, None] - arrays["values"][None])
    pairs = np.triu_indices(len(own), 1)
    mine = own[pairs]
    rows: list[list[object]] = []
    ranks: dict[str, float] = {}
    for name, title in NAMES.items():
        theirs = arrays[name][pairs]
        varied = len(mine) > 1 and np.ptp(mine) > 0 and np.ptp(theirs) > _rounding(theirs)
        ranks[name] = rank_correlation(own, arrays[name]) if varied else float("nan")
        positive = theirs > 0
        ratio = float(np.median(mine[positive] / theirs[positive])) if positive.any() else float("nan")
        rows.append([title, ranks[name], ratio, float(np.abs(own - arrays[name]).max())])
    known = {name: rank for name, rank in ranks.items() if np.isfinite(rank)}
    best = max(known, key=lambda name: known[name]) if known else None
    nearest = (
        f"ranks pairs most like the {NAMES[best]} metric ({known[best]:+.3f})"
        if best
        else "has no order to compare"
    )
    ratio = largest_ratio(gaps, own)
    asymmetric = float(np.abs(own - own.T).max())
    return Statement(
        "Your metric",
        "How the array `metric` of the file compares with the exact ones.",
        "measured",
        f"It {nearest}; largest |V_i - V_j| / d {ratio:.4g}, so it "
        f"{'bounds' if ratio <= 1 + 1e-6 else 'does not bound'} "
        f"differences of value; smallest entry {own.min():.3g}, asymmetry up to {asymmetric:.2g}.",
        table(rows, ["exact metric", "rank correlation", "median ratio", "largest difference"]),
    )
