"""Manipulation from pixels: the paper's table 2, its ablations, and success beside distractors, which it lacks.

A Meta-World run of the paper's length takes days on a processor. So the budget `cpu` of what can be asked of any sparse
task from pixels asks it of the probes, and what needs Meta-World trains a fraction of the paper's steps there.
"""

from __future__ import annotations

from teb.report.comparison import BEST_SUCCESS
from teb.studies.plan import Budget, Options, Study, Variant
from teb.studies.published import TASKS, success

PROBES = ("probe/near", "probe/far")

PAPER = Budget(
    "paper",
    500_000,
    range(3),
    remark="500,000 steps are a million frames, the least that the paper names; which tasks had more is not told.",
)  # fmt: skip
ON_PROBES = Budget(
    "cpu",
    10_000,
    range(2),
    envs=PROBES,
    remark="Two small visual tasks stand in for Meta-World: the paper has no numbers to compare with.",
)  # fmt: skip
SHORT = Budget(
    "cpu",
    25_000,
    range(2),
    envs=("metaworld/drawer-close", "metaworld/coffee-push"),
    options={"render-quality": "fast"},
    remark="25,000 steps are a twentieth of the paper's least; drawer-close is an easy task and none of the paper's.",
)  # fmt: skip

TUNED: dict[str, Options] = {
    "metaworld/stick-pull": {"eta": 0.05},
    "metaworld/push-back": {"eta": 10.0},
}
"""The weights of the bonus that the paper chose by task; 1 elsewhere."""

METHODS = [
    Variant("teb", where=TUNED, name="teb"),
    *(Variant(name) for name in ("icm", "drm", "cesd", "lbs", "rap", "ctrlsr", "drqv2", "uniform")),
]

METAWORLD = Study(
    title="Every method of the paper's table 2 (and figure 2) from pixels",
    variants=METHODS,
    envs=TASKS,
    budgets={"cpu": SHORT, "paper": PAPER},
    measure=BEST_SUCCESS,
    published=success(),
)

DENSE: Options = {"reward-mode": "dense_scaled"}

LEARNS = Study(
    title="Whether learning from Meta-World's pictures works at all: an easy task, and the dense reward",
    variants=[Variant("teb"), Variant("drqv2"), Variant("uniform")],
    envs=("metaworld/drawer-close",),
    budgets={
        "cpu": Budget(
            "cpu",
            8_000,
            range(2),
            options={**DENSE, "render-quality": "fast", "replay-capacity": 20_000, "eval-every": 2000},
            remark="An easy task, none of the paper's: uniform actions close the drawer now and then.",
        ),
        "gpu": Budget(
            "paper",
            16_000,
            range(1),
            envs=("metaworld/box-close",),
            options={**DENSE, "replay-capacity": 100_000, "eval-every": 8000},
            remark="One of the paper's tasks for as long as a GPU was at hand: a thirtieth of the paper's least.",
        ),
    },
    measure=BEST_SUCCESS,
)  # fmt: skip

ABLATED = ("metaworld/box-close", "metaworld/pick-out-of-hole", "metaworld/coffee-push")
"""Two tasks that the paper's text names, and a third with the same weight of the bonus; its captions name none."""

COMPONENTS = Study(
    title="Which part of TEB helps: representation, bonus, and the representation in other methods (figure 4 left)",
    variants=[
        *(Variant(name) for name in ("teb", "teb-no-rep", "drqv2", "icm", "cesd", "icm+rep", "cesd+rep")),
        Variant("uniform"),
    ],
    envs=ABLATED,
    budgets={"cpu": ON_PROBES, "paper": PAPER},
    measure=BEST_SUCCESS,
    final="bars",
)

ANCHORS = Study(
    title="What the potential is measured from: batch mean, another sample, the first state (figure 4 right)",
    variants=[
        *(
            Variant("teb", {"anchor": anchor}, name=f"teb (anchor={anchor})")
            for anchor in ("batch_mean", "random", "s0")
        ),
        Variant("uniform"),
    ],
    envs=ABLATED,
    budgets={
        "cpu": Budget("cpu", 5_000, range(2), envs=PROBES, remark=ON_PROBES.remark),
        "paper": Budget("paper", 250_000, range(3), remark="250,000 steps are half of the ablations' million frames."),
    },
    measure=BEST_SUCCESS,
    remarks=("As in the paper, after half of the training.",),
    final="bars",
)  # fmt: skip

REWARD_DIFFERENTIAL = Study(
    title="Predicted against observed reward differences in the metric, both without bonus (figure 5)",
    variants=[Variant(name) for name in ("teb-no-int", "teb-env-metric", "teb", "uniform")],
    envs=ABLATED,
    budgets={"cpu": ON_PROBES, "paper": PAPER},
    measure=BEST_SUCCESS,
)

KINDS = ("light", "camera", "colour", "background", "texture", "clutter")
DISTRACTED: Options = {f"distract-{kind}": True for kind in KINDS}

DISTRACTORS = Study(
    title="Success with and without visual distractors",
    variants=[
        *(
            variant
            for agent in ("teb", "drqv2", "icm", "rap")
            for variant in (Variant(agent), Variant(agent, DISTRACTED, name=f"{agent} (distracted)"))
        ),
        Variant("uniform"),
    ],
    envs=ABLATED,
    budgets={"cpu": SHORT, "paper": PAPER},
    measure=BEST_SUCCESS,
    remarks=("Distracted: all six kinds at the easy scale, drawn anew in each episode.",),
)  # fmt: skip

PROBE = Study(
    title="Every visual method on two small tasks with a moving background",
    variants=[
        *(
            Variant(name)
            for name in (
                "teb", "teb-no-rep", "teb-no-int", "teb-env-metric", "teb-p", "drqv2", "drm", "rap", "ctrlsr",
                "dbc", "mico", "icm", "icm+rep", "lbs", "lbs+rep", "cesd", "cesd+rep",
            )
        ),
        Variant("uniform"),
    ],
    envs=PROBES,
    budgets={"cpu": Budget("cpu", 10_000, range(2))},
    measure=BEST_SUCCESS,
)  # fmt: skip
