"""Runs on manipulation tasks: success in rows and evaluations, and episodes that are repeated on resume."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from small_runs import assert_same_run, go_on, rows, small_config

from teb.config import Config
from teb.envs import metaworld
from teb.run.evaluate import evaluate

pytestmark = pytest.mark.metaworld


def reaching(agent: str, steps: int, **options: Any) -> Config:
    config = small_config(agent, "metaworld/reach", steps=steps, log_every=10, replay_capacity=100)
    return dataclasses.replace(config, task=dataclasses.replace(config.task, **options))


@pytest.mark.rendering
def test_a_run_on_moving_pictures_is_resumed_within_an_episode(tmp_path: Path) -> None:
    walking = {"distract_light": True, "distract_background": True, "distract_dynamic": True}
    config = reaching("uniform", 40, render_quality="fast", horizon=30, distract_scale=0.3, **walking)
    assert go_on(config, tmp_path / "whole") == (True, [])
    assert go_on(config, tmp_path / "cut", 22) == (False, [])
    assert go_on(config, tmp_path / "cut") == (True, [])
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.rendering
def test_rows_and_evaluations_tell_the_share_of_successes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some episodes are made a success; no episode of so few random steps is one."""
    config = reaching("uniform", 40, render_quality="fast", horizon=20)
    config = dataclasses.replace(config, run=dataclasses.replace(config.run, env_process="no"))
    step = metaworld.MetaWorld.step
    begun = 0

    def reset(env: metaworld.MetaWorld, **arguments: Any) -> Any:
        nonlocal begun
        begun += 1
        return plain_reset(env, **arguments)

    def rigged(env: metaworld.MetaWorld, action: Any) -> Any:
        *rest, info = step(env, action)
        return (*rest, info | {"success": begun in succeeding})

    plain_reset, succeeding = metaworld.MetaWorld.reset, {2, 4}
    monkeypatch.setattr(metaworld.MetaWorld, "reset", reset)
    monkeypatch.setattr(metaworld.MetaWorld, "step", rigged)
    go_on(config, tmp_path)
    told = [(row["success"], row["successes"]) for row in rows(tmp_path)]
    assert told == [(0.0, 0.0), (0.5, 1.0), (pytest.approx(1 / 3), 1.0), (0.5, 2.0)]
    begun, succeeding = 0, {1, *range(22, 25)}  # more episodes than the rate of training looks back on
    result = evaluate(tmp_path, 24)
    assert result["success"] == pytest.approx(4 / 24) and result["return_mean"] == 0.0
