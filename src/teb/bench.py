"""Speed, as ratios of two things measured in turns in one run, since absolute times differ from machine to machine."""

from __future__ import annotations

import dataclasses
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch.utils.flop_counter import FlopCounterMode

from teb.agents.compose import ComposedAgent
from teb.agents.protocol import Batch, Runtime, Shapes, to_batch
from teb.agents.registry import AGENTS, PIXEL_AGENTS
from teb.config import Config, default_config, updated
from teb.machine import keep_freed_memory
from teb.replay.ring import Replay
from teb.run.session import build, resolved, session
from teb.run.stopping import StopWish
from teb.run.train import Run, train
from teb.yardstick import plain_drqv2

ENV = "maze2d/square-a"
SIDE = 1024
"""Side of the square matrices whose product is the machine's yardstick."""


@dataclass(frozen=True)
class BenchOptions:
    """Measure updates, the loop around them, and the share of the machine's matrix-product rate that they reach."""

    repeats: int = 15
    """Timed repetitions of each thing; medians are compared."""
    threads: int = 0
    """Threads; 0 leaves PyTorch's choice."""
    device: str = "cpu"
    """cpu, cuda or auto. The loop is always measured on the CPU."""
    pixels: bool = False
    """Measure updates from pictures of 84x84 instead, at the paper's size, and a short run on Meta-World."""


def run(options: BenchOptions) -> int:
    """Print all figures."""
    if options.repeats < 1:
        raise ValueError(f"repeats: must be above 0, got {options.repeats}")
    keep_freed_memory()
    if options.threads:
        torch.set_num_threads(options.threads)
    console = Console()
    if options.pixels:
        console.print(pixels_table(options), stepping_table(options.threads))
        return 0
    console.print(
        updates_table("paper", options),
        updates_table("cpu", options),
        loop_table(),
    )
    return 0


def updates_table(preset: str, options: BenchOptions) -> Table:
    """Every learning agent's update at one preset, beside the yardstick and beside the plain backbone."""
    base = _config("teb", preset, options.device)
    product = _product(base)
    subjects = {
        name: _subject(_config(name, preset, options.device)) for name in AGENTS if _learns(name, preset)
    }
    timed = {name: update for name, (update, _) in subjects.items()}
    timed["yardstick"] = _yardstick(base)
    seconds = interleaved(timed | {"product": product}, options.repeats, base.run.device)
    rate = 2 * SIDE**3 / seconds["product"]
    title = f"One update, preset {preset}, {base.run.precision}, {base.run.device}, {torch.get_num_threads()} threads"
    table = Table("update", "ms", "of the yardstick", "of eta0", "share of the product rate", title=title)
    for name, spent in seconds.items():
        if name != "product":
            share = f"{subjects[name][1] / spent / rate:.0%}" if name in subjects else ""
            ratios = (f"{spent / seconds['yardstick']:.2f}", f"{spent / seconds['eta0']:.2f}")
            table.add_row(name, f"{1e3 * spent:.2f}", *ratios, share)
    table.caption = (
        f"yardstick: teb in plain fp32 with per-tensor Adam and gradients into frozen critics; "
        f"product: {SIDE}x{SIDE}x{SIDE} in {base.run.precision} at {rate / 1e9:.0f} GFLOP/s"
    )
    return table


