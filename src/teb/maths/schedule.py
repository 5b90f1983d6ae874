"""Numbers that change while a run goes on."""

from __future__ import annotations

import re

_LINEAR = re.compile(r"linear\(\s*([^,\s]+)\s*,\s*([^,\s]+)\s*,\s*([^,\s)]+)\s*\)")

Schedule = tuple[float, float, float]
"""Start, end, and how many steps lie between them."""


def parse_schedule(value: float | str) -> Schedule:
    """A number that stays, or "linear(1.0,0.1,500000)"."""
    if not isinstance(value, str):
        return float(value), float(value), 1.0
    match = _LINEAR.fullmatch(value.strip())
    try:
        start, end, steps = (float(part) for part in match.groups()) if match else (*[float(value)] * 2, 1.0)
    except ValueError:
        raise ValueError(f"must be a number or linear(start,end,steps), got {value!r}") from None
    if not steps > 0:
        raise ValueError(f"linear needs steps above 0, got {value!r}")
    return start, end, steps


def scheduled(schedule: Schedule, step: int) -> float:
    """Start + clip(step / steps, 0, 1) (end - start), the linear schedule of DrQ-v2 (Yarats et al. 2022)."""
    start, end, steps = schedule
    return start + min(max(step / steps, 0.0), 1.0) * (end - start)
