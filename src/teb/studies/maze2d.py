"""All methods side by side in mazes without reward: the paper's table 1, and what its readers miss there."""

from __future__ import annotations

from teb.studies.plan import Budget, Study, Variant
from teb.studies.published import MAZES, coverage

COMPETITORS = ("icm", "rnd", "disagreement", "protorl", "lbs", "diayn", "smm", "lsd", "becl", "cesd")
"""Those of the paper's table."""

MISSED = ("apt", "liberty", "eme", "cic")
"""Those that it leaves out: particle entropy, two bisimulation bonuses, contrastive skills with particle entropy."""

METHODS = [
    Variant("teb"),
    Variant("teb-p"),
    Variant("teb-p", {"bonus": "potential"}),
    *(Variant(name) for name in (*COMPETITORS, *MISSED)),
    Variant("eta0"),
    Variant("uniform"),
]

MAZE2D = Study(
    title="Every method in the paper's mazes (table 1, figures 3, 7 and 8)",
    variants=METHODS,
    envs=MAZES,
    budgets={
        "cpu": Budget(
            "cpu", 20_000, range(3), remark="Published numbers are after 100,000 steps, of ten seeds."
        ),
        "paper": Budget("paper", 100_000, range(10)),
    },
    published=coverage(),
    maps={
        "maps": tuple(f"maze2d/{name}" for name in ("square-a", "corridor2", "square-bottleneck")),
        "maps-further": tuple(
            f"maze2d/{name}" for name in ("square-b", "square-c", "square-d", "square-tree")
        ),
    },
    map_rows=("teb", "teb-p", "teb-p (bonus=potential)", "icm", "smm", "cesd", "cic", "eta0", "uniform"),
)