def pixels_table(options: BenchOptions) -> Table:
    """DrQ-v2's and TEB's updates from pictures at the paper's size, beside a plain DrQ-v2."""
    device = torch.device(resolved(_config("teb", "paper", options.device)).run.device)
    precision = _config("teb", "paper", options.device).run.precision
    subjects = {
        "drqv2": ("drqv2", precision, {}),
        "drqv2 in fp32": ("drqv2", "fp32", {}),
        "teb": ("teb", precision, {}),
        "teb, rep_update joint": ("teb", precision, {"rep_update": "joint"}),
        "teb-no-rep": ("teb-no-rep", precision, {}),
    }
    learners = {name: PIXEL_AGENTS[agent].presets["paper"] for name, (agent, _, _) in subjects.items()}
    first = learners["drqv2"]
    batch = picture_batch(first.backbone.batch_size, device)
    timed: dict[str, Callable[[], Any]] = {}
    for name, (agent, compute, changes) in subjects.items():
        learner = updated(learners[name], {"representation": changes})
        runtime = Runtime(0, device, torch.bfloat16 if compute == "bf16" else torch.float32)
        built = PIXEL_AGENTS[agent].build(
            learner, Shapes(0, batch.action.shape[1]), runtime, image=(9, 84, 84)
        )
        timed[name] = partial(built.update, batch, 0)
    timed["yardstick"] = plain_drqv2(
        batch, width=first.backbone.width, channels=first.encoder.channels, latent=first.encoder.latent_dim
    )
    seconds = interleaved(timed, options.repeats, device.type)
    threads = torch.get_num_threads()
    title = f"One update from pictures, batch {len(batch.obs)}, {precision}, {device}, {threads} threads"
    table = Table("update", "ms", "of the yardstick", "of drqv2", title=title)
    for name, spent in seconds.items():
        ratios = (f"{spent / seconds[other]:.2f}" for other in ("yardstick", "drqv2"))
        table.add_row(name, f"{1e3 * spent:.1f}", *ratios)
    table.caption = "yardstick: DrQ-v2 in plain fp32, augmentation by resampling, per-tensor Adam"
    return table


def picture_batch(size: int, device: torch.device, actions: int = 4) -> Batch:
    """Windows of random frames, stacked by three."""
    rng = np.random.default_rng(0)
    replay = Replay(300, (3, 84, 84), np.uint8, actions, 0, 3)
    replay.begin(rng.integers(0, 256, (3, 84, 84), dtype=np.uint8))
    for _ in range(250):
        action = rng.uniform(-1, 1, actions).astype(np.float32)
        frame = rng.integers(0, 256, (3, 84, 84), dtype=np.uint8)
        replay.add(action, float(rng.random()), False, frame, np.zeros(0, np.float32))
    replay.end()
    sample = replay.sample(size, 3, 3, 0.97, rng)
    return to_batch(sample, sample.obs[0], device)


def loop_table(steps: int = 6000) -> Table:
    """Where the time of a real run goes, at the CPU preset."""
    config = _config("teb-p", "cpu", "cpu")
    config = dataclasses.replace(config, run=dataclasses.replace(config.run, steps=steps))
    with tempfile.TemporaryDirectory() as folder, session(config, Path(folder), quiet=True) as opened:
        train(opened.run, opened.reporting, StopWish())
        seconds, updates = opened.run.seconds, opened.run.updates
    around = seconds["total"] - seconds["update"] - seconds["sample"]
    table = Table(
        "part", "ms per step", title=f"The loop, teb-p at preset cpu, {steps:,} steps, {updates:,} updates"
    )
    for part in ("act", "env", "sample", "update", "total"):
        table.add_row(part, f"{1e3 * seconds[part] / steps:.3f}")
    table.add_row("around the update (all but update and sample)", f"{1e3 * around / steps:.3f}")
    return table


REAL_RUN = shlex.split(
    "train metaworld/reach teb --preset cpu --render-quality fast --horizon 100 --uniform-steps 50 "
    "--seed-steps 50 --replay-capacity 1000 --eval-every 0"
)
"""A run that draws: episodes of 50 actions, the first of them without updates."""

_MEASURED = """
import sys
from teb.cli import run_command
from teb.machine import peak_memory
code = run_command(sys.argv[1:])
print(peak_memory())
sys.exit(code)
"""


def stepping_table(threads: int, actions: int = 200) -> Table | str:
    """Where the time of a run on Meta-World goes, stepping in turn with learning and beside it, or why none ran."""
    try:
        turn, beside = (_real_run(place, threads, actions) for place in ("no", "yes"))
    except ValueError as error:
        return f"A run on Meta-World is not measured: {error}"
    title = f"The loop, {' '.join(REAL_RUN[1:3])} at preset cpu, drawn fast, {actions} actions"
    table = Table("part", "ms per action", "with a process for the environment", title=title)
    for part in ("act", "env", "sample", "update", "total"):
        table.add_row(part, *(f"{1e3 * spent[part] / actions:.1f}" for spent in (turn, beside)))
    table.add_row("peak memory, MiB", *(f"{spent['memory'] / 2**20:.0f}" for spent in (turn, beside)))
    table.caption = (
        f"{turn['total'] / beside['total']:.2f} times as fast; env is what the loop waits for; "
        "memory is that of the process that learns"
    )
    return table


