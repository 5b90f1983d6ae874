"""Opening a run folder: new or resumed, one process at a time, everything that the loop needs built and restored."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import math
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import torch

from teb.agents.protocol import Agent, Runtime, Shapes
from teb.config import NEUTRAL, Config, agent_spec, config_hash, flat, from_json, label, overrides, to_json
from teb.envs import FAMILIES, make_task, make_task_elsewhere, split_id
from teb.envs.protocol import Task
from teb.machine import available_memory, keep_freed_memory
from teb.replay.saved import replay_bytes
from teb.run import checkpoint, record
from teb.run.logging import MetricsFile, TensorBoard, display, read_rows
from teb.run.train import Reporting, Run, RunError, obs_dtype

_MAY_CHANGE = {f"run.{name}" for name in NEUTRAL}


class Session(NamedTuple):
    """An open run folder."""

    run: Run
    reporting: Reporting
    resumed_at: int | None
    """Environment steps of the checkpoint that the run goes on from; None for a new run."""
    warnings: list[str]


def resolved(config: Config) -> Config:
    """The configuration with `auto` replaced by what this machine has."""
    run = config.run
    device = run.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    kind = device.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"device: must be cpu, cuda or auto, got {device!r}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"device: {device!r} asked for, but PyTorch sees no CUDA device; use 'cpu' or 'auto'"
        )
    precision = run.precision
    if precision == "auto":
        precision = "bf16" if _multiplies_bf16(kind) else "fp32"
    return dataclasses.replace(config, run=dataclasses.replace(run, device=device, precision=precision))


def _multiplies_bf16(device: str) -> bool:
    """Whether bfloat16 products have hardware of their own there; emulated ones are slower than float32."""
    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    supported = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    return bool(supported())


def build(config: Config, *, elsewhere: bool = False) -> tuple[Task, Agent]:
    """Task and agent of a resolved configuration; the environment in a process of its own if it is `elsewhere`."""
    task = (make_task_elsewhere if elsewhere else make_task)(config.env, config.task)
    obs, action = task.env.observation_space.shape, task.env.action_space.shape
    assert obs is not None and action is not None
    compute = torch.bfloat16 if config.run.precision == "bf16" else torch.float32
    runtime = Runtime(config.run.seed, torch.device(config.run.device), compute)
    stack = (task.frame_stack * obs[0], *obs[1:])
    image = {"image": stack} if len(stack) == 3 else {}
    shapes = Shapes(math.prod(stack), action[0])
    return task, agent_spec(config.env, config.agent).build(config.learner, shapes, runtime, **image)


def steps_elsewhere(config: Config) -> bool:
    """Whether the environment of a run gets a process of its own."""
    if config.run.env_process == "auto":
        return FAMILIES[split_id(config.env)[0]].slow_steps
    return config.run.env_process == "yes"


def read_config(folder: Path) -> Config:
    """The configuration that a run folder was made with."""
    path = folder / "config.json"
    try:
        return from_json(json.loads(path.read_text()))
    except FileNotFoundError as error:
        raise ValueError(f"{folder} is not a run folder: it has no config.json") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged: {error!r}") from error


@contextmanager
def session(
    config: Config, folder: Path, *, tensorboard: bool = False, quiet: bool = False
) -> Iterator[Session]:
    """Create or reopen `folder` for `config`; whatever was trained there before is gone on with."""
    with ExitStack() as stack:
        keep_freed_memory()
        if config.run.threads:
            torch.set_num_threads(config.run.threads)
        task, agent = build(config, elsewhere=steps_elsewhere(config))
        stack.callback(task.env.close)
        warnings = _check_memory(config, task)
        folder.mkdir(parents=True, exist_ok=True)
        stack.enter_context(_locked(folder))
        identity = _identify(config, folder)
        run = Run(config.run, task, agent, folder)
        if config.run.eval_every:
            run.evaluation = make_task(config.env, config.task)
            stack.callback(run.evaluation.env.close)
        loaded = checkpoint.load_latest(folder)
        if loaded:
            run.load(loaded.state["run"])
        metrics = MetricsFile(folder / "metrics.jsonl", loaded.state["metrics_bytes"] if loaded else 0)
        resumed_at, rejected = (loaded.env_steps, loaded.rejected) if loaded else (None, [])
        del loaded  # a replay of pictures must not stand in memory twice
        stack.callback(metrics.close)
        sinks = [TensorBoard(folder / "tensorboard")] if tensorboard else []
        for sink in sinks:
            stack.callback(sink.close)
        title = f"{label(config)} on {config.env}, seed {config.run.seed}"
        shown = stack.enter_context(
            display(title, config.run.steps, run.env_steps, task.headline, quiet=quiet)
        )
        reporting = Reporting(metrics, sinks, shown, lambda r, m: _save(config, identity, r, m))
        damaged = [f"passed over a damaged checkpoint: {why}" for why in rejected]
        yield Session(run, reporting, resumed_at, [*warnings, *damaged])


def _check_memory(config: Config, task: Task) -> list[str]:
    """Refuse a replay that will not fit into memory; say what a large one takes."""
    space = task.env.observation_space
    assert space.shape is not None
    transitions = min(config.run.replay_capacity, config.run.steps)
    needed, left = replay_bytes(transitions, space.shape, obs_dtype(space)), available_memory()
    said = f"replay: {transitions:,} transitions take {needed / 2**30:.1f} GiB"
    if left is not None and needed > left:
        raise ValueError(
            f"replay_capacity: {transitions:,} transitions take {needed / 2**30:.1f} GiB of memory, "
            f"{left / 2**30:.1f} GiB are available; choose a smaller --replay-capacity"
        )
    return [f"{said} of memory"] if needed > 2**30 else []


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunError(f"{folder} is in use by another process") from error
        yield


def _identify(config: Config, folder: Path) -> Mapping[str, str]:
    """Write config.json, or check that the folder's agrees; the run's identity is made once."""
    path = folder / "config.json"
    identity = {"run_id": uuid.uuid4().hex, "started": datetime.now(UTC).isoformat(timespec="seconds")}
    if path.exists():
        data = json.loads(path.read_text())
        identity = {name: data[name] for name in identity}
        _compare(to_json(read_config(folder)), to_json(config), folder)
    record.write_record(path, identity | to_json(config))
    return identity


def _compare(before: dict[str, Any], now: dict[str, Any], folder: Path) -> None:
    old, new = dict(flat(before)), dict(flat(now))
    for name in [*new, *(old.keys() - new.keys())]:
        if name not in _MAY_CHANGE and old.get(name) != new.get(name):
            raise ValueError(
                f"{folder} holds another run: its {name.rpartition('.')[2]} is {old.get(name)!r}, asked for is "
                f"{new.get(name)!r}; choose another --out"
            )
    if new["run.steps"] < old["run.steps"]:
        raise ValueError(
            f"steps: {folder} was planned for {old['run.steps']:,}, cannot end at {new['run.steps']:,}"
        )


def _save(config: Config, identity: Mapping[str, str], run: Run, metrics: MetricsFile) -> None:
    """The record first: a run whose checkpoint says that it is finished then has the record of that."""
    record.write_record(run.folder / "record.json", make_record(config, identity, run))
    checkpoint.save(run.folder, run.env_steps, {"run": run.state(), "metrics_bytes": metrics.length})


def make_record(config: Config, identity: Mapping[str, str], run: Run) -> dict[str, Any]:
    """The record of a run as it stands."""
    columns = record.curves(read_rows(run.folder / "metrics.jsonl"))
    seconds = run.seconds
    split = {name: round(spent, 3) for name, spent in seconds.items() if name != "total"}
    return {
        "schema": record.SCHEMA,
        "run_id": identity["run_id"],
        "method": config.agent,
        "label": label(config),
        "overrides": overrides(config),
        "env": config.env,
        "seed": config.run.seed,
        "preset": config.preset,
        "config": to_json(config),
        "config_hash": config_hash(config),
        **record.surroundings(),
        "started": identity["started"],
        "wall_seconds": round(seconds["total"], 3),
        "time_split": split | {"other": round(seconds["total"] - sum(split.values()), 3)},
        "env_steps": run.env_steps,
        "updates": run.updates,
        "finished": run.env_steps >= config.run.steps,
        "headline": run.task.headline,
        "curves": columns,
        "final": {name: values[-1] for name, values in columns.items() if values and values[-1] is not None},
        "map": run.task.meter.record(),
    }
