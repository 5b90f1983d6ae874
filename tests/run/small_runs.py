"""Small runs for the tests of this folder: how to make them, stop them, and hold two of them side by side."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from teb.cli import run_command
from teb.config import Config, default_config
from teb.run.checkpoint import Loaded, load_latest
from teb.run.logging import read_rows
from teb.run.session import resolved, session
from teb.run.stopping import StopWish
from teb.run.train import Run, train

SMALL = shlex.split(
    "train maze2d/square-a teb --seed 0 --steps 3000 --width 64 --batch-size 64 --pred-hidden 32 "
    "--seed-steps 500 --uniform-steps 300 --update-every 8 --log-every 250 --precision fp32 --threads 1"
)
"""About 300 updates: two seconds, long enough to be stopped several times."""

SCHEDULE = {"steps": 300, "seed_steps": 100, "uniform_steps": 60, "log_every": 50, "threads": 1}
SHRUNK = {
    "batch_size": 16,
    "width": 16,
    "pred_hidden": 16,
    "particles": 64,
    "neighbours": 6,
    "hidden": 16,
    "vae_hidden": 16,
    "code": 8,
}


def small_config(agent: str, env: str = "maze2d/square-a", reading: str = "default", **run: Any) -> Config:
    """An agent with whatever makes it large made small; 100 updates unless `run` says otherwise."""
    config = default_config(env, agent, "cpu", reading)
    schedule = dataclasses.replace(config.run, **{**SCHEDULE, "precision": "fp32", **run})
    return resolved(dataclasses.replace(config, run=schedule, learner=shrunk(config.learner)))


def shrunk(options: Any) -> Any:
    """The same options with small numbers wherever a field is known to cost time."""
    changes = {}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if dataclasses.is_dataclass(value):
            changes[field.name] = shrunk(value)
        elif field.name in SHRUNK and value is not None:
            changes[field.name] = min(value, SHRUNK[field.name])
    return dataclasses.replace(options, **changes)


def go_on(
    config: Config, folder: Path, until: int | None = None, *, tensorboard: bool = False
) -> tuple[bool, list[str]]:
    """Train in a new session, to the end or to a wish at a step; whether it ended, and the session's warnings."""
    with session(config, folder, tensorboard=tensorboard) as opened, pytest.MonkeyPatch.context() as patch:
        wish = StopWish()
        if until is not None:
            wish_at(opened.run, until, wish, patch)
        return train(opened.run, opened.reporting, wish), opened.warnings


def wish_at(run: Run, step: int, wish: StopWish, patch: pytest.MonkeyPatch) -> None:
    """Let somebody wish for the end during a step."""
    take = run.take

    def take_and_wish(action: np.ndarray) -> bool:
        ended = take(action)
        if run.env_steps == step:
            wish.signal = signal.SIGTERM
        return ended

    patch.setattr(run, "take", take_and_wish)


def run_words(words: Sequence[str], folder: Path, *more: str) -> int:
    """Call the command line in this process."""
    return run_command([*words, "--out", str(folder), *more])


def latest(folder: Path) -> Loaded:
    """The newest checkpoint, which must be there."""
    loaded = load_latest(folder)
    assert loaded is not None
    return loaded


def newest_step(folder: Path) -> int:
    """Step of the newest complete checkpoint by the names of its files alone; -1 if there is none."""
    found = [
        re.search(r"checkpoint-(\d+)\.sha256$", str(path)) for path in folder.glob("checkpoint-*.sha256")
    ]
    return max((int(match[1]) for match in found if match), default=-1)


def checkpoint_files(folder: Path) -> list[Path]:
    """The checkpoints of a folder, oldest first."""
    return sorted(folder.glob("checkpoint-*.safetensors"))


def rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of metrics, times left out."""
    found = read_rows(folder / "metrics.jsonl")
    return [{k: v for k, v in row.items() if not k.startswith("seconds_")} for row in found]


def read_record(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "record.json").read_text())


def registered(registry: Path) -> list[dict[str, Any]]:
    """Every line of a registry."""
    return [json.loads(line) for line in registry.read_text().splitlines()]


def learnt(folder: Path) -> dict[str, Any]:
    """Everything in the newest checkpoint but times."""
    state = dict(latest(folder).state["run"])
    del state["seconds"]
    return state


def assert_same_run(one: Path, other: Path) -> None:
    """Two folders hold the same training, bit for bit; only times may differ."""
    assert rows(one) == rows(other)
    assert latest(one).env_steps == latest(other).env_steps
    assert differences(learnt(one), learnt(other)) == []
    first, second = read_record(one), read_record(other)
    for name in ("curves", "map", "final", "updates", "env_steps", "finished", "label", "config_hash"):
        assert first[name] == second[name], name


def differences(left: Any, right: Any, place: str = "") -> list[str]:
    """Places where two states differ in type, shape or any bit."""
    return list(_differences(left, right, place))


def _differences(left: Any, right: Any, place: str) -> Iterator[str]:
    if type(left) is not type(right):
        yield f"{place}: {type(left).__name__}, {type(right).__name__}"
    elif isinstance(left, dict):
        if left.keys() != right.keys():
            yield f"{place}: {sorted(left)}, {sorted(right)}"
        for key in left.keys() & right.keys():
            yield from _differences(left[key], right[key], f"{place}/{key}")
    elif isinstance(left, list):
        if len(left) != len(right):
            yield f"{place}: {len(left)} items, {len(right)} items"
        for index, pair in enumerate(zip(left, right, strict=False)):
            yield from _differences(*pair, f"{place}/{index}")
    elif isinstance(left, torch.Tensor):
        yield from _differences(left.numpy(), right.numpy(), place)
    elif isinstance(left, np.ndarray):
        if (left.dtype, left.shape) != (right.dtype, right.shape) or left.tobytes() != right.tobytes():
            yield place
    elif left != right:
        yield f"{place}: {left}, {right}"
