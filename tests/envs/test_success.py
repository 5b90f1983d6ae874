from __future__ import annotations

import numpy as np

from teb.envs.success import RECENT, SuccessMeter


def episode(meter: SuccessMeter, *successes: bool) -> dict[str, float]:
    said = [
        meter.observe_step({"success": success}, ended=t == len(successes) - 1)
        for t, success in enumerate(successes)
    ]
    assert not any(said[:-1])
    return dict(said[-1])


def test_success_at_any_step_is_success_of_the_episode() -> None:
    meter = SuccessMeter()
    assert meter.metrics() == {"success": 0.0, "successes": 0.0}
    assert episode(meter, False, True, False) == {"success": 1.0}
    assert episode(meter, False, False) == {"success": 0.0}
    assert meter.metrics() == {"success": 0.5, "successes": 1.0}


def test_the_rate_is_that_of_the_latest_episodes_and_the_count_that_of_all() -> None:
    meter, outcomes = SuccessMeter(), np.random.default_rng(0).random(60) < 0.4
    for count, outcome in enumerate(outcomes, start=1):
        episode(meter, bool(outcome))
        recent = outcomes[:count][-RECENT:]
        assert meter.metrics() == {"success": recent.mean(), "successes": float(outcomes[:count].sum())}


def test_a_state_goes_on_within_an_episode() -> None:
    first = SuccessMeter()
    for _ in range(25):
        episode(first, True)
    first.observe_step({"success": True}, ended=False)
    second = SuccessMeter()
    second.load(first.state())
    for meter in (first, second):
        assert episode(meter, False) == {"success": 1.0}
        assert episode(meter, False) == {"success": 0.0}
    assert first.metrics() == second.metrics()
