"""Numbers that papers report, as (mean, standard deviation)."""

from __future__ import annotations

from teb.report.grid import Published

_MAZES = ("square-a", "square-b", "square-c", "square-d", "corridor2", "square-tree", "square-bottleneck")

_TABLE_1 = {
    "Disagreement": "0.38 0.08  0.38 0.20  0.39 0.19  0.43 0.14  0.48 0.10  0.32 0.10  0.34 0.07",
    "ICM": "0.54 0.08  0.57 0.14  0.46 0.06  0.59 0.05  0.75 0.07  0.41 0.04  0.33 0.06",
    "LBS": "0.30 0.04  0.27 0.05  0.25 0.02  0.33 0.03  0.44 0.07  0.23 0.04  0.21 0.04",
    "Proto": "0.40 0.04  0.40 0.06  0.38 0.09  0.48 0.04  0.71 0.04  0.24 0.02  0.23 0.01",
    "RND": "0.42 0.10  0.60 0.13  0.39 0.12  0.37 0.04  0.63 0.10  0.28 0.09  0.32 0.09",
    "BeCL": "0.52 0.05  0.48 0.12  0.43 0.09  0.47 0.05  0.67 0.13  0.37 0.07  0.30 0.05",
    "CeSD": "0.71 0.05  0.66 0.05  0.60 0.05  0.57 0.06  0.82 0.06  0.40 0.02  0.46 0.05",
    "LSD": "0.42 0.03  0.43 0.06  0.37 0.02  0.45 0.03  0.56 0.05  0.28 0.02  0.35 0.04",
    "DIAYN": "0.43 0.05  0.48 0.06  0.42 0.04  0.47 0.03  0.57 0.06  0.37 0.04  0.28 0.04",
    "SMM": "0.42 0.10  0.35 0.14  0.32 0.07  0.35 0.02  0.84 0.04  0.25 0.02  0.34 0.06",
    "TEB": "0.87 0.07  0.85 0.07  0.74 0.04  0.77 0.04  0.93 0.02  0.50 0.04  0.47 0.03",
}
"""State coverage of mazes after 100K steps, ten seeds (table 1 of Liang et al. 2026)."""


def coverage(env: str, *methods: str) -> Published:
    """What the paper reports of these methods in one maze, {env: {row: (mean, std)}}; of all without names."""
    place = 2 * _MAZES.index(env.removeprefix("maze2d/"))
    numbers = {method: line.split()[place : place + 2] for method, line in _TABLE_1.items()}
    return {env: {f"{m} (paper)": (float(numbers[m][0]), float(numbers[m][1])) for m in methods or numbers}}