def _real_run(place: str, threads: int, actions: int) -> dict[str, float]:
    """Seconds of each part of `REAL_RUN`, and its peak memory in bytes, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"steps": actions, "threads": threads, "env-process": place, "out": f"{folder}/run"}
        words = [*REAL_RUN, *(f"--{name}={value}" for name, value in options.items())]
        done = subprocess.run(
            [sys.executable, "-c", _MEASURED, *words], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ValueError(done.stderr.splitlines()[-1].removeprefix("teb: "))
        record = json.loads(Path(folder, "run", "record.json").read_text())
    memory = float(done.stdout.splitlines()[-1])
    return record["time_split"] | {"total": record["wall_seconds"], "memory": memory}


def interleaved(timed: dict[str, Callable[[], Any]], repeats: int, device: str) -> dict[str, float]:
    """Median seconds of each callable; they take turns, so that a slow moment of the machine hits all alike."""
    samples: dict[str, list[float]] = {name: [] for name in timed}
    for repeat in range(repeats + 3):
        for name, call in timed.items():
            begun = time.perf_counter()
            call()
            if device.startswith("cuda"):
                torch.cuda.synchronize()
            if repeat >= 3:
                samples[name].append(time.perf_counter() - begun)
    return {name: statistics.median(values) for name, values in samples.items()}


def _config(agent: str, preset: str, device: str) -> Config:
    config = default_config(ENV, agent, preset)
    return resolved(dataclasses.replace(config, run=dataclasses.replace(config.run, device=device)))


def _learns(agent: str, preset: str) -> bool:
    return build(_config(agent, preset, "cpu"))[1].sampling is not None


def _subject(config: Config) -> tuple[Callable[[], Any], int]:
    """An update on a fixed batch of uniform play, and the floating-point operations it takes."""
    task, agent = build(config)
    batch = _batch(config, Run(config.run, task, agent, Path()))
    agent.update(batch, 0)
    with FlopCounterMode(display=False) as counter:
        agent.update(batch, 0)
    return lambda: agent.update(batch, 0), counter.get_total_flops()


def _batch(config: Config, run: Run) -> Batch:
    for _ in range(1000):
        if not run.replay.running:
            run.begin_episode()
        action = run.uniform.uniform(-1.0, 1.0, run.action_dim).astype(np.float32)
        run.stepper.send(action)
        run.take(action)
    assert run.agent.sampling is not None
    return to_batch(
        run.replay.sample(*run.agent.sampling, run.sampler), run.first_obs, torch.device(config.run.device)
    )


def _product(config: Config) -> Callable[[], torch.Tensor]:
    dtype = torch.bfloat16 if config.run.precision == "bf16" else torch.float32
    left, right = (torch.randn(SIDE, SIDE, device=config.run.device).to(dtype) for _ in range(2))
    return lambda: left @ right


def _yardstick(config: Config) -> Callable[[], None]:
    """The same update as one writes it first: float32, an Adam that walks over tensors, gradients into everything."""
    config = dataclasses.replace(config, run=dataclasses.replace(config.run, precision="fp32"))
    task, agent = build(config)
    assert isinstance(agent, ComposedAgent)
    batch = _batch(config, Run(config.run, task, agent, Path()))
    backbone, explorer = agent.backbone, agent.explorer
    parts = (explorer.parameter_groups(), backbone.critic_parameters(), list(backbone.actor.parameters()))
    model, critic, actor = (torch.optim.Adam(part, lr=1e-4, foreach=False, fused=False) for part in parts)

    def step(loss: torch.Tensor, optimiser: torch.optim.Optimizer) -> None:
        for other in (model, critic, actor):
            other.zero_grad()
        loss.backward()
        optimiser.step()

    def update() -> None:
        step(explorer.loss(batch, agent.policy, agent.exploring)[0], model)
        reward = batch.reward + explorer.traits.eta * agent.pay(batch).bonus
        step(backbone.critic_loss(batch, reward, agent.learning)[0], critic)
        step(backbone.actor_loss(batch, agent.learning)[0], actor)
        with torch.no_grad():
            for slow, fast in zip(
                backbone.target_critic.parameters(), backbone.critic.parameters(), strict=True
            ):
                slow.mul_(1 - backbone.config.tau).add_(fast, alpha=backbone.config.tau)
        explorer.after_step(batch, agent.policy, agent.exploring)

    return update
