"""Records of an L-shaped maze of three cells, made by hand."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from teb.report.records import Record, parse_record

STEPS = [1000, 2000, 3000, 4000]


def encode(visits: np.ndarray) -> str:
    """The stored form of an array of thousandths."""
    return base64.b64encode(zlib.compress(np.ascontiguousarray(visits, dtype="<u2").tobytes())).decode()


def maze_map(visits: np.ndarray | None = None, env_steps: int = 4000) -> dict[str, Any]:
    """Cells (0,0), (1,0), (1,1) with 2 x 2 bins each; by default only the bin at the start was visited."""
    if visits is None:
        visits = np.full((4, 4), 65535)
        visits[0, 0] = 0
    walls = [[[-0.5, -0.5], [-0.5, 0.5]], [[-0.5, -0.5], [0.5, -0.5]], [[0.5, -0.5], [1.5, -0.5]]]
    walls += [[[1.5, -0.5], [1.5, 0.5]], [[1.5, 0.5], [1.5, 1.5]], [[0.5, 1.5], [1.5, 1.5]]]
    walls += [[[0.5, 0.5], [0.5, 1.5]], [[-0.5, 0.5], [0.5, 0.5]]]
    return {
        "kind": "maze2d",
        "maze": "ell",
        "bin": 0.5,
        "bounds": [[-0.5, 1.5], [-0.5, 1.5]],
        "walls": walls,
        "cells": [[0, 0], [1, 0], [1, 1]],
        "shape": [4, 4],
        "env_steps": env_steps,
        "first_visit": encode(visits),
    }


def raw_record(**changes: Any) -> dict[str, Any]:
    """The JSON object of a finished run; keyword arguments replace fields."""
    raw = {
        "schema": 1,
        "method": "teb",
        "label": "teb",
        "overrides": {},
        "env": "maze2d/ell",
        "seed": 0,
        "preset": "cpu",
        "config": {"run": {"steps": 4000}},
        "config_hash": "9f0c",
        "commit": "abc",
        "dirty": False,
        "versions": {},
        "hardware": {},
        "started": "2026-11-18T21:00:00+00:00",
        "wall_seconds": 241.2,
        "time_split": {"act": 20.1},
        "env_steps": 4000,
        "updates": 100,
        "finished": True,
        "headline": "coverage",
        "curves": {
            "env_steps": STEPS,
            "coverage": [0.1, 0.2, 0.3, 0.4],
            "episode_return": [None, 1.0, None, 3.0],
            "bonus_mean": [None, 0.5, 0.4, 0.3],
            "bonus_abs_p50": [None, 0.4, 0.3, 0.2],
            "bonus_abs_p95": [None, 0.9, 0.8, 0.7],
        },
        "final": {"coverage": 0.42},
        "map": maze_map(),
    }
    return raw | changes


@pytest.fixture
def raw() -> Callable[..., dict[str, Any]]:
    """Makes JSON objects."""
    return raw_record


@pytest.fixture
def record() -> Callable[..., Record]:
    """Makes records."""
    return lambda **changes: parse_record(raw_record(**changes), "test")


@pytest.fixture
def run_folder(tmp_path: Path) -> Callable[..., Path]:
    """Makes run folders."""

    def make(name: str, **changes: Any) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "record.json").write_text(json.dumps(raw_record(**changes)), encoding="utf-8")
        return folder

    return make


@pytest.fixture
def maze() -> Callable[..., dict[str, Any]]:
    """Makes maps."""
    return maze_map
