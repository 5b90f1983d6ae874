"""Numbers that papers report, as (mean, standard deviation), under the names that their methods have here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from teb.report.grid import Published

MAZES = tuple(
    f"maze2d/{name}"
    for name in (
        "square-a", "square-b", "square-c", "square-d", "corridor2", "square-tree", "square-bottleneck",
    )
)  # fmt: skip
"""The mazes of table 1 of Liang et al. 2026."""

TASKS = tuple(
    f"metaworld/{name}"
    for name in ("pick-out-of-hole", "pick-place", "push-back", "box-close", "stick-pull", "coffee-push")
)
"""The tasks of its table 2."""

_TABLE_1 = {
    "disagreement": "0.38 0.08  0.38 0.20  0.39 0.19  0.43 0.14  0.48 0.10  0.32 0.10  0.34 0.07",
    "icm": "0.54 0.08  0.57 0.14  0.46 0.06  0.59 0.05  0.75 0.07  0.41 0.04  0.33 0.06",
    "lbs": "0.30 0.04  0.27 0.05  0.25 0.02  0.33 0.03  0.44 0.07  0.23 0.04  0.21 0.04",
    "protorl": "0.40 0.04  0.40 0.06  0.38 0.09  0.48 0.04  0.71 0.04  0.24 0.02  0.23 0.01",
    "rnd": "0.42 0.10  0.60 0.13  0.39 0.12  0.37 0.04  0.63 0.10  0.28 0.09  0.32 0.09",
    "becl": "0.52 0.05  0.48 0.12  0.43 0.09  0.47 0.05  0.67 0.13  0.37 0.07  0.30 0.05",
    "cesd": "0.71 0.05  0.66 0.05  0.60 0.05  0.57 0.06  0.82 0.06  0.40 0.02  0.46 0.05",
    "lsd": "0.42 0.03  0.43 0.06  0.37 0.02  0.45 0.03  0.56 0.05  0.28 0.02  0.35 0.04",
    "diayn": "0.43 0.05  0.48 0.06  0.42 0.04  0.47 0.03  0.57 0.06  0.37 0.04  0.28 0.04",
    "smm": "0.42 0.10  0.35 0.14  0.32 0.07  0.35 0.02  0.84 0.04  0.25 0.02  0.34 0.06",
    "teb": "0.87 0.07  0.85 0.07  0.74 0.04  0.77 0.04  0.93 0.02  0.50 0.04  0.47 0.03",
}
"""State coverage of mazes after 100K steps, ten seeds."""

_TABLE_2 = {
    "icm": "0.761 0.045  0.955 0.014  0.000 0.000  0.973 0.013  0.715 0.016  0.870 0.019",
    "drm": "0.599 0.065  0.811 0.030  0.611 0.024  0.900 0.028  0.334 0.025  0.606 0.046",
    "cesd": "0.000 0.000  0.267 0.015  0.319 0.010  0.000 0.000  0.000 0.000  0.793 0.027",
    "lbs": "0.576 0.022  0.873 0.037  0.053 0.027  0.937 0.027  0.517 0.025  0.344 0.022",
    "rap": "0.502 0.041  0.776 0.031  0.650 0.014  0.970 0.014  0.627 0.013  0.791 0.024",
    "ctrlsr": "0.000 0.000  0.470 0.039  0.361 0.070  0.919 0.038  0.313 0.010  0.838 0.033",
    "teb": "0.931 0.017  0.982 0.010  0.984 0.012  0.968 0.016  0.878 0.022  0.917 0.023",
}
"""Best episode success rate after one to three million frames, three seeds."""


def coverage(*methods: str) -> Published:
    """Table 1 by maze, {env: {row: (mean, std)}}; of all methods if none is named."""
    return _by_env(_TABLE_1, MAZES, methods)


def success(*methods: str) -> Published:
    """Table 2 by task, {env: {row: (mean, std)}}; of all methods if none is named."""
    return _by_env(_TABLE_2, TASKS, methods)


def _by_env(table: Mapping[str, str], envs: Sequence[str], methods: Sequence[str]) -> Published:
    numbers = {row: [float(word) for word in table[row].split()] for row in methods or table}
    return {
        env: {row: (found[2 * place], found[2 * place + 1]) for row, found in numbers.items()}
        for place, env in enumerate(envs)
    }
