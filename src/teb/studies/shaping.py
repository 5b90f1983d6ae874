"""What really drives exploration: the readings of the bonus in mazes, its controls, and the particle anchor."""

from __future__ import annotations

from itertools import product

from teb.studies.plan import Budget, Study, Variant
from teb.studies.published import coverage

GRID = [
    Variant("teb", {"phi-action": action, "shaping": shaping, "phi-reward": reward})
    for reward, action, shaping in product(
        ("mean", "sample"), ("policy", "replay_policy"), ("window_gamma", "window_gamma_n", "one")
    )
]

CONTROLS = [Variant("uniform"), Variant("eta0"), Variant("centroid")]

OURS = [Variant("teb-p"), Variant("teb-p", {"bonus": "potential"})]

PUBLISHED = coverage("teb", "cesd")

FIRST_PARTICLES = {"phi-action": "policy", "shaping": "window_gamma", "neighbours": 12}
"""The particle anchor under the policy's own action: how it went at the paper's size."""

GRID_STUDY = Study(
    title="Readings of the paper's bonus in mazes, with controls",
    variants=[*OURS, *CONTROLS, *GRID],
    envs=["maze2d/square-a", "maze2d/corridor2"],
    budgets={"cpu": Budget("cpu", 8_000, [0, 1, 2])},
)

LONG = Study(
    title="The same over the paper's 100K steps, one maze and one seed",
    variants=[*OURS, *CONTROLS, *GRID],
    envs=["maze2d/square-a"],
    budgets={"cpu": Budget("cpu", 100_000, [0])},
    published=PUBLISHED,
)

PARTICLES = Study(
    title="The particle anchor over 60K steps",
    variants=[
        *OURS,
        Variant("teb-p", {"shaping": "window_gamma"}),
        Variant("uniform"),
        Variant("eta0"),
        Variant("teb"),
    ],
    envs=["maze2d/square-a"],
    budgets={"cpu": Budget("cpu", 60_000, [0, 1, 2])},
    published=PUBLISHED,
)

PAPER_SIZE = Study(
    title="The same at the paper's size, one seed",
    variants=[
        Variant("teb-p", FIRST_PARTICLES),
        Variant("teb-p", {**FIRST_PARTICLES, "bonus": "potential"}),
        Variant("teb"),
        Variant("teb", {"reading": "literal"}),
        Variant("eta0"),
        Variant("uniform"),
    ],
    envs=["maze2d/square-a"],
    budgets={"paper": Budget("paper", 100_000, [0])},
    published=PUBLISHED,
)

READINGS = Study(
    title="Further readings of the paper's bonus, in search of its published coverage",
    variants=[
        Variant("uniform"),
        Variant("teb"),
        Variant("teb", {"reading": "theorem-faithful"}),
        Variant("teb", {"reading": "literal"}),
        *(Variant("teb", {"anchor": anchor}) for anchor in ("random", "s0", "ema")),
        *(Variant("teb", {"eta": eta}) for eta in (0.05, 10.0, 100.0)),
        *(Variant("teb", {"phi-action": action}) for action in ("replay_replay", "expected")),
        *(Variant("teb", {"shaping": shaping}) for shaping in ("sum", "first_step")),
        Variant("teb", {"shaping": "sum", "phi-action": "replay_policy"}),
        Variant("teb", {"bonus": "potential"}),
        Variant("teb", {"bonus": "potential", "anchor": "random"}),
        Variant("teb", {"bonus": "potential", "anchor": "s0"}),
        Variant("teb", {"reward-model": "frozen", "phi-reward": "sample", "anchor-reward": "pred_sample"}),
        Variant("teb", {"fint-norm": "std"}),
        Variant("teb", {"w-dist": "w2"}),
        Variant("teb", {"metric-target": "ema"}),
        Variant("teb", {"action-limit": 1.0, "uniform-steps": 4000}),
    ],
    envs=["maze2d/square-a"],
    budgets={"cpu": Budget("cpu", 8_000, [0])},
)

PRECISION = Study(
    title="bfloat16 against float32 in the hidden products",
    variants=[
        *(
            Variant(
                "teb-p",
                {"bonus": "potential", "precision": precision},
                name=f"teb-p (bonus=potential) in {precision}",
            )
            for precision in ("bf16", "fp32")
        ),
        Variant("uniform"),
    ],
    envs=["maze2d/square-a"],
    budgets={"cpu": Budget("cpu", 20_000, [0, 1])},
)
