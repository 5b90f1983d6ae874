"""All methods side by side in mazes without reward: the paper's table 1, and what its readers miss there."""

from __future__ import annotations

from teb.studies.plan import Study, Variant
from teb.studies.published import coverage

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

TWO_MAZES = ("maze2d/square-a", "maze2d/corridor2")

METHODS_STUDY = Study(
    title="Every method on two mazes over 20K steps",
    variants=METHODS,
    envs=TWO_MAZES,
    seeds=[0, 1, 2],
    steps=20_000,
    published={env: numbers for maze in TWO_MAZES for env, numbers in coverage(maze).items()},
)
