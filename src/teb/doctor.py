"""`teb doctor`: what this machine offers for training, and what to install where something is missing."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Any, Literal

from packaging.requirements import Requirement
from rich.console import Console
from rich.table import Table
from rich.text import Text

from teb.envs import rendering
from teb.machine import memory_bytes

Status = Literal["ok", "note", "problem"]

OLDEST, NEWEST = (3, 11), (3, 13)
GIB = 2**30
LOW_MEMORY, LOW_DISK, NO_DISK = 2 * GIB, 5 * GIB, GIB // 10

OPTIONAL = {
    "tensorboard": 'curves while training: pip install "teb[log]"',
    "mujoco": 'simulated robots: pip install "teb[metaworld]"',
    "metaworld": 'manipulation tasks: pip install "teb[metaworld]"',
}

STYLES: dict[Status, str] = {"ok": "green", "note": "yellow", "problem": "bold red"}


@dataclass(frozen=True)
class Check:
    """One line of the report; a `problem` makes training impossible, a `note` only limits it."""

    name: str
    status: Status
    text: str
    advice: str = ""


def report() -> list[Check]:
    """Look at everything; takes a few seconds, for measured matrix products and pictures that are tried."""
    checks = [_python(), *_packages()]
    torch, broken = _load_torch()
    if torch is None:
        checks.append(broken)
    else:
        checks += [_threads(torch), _bf16(torch), *_cuda(torch)]
    return [*checks, _memory(), _disk(Path.cwd()), _rendering(), *_optional()]


def run() -> int:
    """Print the report; the exit status is 1 if something makes training impossible, otherwise 0."""
    checks = report()
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        said = Text(check.text)
        if check.advice:
            said.append(f"\n{check.advice}", style="dim")
        table.add_row(Text(check.status, style=STYLES[check.status]), check.name, said)
    console = Console()
    console.print(table)
    problems = sum(check.status == "problem" for check in checks)
    notes = sum(check.status == "note" for check in checks)
    verdict = "training is not possible here" if problems else "ready to train"
    console.print(f"\n{verdict}: {problems} problem(s), {notes} note(s)", highlight=False)
    return 1 if problems else 0


def _python() -> Check:
    text = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if OLDEST <= sys.version_info[:2] <= NEWEST:
        return Check("python", "ok", text)
    return Check("python", "problem", text, "needs Python 3.11, 3.12 or 3.13")


def _packages() -> list[Check]:
    """The core dependencies, against the ranges that the installed package itself declares."""
    try:
        declared = metadata.requires("teb") or []
        own = Check("teb", "ok", metadata.version("teb"))
    except metadata.PackageNotFoundError:
        return [
            Check("teb", "note", "used without being installed", "pip install -e . checks its dependencies")
        ]
    requirements = [Requirement(line) for line in declared]
    return [own, *(_package(wanted) for wanted in requirements if not _is_extra(wanted))]


def _is_extra(wanted: Requirement) -> bool:
    return wanted.marker is not None and not wanted.marker.evaluate({"extra": ""})


def _package(wanted: Requirement) -> Check:
    needed = f"{wanted.name} {wanted.specifier}".strip()
    try:
        version = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        return Check(wanted.name, "problem", "not installed", f"pip install '{wanted}'")
    if wanted.specifier.contains(version, prereleases=True):
        return Check(wanted.name, "ok", version)
    return Check(wanted.name, "note", version, f"outside the tested range {needed}: pip install '{wanted}'")


def _load_torch() -> tuple[Any, Check]:
    """The module, or None and why it does not load: an installed torch may miss a library of the system."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return None, Check(
            "torch loads", "problem", str(error), "reinstall it: pip install --force-reinstall torch"
        )
    return torch, Check("torch loads", "ok", "")


