from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from explorer_setup import small_agent, small_teb

from teb.explorers.teb import CONTROL, LITERAL, PARTICLES, THEOREM_FAITHFUL, TebConfig

IMPOSSIBLE: list[tuple[str, dict[str, Any]]] = [
    *(
        (name, {name: 0})
        for name in ("particles", "neighbours", "phi_samples", "reward_horizon", "pred_hidden")
    ),
    *((name, {name: -1}) for name in ("particles", "neighbours", "phi_samples", "reward_horizon")),
    *((name, {name: 0.0}) for name in ("model_lr", "sigma_min")),
    *((name, {name: math.nan}) for name in ("model_lr", "sigma_min", "eta", "c_r", "c_t", "metric_tau")),
    *((name, {name: math.inf}) for name in ("model_lr", "eta", "lambda_r")),
    *((name, {name: -0.5}) for name in ("eta", "c_r", "lambda_r", "lambda_p", "nll_scale", "rep_grad_clip")),
    *((name, {name: 1.5}) for name in ("anchor_rate", "metric_tau", "c_t")),
    *((name, {name: -0.1}) for name in ("anchor_rate", "metric_tau", "c_t")),
    ("c_t", {"c_t": 1.0}),
    ("sigma_max", {"sigma_max": 1e-5}),
    *(("sigma_max", {"sigma_max": bad}) for bad in (math.nan, math.inf)),
    ("neighbours", {"neighbours": 20, "particles": 10}),
    ("anchor_reward", {"anchor": "s0", "anchor_reward": "replay_1"}),
    ("anchor_reward", {"anchor": "particles", "anchor_reward": "replay_nstep"}),
    ("w_dist", {"transition": "deterministic", "w_dist": "w2"}),
    ("w_dist", {"transition": "deterministic", "w_dist": "rap"}),
    ("w_dist", {"transition": "deterministic", "w_dist": "sample"}),
]


@pytest.mark.parametrize(("field", "values"), IMPOSSIBLE, ids=str)
def test_impossible_values_are_refused_with_field_and_value(field: str, values: dict[str, Any]) -> None:
    with pytest.raises(ValueError) as refusal:
        TebConfig(**values)
    message = str(refusal.value)
    assert message.startswith(f"{field}: ")
    value = values[field]
    assert message.endswith(f"got {value!r}") or message.endswith(f"got {value:g}")


@pytest.mark.parametrize(
    "values",
    [
        {"eta": 0.0},
        {"c_r": 0.0},
        {"c_t": 0.0},
        {"metric_tau": 1.0},
        {"rep_grad_clip": 0.0},
        {"sigma_max": 1e-4},
    ],
    ids=str,
)
def test_the_ends_of_the_ranges_are_accepted(values: dict[str, Any]) -> None:
    assert dataclasses.asdict(TebConfig(**values)).items() >= values.items()


def test_configurations_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TebConfig().eta = 2.0  # pyright: ignore[reportAttributeAccessIssue]


def test_defaults_are_the_stated_constants() -> None:
    config = TebConfig()
    assert (config.eta, config.c_r, config.c_t) == (1.0, 1.0, None)
    assert (config.lambda_r, config.lambda_p) == (0.5, 1e-4)
    assert (config.sigma_min, config.sigma_max) == (1e-4, 1.0)
    assert (config.shaping, config.phi_action, config.anchor) == ("window_gamma", "policy", "batch_mean")
    assert (config.reward_horizon, config.pred_hidden, config.model_lr) == (3, 512, 1e-4)


def test_transition_weight_is_gamma_unless_given() -> None:
    assert small_teb(gamma=0.9).c_t == 0.9
    assert small_teb(gamma=0.9, c_t=0.2).c_t == 0.2
    assert small_teb(gamma=0.9, c_t=0.0).c_t == 0.0


@pytest.mark.parametrize("reading", [THEOREM_FAITHFUL, LITERAL, PARTICLES, CONTROL])
def test_named_readings_are_possible(reading: dict[str, Any]) -> None:
    config = TebConfig(**reading)
    assert dataclasses.asdict(config).items() >= reading.items()


def test_literal_reading_makes_one_step_windows_everywhere() -> None:
    agent = small_agent("teb", **LITERAL)
    assert agent.sampling is not None and agent.sampling.n_step == 1
    assert agent.sampling.horizon == 3, "the predictor's return keeps its own horizon"
