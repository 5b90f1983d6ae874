"""What readers of the paper ask for: how much hangs on two numbers that it sets by hand."""

from __future__ import annotations

from teb.report.comparison import BEST_SUCCESS
from teb.studies.metaworld import ON_PROBES, PAPER
from teb.studies.plan import Study, Variant

SIGMA_MIN = Study(
    title="The floor of the reward predictor's deviation, which the non-degeneracy of the metric rests on",
    variants=[
        *(
            Variant("teb", {"sigma-min": floor}, name=f"teb (sigma_min={floor:g})")
            for floor in (1e-4, 1e-3, 1e-2, 1e-1, 0.5)
        ),
        Variant("uniform"),
    ],
    envs=("metaworld/box-close", "metaworld/push-back"),
    budgets={"cpu": ON_PROBES, "paper": PAPER},
    measure=BEST_SUCCESS,
    remarks=("The paper's floor is 0.0001.",),
)

ETA = Study(
    title="The weight of the bonus, which the paper chose by task",
    variants=[
        Variant("teb-no-int", name="teb (eta=0)"),
        *(Variant("teb", {"eta": weight}, name=f"teb (eta={weight:g})") for weight in (0.05, 0.25, 1.0, 3.0, 10.0)),
        Variant("uniform"),
    ],
    envs=("metaworld/stick-pull", "metaworld/push-back"),
    budgets={"cpu": ON_PROBES, "paper": PAPER},
    measure=BEST_SUCCESS,
    remarks=("The paper took 0.05 for stick-pull, 10 for push-back and 1 for the rest.",),
)  # fmt: skip
