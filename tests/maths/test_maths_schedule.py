from __future__ import annotations

import numpy as np
import pytest

from teb.maths.schedule import parse_schedule, scheduled


@pytest.mark.parametrize("value", [0.2, "0.2"])
def test_a_number_stays(value: float | str) -> None:
    assert [scheduled(parse_schedule(value), step) for step in (0, 1, 10**9)] == [0.2] * 3


def test_linear_is_an_interpolation_that_stops_at_its_ends() -> None:
    schedule = parse_schedule("linear(1.0, 0.1,500000)")
    for step in (0, 1, 125_000, 250_000, 499_999, 500_000, 10**7):
        assert scheduled(schedule, step) == pytest.approx(np.interp(step, [0, 500_000], [1.0, 0.1]))


@pytest.mark.parametrize("value", ["linear(1,2)", "cosine(1,2,3)", "linear(1,b,3)", "", "linear(1,0,0)"])
def test_what_is_no_schedule_is_refused_with_its_words(value: str) -> None:
    with pytest.raises(ValueError, match=r"got '"):
        parse_schedule(value)
