"""What a saved replay is made of, and what it must look like before it is taken up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from teb.replay.sample import Array


class Pieces(NamedTuple):
    """One array in pieces along its first axis, each a view: what is to be written down without a copy."""

    parts: Sequence[Array]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole."""
        return (sum(len(part) for part in self.parts), *self.parts[0].shape[1:])

    @property
    def nbytes(self) -> int:
        """Bytes of the whole."""
        return sum(part.nbytes for part in self.parts)

    def joined(self) -> Array:
        """A copy in one piece."""
        return np.concatenate(self.parts)


def replay_bytes(transitions: int, obs_shape: tuple[int, ...], obs_dtype: DTypeLike) -> int:
    """Bytes that the observations of a replay with so many transitions take; the rest is small beside pictures."""
    return transitions * math.prod(obs_shape) * np.dtype(obs_dtype).itemsize


def some_episodes(state: Mapping[str, Array], rows: Array) -> dict[str, Array]:
    """The saved replay without all but these of its finished episodes; of a mapped file only these are read."""
    ends: list[int] = np.cumsum(state["length"]).tolist()
    begins = [0, *ends]
    slots = np.concatenate([np.arange(begins[row], ends[row], dtype=np.int64) for row in rows.tolist()])
    columns = state.keys() - {"final_obs", "length", "running"}
    return {
        **{name: state[name][slots] for name in columns},
        "final_obs": state["final_obs"][rows],
        "length": state["length"][rows],
        "running": np.array(False),
    }


def check_saved(state: Mapping[str, Array], per_transition: Mapping[str, Array], capacity: int) -> None:
    """Raise `ValueError` unless `state` fits a replay with these arrays, one entry per transition each."""
    columns = {**per_transition, "final_obs": per_transition["obs"]}
    missing = (columns.keys() | {"length", "running"}) - state.keys()
    if missing:
        raise ValueError(f"replay state lacks {sorted(missing)}")
    lengths, running = state["length"], int(state["running"])
    if lengths.dtype != np.int64 or lengths.ndim != 1 or len(lengths) < running:
        raise ValueError("replay state: length must be an int64 per episode, the running one included")
    if (lengths[: len(lengths) - running] < 1).any() or (lengths < 0).any():
        raise ValueError("replay state has an episode without transitions")
    used = int(lengths.sum())
    if used > capacity:
        raise ValueError(f"replay state has {used} transitions, the capacity is {capacity}")
    for name, column in columns.items():
        expected = (len(lengths) if name == "final_obs" else used, *column.shape[1:])
        if state[name].shape != expected or state[name].dtype != column.dtype:
            found = f"{state[name].dtype} {state[name].shape}"
            raise ValueError(f"replay state: {name} must be {column.dtype} {expected}, got {found}")
