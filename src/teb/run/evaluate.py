"""Episodes of the trained policy without exploration noise, on an environment of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from teb.run import checkpoint
from teb.run.play import average, play
from teb.run.record import write_record
from teb.run.session import build, read_config
from teb.run.train import RunError
from teb.seeding import child_seed


def evaluate(folder: Path, episodes: int, seed: int = 0) -> dict[str, Any]:
    """Load the newest intact checkpoint of a run and play `episodes` with it; writes eval.json and returns it."""
    config = read_config(folder)
    loaded = checkpoint.load_latest(folder)
    if loaded is None:
        raise RunError(f"{folder} has no checkpoint yet")
    task, agent = build(config)
    agent.load(loaded.state["run"]["agent"])
    played = [play(task, agent, child_seed(seed, "evaluation", number) % 2**31) for number in range(episodes)]
    task.env.close()
    returns = [episode["return"] for episode in played]
    said = {name: value for name, value in average(played).items() if name != "return"}
    result = {
        "env_steps": loaded.env_steps,
        "episodes": episodes,
        "seed": seed,
        "return_mean": float(np.mean(returns)),
        "return_std": float(np.std(returns)),
        "returns": returns,
        **task.meter.metrics(),
        **said,
    }
    write_record(folder / "eval.json", result)
    return result


def read_evaluation(folder: Path) -> dict[str, Any]:
    """What `evaluate` wrote last."""
    return json.loads((folder / "eval.json").read_text())
