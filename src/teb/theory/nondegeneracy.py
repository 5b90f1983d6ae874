"""Theorem 3.3: where the predictive metric keeps a scale, what that scale carries, and where its bound breaks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from teb.maths.exact_mdp import SelfPairs
from teb.report import theory as draw
from teb.seeding import numpy_generator
from teb.theory.operators import table
from teb.theory.processes import Floats, Process, fork, lazy_ring, random_process, ring
from teb.theory.statement import Picture, Setting, Statement

SIGMA_MIN = 1e-4
"""The floor of the predictor's deviation in the paper."""


@dataclass(frozen=True)
class Case:
    """A process, how self-pairs draw, and the metric on its states without reward."""

    name: str
    process: Process
    self_pairs: SelfPairs
    distance: Floats
    """[S, S], all states."""
    bound: float
    """c_R / (1 - c_T) (2 / sqrt(pi)) sqrt(Sigma)."""

    @property
    def silent(self) -> Floats:
        """The metric between states of S_0 = {s : r(s, a) = 0 for all a}."""
        inside = np.flatnonzero((self.process.rewards == 0).all(1))
        return self.distance[np.ix_(inside, inside)]

    @property
    def within(self) -> bool:
        """Whether the mean pairwise distance on S_0, the theorem's "expected diameter", is positive and in bound."""
        return bool(0.0 < self.silent.mean() <= self.bound * (1 + 1e-9))


def case(name: str, process: Process, self_pairs: SelfPairs, setting: Setting) -> Case:
    """Solve one case; its Sigma is the largest variance on S_0."""
    sigma = float(process.reward_sigma[(process.rewards == 0).all(1)].max())
    bound = setting.c_r / (1 - setting.c_t) * 2 / np.sqrt(np.pi) * sigma
    tolerance = min(1e-9, 1e-7 * bound) if sigma else 1e-9
    d = process.predictive(setting.c_r, setting.c_t, self_pairs, max(tolerance, 1e-13)).distance
    return Case(name, process, self_pairs, d, bound)


def nondegeneracy(setting: Setting) -> Statement:
    """The theorem where its conditions hold, and its counterexamples."""
    sigma = setting.sigma
    rng = numpy_generator(setting.seed, "theory", "nondegeneracy")
    walk = random_process(rng, 8, 1, 3, sigma)
    walk = replace(walk, rewards=np.zeros((8, 1)), reward_mean=np.zeros((8, 1)))
    biased = ring(6, sigma)
    biased = replace(biased, reward_mean=2 * sigma * np.array([[1.0, -1.0] * 3]).T)
    cases = [
        case("ring", ring(6, sigma), "independent", setting),
        case("ring", ring(6, sigma), "shared", setting),
        case("lazy ring", lazy_ring(6, sigma), "shared", setting),
        case("random walk", walk, "independent", setting),
        case("random walk", walk, "shared", setting),
        case("ring, sigma at its floor", ring(6, SIGMA_MIN), "independent", setting),
        case("fork to a reward", fork(SIGMA_MIN), "independent", setting),
        case("ring, biased predictor", biased, "independent", setting),
    ]
    equal, lazy, floor, leaking = cases[0], cases[2], cases[5], cases[6]
    spread = float(np.ptp(equal.distance))
    others = lazy.distance[~np.eye(6, dtype=bool)]
    broken = [c for c in cases if not c.within]
    as_claimed = all(c.within for c in cases[:6])  # S_0 closed, no bias
    which = ", ".join(f"{c.name}: {c.silent.mean():.3g} > {c.bound:.2g}" for c in broken)
    return Statement(
        "Theorem 3.3",
        "With predictor variance Sigma the expected diameter of the states without reward lies in "
        "`(0, c_R / (1 - c_T) (2 / sqrt(pi)) sqrt(Sigma)]`.",
        "fails" if not as_claimed else "holds under conditions" if broken else "holds",
        f"Positive in {sum(c.silent.mean() > 0 for c in cases)} of {len(cases)} cases, below the upper bound in "
        f"{len(cases) - len(broken)}: it needs paths that lead to no reward, and an unbiased predictor"
        + (f" ({which}). " if broken else ". ")
        + f"On a ring all {equal.distance.size} entries are {equal.distance.mean():.3f}, self-pairs included "
        f"(spread {spread:.0e}): scale without order.",
        table(
            [
                [
                    c.name,
                    c.self_pairs,
                    float(c.silent.mean()),
                    float(c.silent.max()),
                    float(np.diag(c.silent).min()),
                    c.bound,
                    "yes" if c.within else "no",
                ]
                for c in cases
            ],
            ["process", "self-pairs", "mean on S_0", "largest", "to itself", "bound", "mean within"],
        ),
        (
            "**Scale, not information.** Where Sigma is the same everywhere and S_0 is closed, the fixed point with "
            "independent draws is one constant for every pair, self-pairs included: the paper's interval is attained "
            "at its end, and all states are equally far. With one draw per state, distances differ "
            f"({others.min():.3g} to {others.max():.3g} on the lazy ring), and what differs comes from the "
            "dynamics: how "
            "soon paths can be coupled to meet.",
            f"**The floor is the guarantee.** On constant rewards the likelihood drives sigma to its hand-set floor, "
            f"{SIGMA_MIN:g}; the scale is then {floor.silent.mean():.2g}.",
            "**The upper bound needs S_0 closed.** The proof replaces successors of S_0-pairs by "
            "S_0-pairs. One path from "
            "S_0 to a reward is enough to break it.",
            "**It needs an unbiased predictor of the immediate reward.** The residual contains the bias; "
            "with unequal "
            "biases it is folded normal. The predictor's target is an N-step return, so near rewards bias "
            "is systematic.",
            "**A diameter is a largest distance.** The proof bounds the mean pairwise distance.",
            "What does hold in general: every distance is at most `c_R / (1 - c_T)` times the largest "
            "Delta over *all* "
            "pairs, and at least `c_R` times its own Delta.",
        ),
        (
            Picture(
                "nondegeneracy",
                "The metric between all states. Ring: one constant. With one draw per state: geometry from dynamics. "
                "Fork: states 0, 1, 2 have no reward, yet 2 is far.",
                draw.matrices(
                    {
                        "ring, independent": equal.distance,
                        "lazy ring, shared": lazy.distance,
                        "random walk, shared": cases[4].distance,
                        "fork, sigma at its floor": leaking.distance,
                    }
                ),
            ),
        ),
    )
