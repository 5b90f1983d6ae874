"""How numbers are written in titles, tables and axes."""

from __future__ import annotations

import math

MISSING = "missing"

SHARES = {"coverage": 2, "success": 3, "eval_success": 3}
"""Series between 0 and 1, and with how many decimals papers print them."""

_NAMES = {"success": "success rate in training", "eval_success": "episode success rate"}


def short_steps(steps: float) -> str:
    """`100000` as 100K, `12345` as 12.3K, `1500000` as 1.5M."""
    for size, unit in ((1_000_000, "M"), (1_000, "K")):
        # 999,950 and more would round up to "1000K".
        if abs(steps) >= size * (0.99995 if unit == "M" else 1):
            return f"{steps / size:.1f}".removesuffix(".0") + unit
    return f"{steps:g}"


def duration(seconds: float) -> str:
    """Wall-clock time as h:mm:ss."""
    if not math.isfinite(seconds):
        return MISSING
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def number(value: float, series: str) -> str:
    """Shares with their decimals, anything else with four significant digits, NaN as missing."""
    if not math.isfinite(value):
        return MISSING
    return f"{value:.{SHARES[series]}f}" if series in SHARES else f"{value:.4g}"


def spread(mean: float, std: float, series: str) -> str:
    """`mean ± std`, or the mean alone where there is no deviation."""
    return f"{number(mean, series)} ± {number(std, series)}" if math.isfinite(std) else number(mean, series)


def series_name(series: str) -> str:
    """Name of a series as axes and headers spell it."""
    return _NAMES.get(series, series.replace("_", " "))
