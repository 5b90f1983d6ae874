"""A user's decision process from a file of arrays; whatever is wrong with it is told in one line."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from teb.theory.processes import Floats, Process

FORMAT = """The file of --mdp is one of numpy.savez, with these arrays (S states, A actions):

  transitions   [S, A, S] probabilities P(s' | s, a), each row sums to 1; or [S, S], a chain under its policy
  rewards       [S, A], or [S] where they depend on the state alone
  policy        [S, A] probabilities pi(a | s); uniform if missing
  reward_mean   [S, A] or [S], what a reward predictor says; the rewards (unbiased) if missing
  reward_sigma  one number, [S] or [S, A], its standard deviation; --sigma if missing
  metric        [S, S], a metric of yours to compare with the exact ones; optional"""
KNOWN = ("transitions", "rewards", "policy", "reward_mean", "reward_sigma", "metric")

ROUNDING = 1e-6
"""How far a row may be from summing to 1; it is then divided by its sum."""
MOST_CELLS = 40_000_000
"""The most cells of couplings, over all pairs of states, that are taken on: some 2 GB."""


def read_process(path: Path, sigma: float) -> tuple[Process, Floats | None]:
    """The process of a file, and the user's own metric if the file has one."""
    arrays = _read(path)
    for name in ("transitions", "rewards"):
        if name not in arrays:
            raise ValueError(f"{path}: lacks the array {name!r}; it has {', '.join(arrays) or 'none'}")
    unknown = [name for name in arrays if name not in KNOWN]
    if unknown:
        raise ValueError(f"{path}: unknown array {unknown[0]!r}; known: {', '.join(KNOWN)}")
    transitions = arrays["transitions"]
    if transitions.ndim == 2:
        transitions = transitions[:, None, :]
    if transitions.ndim != 3 or transitions.shape[0] != transitions.shape[2] or 0 in transitions.shape:
        raise ValueError(
            f"{path}: transitions: must be [S, A, S] or [S, S], got {list(arrays['transitions'].shape)}"
        )
    shape = transitions.shape[:2]
    transitions = _probabilities(path, "transitions", transitions)
    if "policy" in arrays and arrays["policy"].shape != shape:
        raise ValueError(f"{path}: policy: must be {list(shape)}, got {list(arrays['policy'].shape)}")
    policy = _probabilities(path, "policy", arrays.get("policy", np.full(shape, 1.0 / shape[1])))
    rewards = _per_action(path, "rewards", arrays["rewards"], shape)
    mean = _per_action(path, "reward_mean", arrays.get("reward_mean", rewards), shape)
    deviation = arrays.get("reward_sigma", np.array(sigma))
    deviation = (
        np.full(shape, deviation)
        if deviation.ndim == 0
        else _per_action(path, "reward_sigma", deviation, shape)
    )
    if (deviation < 0).any():
        raise ValueError(f"{path}: reward_sigma: must not be negative, got {deviation.min():g}")
    metric = arrays.get("metric")
    if metric is not None and metric.shape != (shape[0], shape[0]):
        raise ValueError(f"{path}: metric: must be {[shape[0]] * 2}, got {list(metric.shape)}")
    process = Process(transitions, rewards, policy, mean, deviation)
    _check_size(path, process)
    return process, metric


def _read(path: Path) -> dict[str, Floats]:
    """Every array of the file as finite float64 numbers."""
    if not path.is_file():
        raise ValueError(f"mdp: {path} is not a file")
    with path.open("rb") as file:
        try:
            opened: Any = np.load(file, allow_pickle=False)
        except (ValueError, EOFError, zipfile.BadZipFile, zlib.error):
            raise ValueError(f"mdp: {path} is not a file of numpy.savez") from None
        if not isinstance(opened, np.lib.npyio.NpzFile):
            raise ValueError(f"mdp: {path} holds one bare array; write it with numpy.savez and names")
        return {name: _numbers(path, name, opened) for name in opened.files}


def _numbers(path: Path, name: str, opened: Any) -> Floats:
    """One array of an open file."""
    try:
        array = np.asarray(opened[name])
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        what = "holds Python objects, which are not read" if "pickle" in str(error) else "is damaged"
        raise ValueError(f"{path}: {name}: {what}; numbers are wanted") from None
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{path}: {name}: must hold real numbers, got {array.dtype}")
    found = array.astype(np.float64)
    if not np.isfinite(found).all():
        place = [int(x) for x in np.argwhere(~np.isfinite(found))[0]]
        raise ValueError(f"{path}: {name}: must be finite, but {place} is {found[tuple(place)]}")
    return found


def _probabilities(path: Path, name: str, array: Floats) -> Floats:
    """The array with rows that sum to one exactly enough, or a complaint about the first row that does not."""
    if (array < 0).any():
        place = [int(x) for x in np.argwhere(array < 0)[0]]
        raise ValueError(f"{path}: {name}: must not be negative, but {place} is {array[tuple(place)]:g}")
    total = array.sum(-1, keepdims=True)
    wrong = np.argwhere(np.abs(total[..., 0] - 1.0) > ROUNDING)
    if len(wrong):
        row = [int(x) for x in wrong[0]]
        raise ValueError(
            f"{path}: {name}: rows must sum to 1, but row {row} sums to {total[tuple(row)][0]:.9g}"
        )
    return array / total


def _per_action(path: Path, name: str, array: Floats, shape: tuple[int, int]) -> Floats:
    if array.shape == shape[:1]:
        return np.repeat(array[:, None], shape[1], 1)
    if array.shape != shape:
        raise ValueError(f"{path}: {name}: must be {list(shape)} or {[shape[0]]}, got {list(array.shape)}")
    return array


def _check_size(path: Path, process: Process) -> None:
    """Refuse what would not fit into memory before the work begins."""
    reached = np.sort(np.count_nonzero(process.kernel, 1))
    cells = int(((process.states - np.arange(process.states)) * reached).sum() * 2)
    if cells > MOST_CELLS:
        raise ValueError(
            f"{path}: {process.states:,} states with up to {reached[-1]:,} successors make {cells:,} cells "
            "of couplings, "
            f"more than the {MOST_CELLS:,} that are taken on; lump states, or cut small probabilities"
        )
