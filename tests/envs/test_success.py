from __future__ import annotations

import numpy as np

from teb.envs.success import RECENT, SuccessMeter


def fed(outcomes: list[bool]) -> SuccessMeter:
    meter = SuccessMeter()
    for outcome in outcomes:
        meter.observe(np.zeros(3), 0)
        assert meter.end_episode({"success": outcome}) == {"success": float(outcome)}
    return meter


def test_nothing_has_succeeded_before_the_first_end() -> None:
    assert fed([]).metrics() == {"success": 0.0, "successes": 0.0}


def test_the_rate_is_over_the_latest_episodes_and_the_count_over_all() -> None:
    assert fed([True, False, False, True]).metrics() == {"success": 0.5, "successes": 2.0}
    outcomes = [True] * RECENT + [False] * (RECENT // 4)
    assert fed(outcomes).metrics() == {"success": 0.75, "successes": float(RECENT)}


def test_a_loaded_meter_goes_on_as_if_nothing_had_happened() -> None:
    rng = np.random.default_rng(0)
    outcomes = rng.random(3 * RECENT) < 0.5
    for cut in (0, 5, RECENT, 2 * RECENT + 1):
        meter = SuccessMeter()
        meter.load(fed(outcomes[:cut].tolist()).state())
        for outcome in outcomes[cut:]:
            meter.end_episode({"success": outcome})
        assert meter.metrics() == fed(outcomes.tolist()).metrics()
        assert meter.state().keys() == fed([]).state().keys()