def _threads(torch: Any) -> Check:
    cores, threads = _usable_cores(), torch.get_num_threads()
    limits = [
        f"{name}={os.environ[name]}" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if name in os.environ
    ]
    text = ", ".join([f"{threads} of torch on {cores} usable cores", *limits])
    if threads > cores:
        advice = f"more threads than cores wait for each other: export OMP_NUM_THREADS={cores}"
        return Check("threads", "note", text, advice)
    return Check("threads", "ok", text)


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _bf16(torch: Any) -> Check:
    """Whether bfloat16 pays on this CPU: what the processor claims, and what a 1024^3 product says."""
    features = {"AVX512-BF16": "_is_avx512_bf16_supported", "AMX": "_is_amx_tile_supported"}
    claimed = [label for label, probe in features.items() if getattr(torch.cpu, probe, bool)()]
    full = torch.ones(1024, 1024)
    half = full.to(torch.bfloat16)
    ratio = _fastest(lambda: full @ full) / _fastest(lambda: half @ half)
    support = " and ".join(claimed) or "no hardware support"
    text = f"{support}; a matrix product is {ratio:.1f} times as fast as in fp32"
    return Check("bf16 on the CPU", "ok", text)


def _fastest(work: Callable[[], object], *, most_seconds: float = 0.3) -> float:
    """The least time of a few calls after one to warm up, in seconds."""
    work()
    times: list[float] = []
    while len(times) < 10 and sum(times) < most_seconds:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def _cuda(torch: Any) -> list[Check]:
    if not torch.backends.cuda.is_built():
        return [Check("cuda", "ok", "a CPU build of torch; training runs on the CPU")]
    if not torch.cuda.is_available():
        advice = "with an NVIDIA GPU in this machine: check nvidia-smi, and the driver's version"
        return [Check("cuda", "note", f"torch for CUDA {torch.version.cuda} finds no device", advice)]
    checks: list[Check] = []
    for index in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(index)
        text = f"{device.name}, {_gib(device.total_memory)}, compute capability {device.major}.{device.minor}"
        checks.append(Check(f"cuda:{index}", "ok", text))
    return checks


def _memory() -> Check:
    total, available = memory_bytes()
    if total is None:
        return Check("memory", "note", "unknown on this system", "a maze run needs about 1 GiB")
    free = total if available is None else available
    text = f"{_gib(free)} available of {_gib(total)}"
    if free < LOW_MEMORY:
        return Check("memory", "note", text, f"less than {_gib(LOW_MEMORY)}: take a smaller replay")
    return Check("memory", "ok", text)


def _disk(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    text = f"{_gib(free)} free in {folder}"
    if free < NO_DISK or not os.access(folder, os.W_OK):
        return Check("disk", "problem", text, "nothing can be written here: choose another folder")
    if free < LOW_DISK:
        return Check(
            "disk", "note", text, "checkpoints with a replay of pixels may not fit: choose another folder"
        )
    return Check("disk", "ok", text)


def _rendering() -> Check:
    """MuJoCo's ways to draw without a display, each of them tried; only pixel tasks need one."""
    if util.find_spec("mujoco") is None:
        return Check("rendering", "note", "MuJoCo is not installed", "only needed for pixel tasks")
    chosen = os.environ.get("MUJOCO_GL", "")
    loading = [backend for backend in rendering.BACKENDS if rendering.works(backend)]
    text = f"{', '.join(loading) or 'no backend'} loads, MUJOCO_GL{f'={chosen}' if chosen else ' not set'}"
    problem = rendering.choose_backend()
    if problem:
        return Check("rendering", "note", text, f"only needed for pixel tasks; {problem}")
    return Check("rendering", "ok", text)


def _optional() -> list[Check]:
    checks: list[Check] = []
    for name, purpose in OPTIONAL.items():
        if util.find_spec(name) is None:
            checks.append(Check(name, "note", "not installed (optional)", purpose))
        else:
            checks.append(Check(name, "ok", metadata.version(name)))
    return checks


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
