"""Checkpoints that survive a crash at any moment, and that run no code when they are read.

A checkpoint is one safetensors file, `checkpoint-000012000.safetensors`, and its checksum in the format of
`sha256sum`, `checkpoint-000012000.sha256`, so that `sha256sum -c *.sha256` checks a folder by hand. The
folder has one writer at a time. The newest two complete checkpoints stay, so that damage to one never loses
the run.

Inside, every array and tensor is named by its place in the state, "/agent/critic/0.weight". The rest of the
state is JSON in the file's metadata: `tree` is the state with null where it is not plain JSON, and `leaves`
says by place what belongs there: "numpy", "torch", or an integer or float in hexadecimal where JSON would
not keep every bit of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from teb.agents.protocol import State
from teb.replay.saved import Pieces

SCHEMA = 1
"""Raised when a file written now could not be understood by the code of before."""

KEPT = 2
"""How many complete checkpoints stay."""

_FILE = re.compile(r"checkpoint-(\d{9,})\.(safetensors|sha256)")
_SIDECAR = re.compile(r"([0-9a-f]{64}) [ *](checkpoint-\d{9,}\.safetensors)\n")
_TORCH_DTYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.float32: "F32",
    torch.float64: "F64",
}
_NUMPY_DTYPES = {
    np.dtype(str(dtype).removeprefix("torch.")): name
    for dtype, name in _TORCH_DTYPES.items()
    if name != "BF16"
}


Stored = Tensor | np.ndarray | Pieces
"""What the data part of a file is made of."""

MAPPED_BYTES = 2**24
"""From this size on a loaded array stays in the file until it is read, so that it does not stand twice in memory."""

# What reading a file of another shape may raise.
_PARSING = (ValueError, LookupError, TypeError, AttributeError, RecursionError)


class CheckpointError(Exception):
    """A checkpoint could not be written, or none of those that exist can be used."""


class _DamagedError(Exception):
    """Why one checkpoint cannot be used."""


class Loaded(NamedTuple):
    """What `load_latest` found."""

    env_steps: int
    state: State
    path: Path
    rejected: list[str]
    """Newer checkpoints that were passed over: each file's name and what is wrong with it."""


def save(folder: Path, env_steps: int, state: State) -> Path:
    """Write a checkpoint and return its path; older ones go only once it is complete.

    Raises `TypeError`, before anything is written, for a value that cannot be stored, and `CheckpointError`
    if the disk does not take it; the checkpoints that were there are then still there.
    """
    header, arrays = _encode(env_steps, state)
    path = _data_path(folder, env_steps)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(path, header, arrays)
    except OSError as error:
        needed = len(header) + sum(array.nbytes for array in arrays)
        raise CheckpointError(
            f"could not write {path.name} to {folder}: {error.strerror or error} "
            f"({needed} bytes needed, {_free_bytes(folder)} bytes free)"
        ) from error
    try:
        _remove_superseded(folder, env_steps)
    except OSError as error:
        raise CheckpointError(f"{path.name} is saved, but older ones in {folder} stay: {error}") from error
    return path


def load_latest(folder: Path) -> Loaded | None:
    """Read the newest checkpoint that is intact; None if the folder holds none at all.

    Raises `CheckpointError` if there are checkpoints and none can be used. Changes nothing on disk.
    """
    rejected: list[str] = []
    for env_steps in sorted(_found(folder), reverse=True):
        path = _data_path(folder, env_steps)
        try:
            _verify(path)
            return Loaded(env_steps, _decode(path, env_steps), path, rejected)
        except _DamagedError as damage:
            rejected.append(f"{path.name}: {damage}")
    if rejected:
        raise CheckpointError(f"no usable checkpoint in {folder}: {'; '.join(rejected)}")
    return None


# --- files ----------------------------------------------------------------------------------------


def _data_path(folder: Path, env_steps: int) -> Path:
    return folder / f"checkpoint-{env_steps:09d}.safetensors"


def _sidecar_path(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _found(folder: Path) -> dict[int, set[str]]:
    """Which of the two files of a checkpoint exist, by env_steps."""
    found: dict[int, set[str]] = {}
    if folder.is_dir():
        for entry in folder.iterdir():
            if match := _FILE.fullmatch(entry.name):
                found.setdefault(int(match[1]), set()).add(match[2])
    return found


def _write(path: Path, header: bytes, arrays: list[Stored]) -> None:
    """Put both files in place, complete and on disk, or leave the folder as it was."""
    data, sidecar = (target.with_name(f".{target.name}.tmp") for target in (path, _sidecar_path(path)))
    try:
        _remove(path.parent.glob(".checkpoint-*.tmp"))
        digest = hashlib.sha256()
        with data.open("wb") as file:
            for chunk in _chunks(header, arrays):
                file.write(chunk)
                digest.update(chunk)
            _flush_to_disk(file)
        with sidecar.open("wb") as file:
            file.write(f"{digest.hexdigest()}  {path.name}\n".encode())
            _flush_to_disk(file)
        # A disk may be too full for the second file: nothing is replaced until both are written.
        os.replace(data, path)
        os.replace(sidecar, _sidecar_path(path))
        _sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            _remove((data, sidecar))


def _flush_to_disk(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _free_bytes(folder: Path) -> int:
    place = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    return shutil.disk_usage(place).free


def _remove_superseded(folder: Path, saved_steps: int) -> None:
    """Keep the checkpoint just saved and the complete ones before it, `KEPT` in all.

    One of a later step is left over from before a resume. If it is damaged it goes too, or it would count
    among the newest two once the run has passed it; if it is intact it is not for us to delete.
    """
    found = _found(folder)
    complete = [
        steps for steps in sorted(found, reverse=True) if steps <= saved_steps and len(found[steps]) == 2
    ]
    for steps in found.keys() - complete[:KEPT]:
        path = _data_path(folder, steps)
        if steps < saved_steps or _is_damaged(path):
            _remove((path, _sidecar_path(path)))
    _sync_folder(folder)


# --- checks ---------------------------------------------------------------------------------------


def _verify(path: Path) -> None:
    """Compare the file with its checksum before anything in it is believed."""
    try:
        sidecar = _sidecar_path(path).read_bytes()
    except OSError as error:
        raise _DamagedError(f"its checksum file is missing or unreadable ({error.strerror})") from error
    match = _SIDECAR.fullmatch(sidecar.decode(errors="replace"))
    if match is None or match[2] != path.name:
        raise _DamagedError("its checksum file is damaged")
    try:
        with path.open("rb") as file:
            intact = hashlib.file_digest(file, "sha256").hexdigest() == match[1]
            missing = 0 if intact else _missing_bytes(file)
    except OSError as error:
        raise _DamagedError(f"missing or unreadable ({error.strerror})") from error
    if missing > 0:
        raise _DamagedError(f"truncated, at least {missing} bytes are missing")
    if not intact:
        raise _DamagedError("its checksum differs")


def _missing_bytes(file: BinaryIO) -> int:
    """How much shorter a file is than its own header says; 0 if the header is beyond belief."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    start = file.read(8)
    if len(start) < 8:
        return 8 - len(start)
    data_start = 8 + int.from_bytes(start, "little")
    if data_start > size:
        return data_start - size
    try:
        header = json.loads(file.read(data_start - 8))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        return int(data_start + max(ends, default=0) - size)
    except _PARSING:
        return 0


def _is_damaged(path: Path) -> bool:
    try:
        _verify(path)
    except _DamagedError:
        return True
    return False


# --- the state as bytes ---------------------------------------------------------------------------


def _encode(env_steps: int, state: State) -> tuple[bytes, list[Stored]]:
    """The safetensors header, and the arrays whose bytes follow it in this order."""
    arrays: dict[str, Stored] = {}
    leaves: dict[str, str] = {}
    tree = _flatten(state, "", arrays, leaves)
    metadata = {
        "schema": str(SCHEMA),
        "env_steps": str(env_steps),
        "tree": json.dumps(tree, allow_nan=False),
        "leaves": json.dumps(leaves),
    }
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    # Wide elements first: everything then lies where its width asks for.
    ordered = sorted(arrays.items(), key=lambda item: -_first_piece(item[1]).itemsize)
    for place, array in ordered:
        begin, end = end, end + array.nbytes
        header[place] = {
            "dtype": _dtype_name(array),
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, [array for _, array in ordered]


def _flatten(value: object, place: str, arrays: dict[str, Stored], leaves: dict[str, str]) -> object:
    """What remains of `value` as JSON, once arrays are collected, and in `leaves` what JSON cannot say."""
    if isinstance(value, dict):
        for key in value:
            if type(key) is not str:
                raise TypeError(f"cannot store {_shown(place)}: key {key!r} is not a string")
        return {
            key: _flatten(item, f"{place}/{quote(key, safe='', errors='surrogatepass')}", arrays, leaves)
            for key, item in value.items()
        }
    if type(value) is list:
        return [_flatten(item, f"{place}/{index}", arrays, leaves) for index, item in enumerate(value)]
    if value is None or type(value) in (bool, str):
        return value
    # Beyond 2^53 many readers of JSON round integers, and Python itself stops at 4300 digits.
    if type(value) is int and value.bit_length() > 53:
        leaves[place] = f"int {value:x}"
    elif type(value) is float and not math.isfinite(value):
        leaves[place] = f"float {struct.pack('>d', value).hex()}"
    elif type(value) in (int, float):
        return value
    elif isinstance(value, Stored) and _dtype_name(value) is not None:
        arrays[place] = value
        leaves[place] = "torch" if isinstance(value, Tensor) else "numpy"
    else:
        dtype = f" of {_first_piece(value).dtype}" if isinstance(value, Stored) else ""
        raise TypeError(
            f"cannot store {_shown(place)}: a {type(value).__name__}{dtype} has no place in a checkpoint"
        )
    return None


def _shown(place: str) -> str:
    return unquote(place, errors="backslashreplace") or "the state itself"


def _first_piece(array: Stored) -> Tensor | np.ndarray:
    return array.parts[0] if isinstance(array, Pieces) else array


def _dtype_name(array: Stored) -> str | None:
    """The format's name for the element type; None for what the format cannot hold."""
    array = _first_piece(array)
    if isinstance(array, np.ndarray):
        return _NUMPY_DTYPES.get(array.dtype) if type(array) is np.ndarray else None
    stored = array.layout == torch.strided and array.device.type != "meta"
    return _TORCH_DTYPES.get(array.dtype) if stored else None


def _chunks(header: bytes, arrays: list[Stored]) -> Iterator[bytes | memoryview]:
    """The file's bytes. A copy is made only of what is not in order in memory, one array at a time."""
    yield header
    for array in (
        part for whole in arrays for part in (whole.parts if isinstance(whole, Pieces) else (whole,))
    ):
        if array.nbytes == 0:
            continue
        if isinstance(array, Tensor):
            tensor = array.detach().cpu().contiguous()
            # One element may lie anywhere and still count as contiguous; its stride must be said to be 1.
            array = tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy()
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _decode(path: Path, env_steps: int) -> State:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if int(metadata["schema"]) > SCHEMA:
                raise _DamagedError(
                    f"written by a newer version (schema {metadata['schema']}, known is {SCHEMA})"
                )
            if int(metadata["env_steps"]) != env_steps:
                raise _DamagedError(f"written at {metadata['env_steps']} env_steps, unlike its name")
            state = json.loads(metadata["tree"])
            for place, leaf in json.loads(metadata["leaves"]).items():
                _put(state, place, _restore(leaf, place, file))
    except KeyError as error:
        raise _DamagedError(f"unreadable (it lacks {error})") from error
    except (SafetensorError, struct.error, *_PARSING, OSError) as error:
        raise _DamagedError(f"unreadable ({error})") from error
    return state


def _restore(leaf: str, place: str, file: Any) -> object:
    kind, _, digits = leaf.partition(" ")
    if kind == "int":
        return int(digits, 16)
    if kind == "float":
        return struct.unpack(">d", bytes.fromhex(digits))[0]
    # The reader lends memory that is mapped from the file. A copy does not depend on the file any more; what is large
    # is copied only once, by whoever takes it up.
    tensor: Tensor = file.get_tensor(place)
    if tensor.nbytes < MAPPED_BYTES:
        tensor = tensor.clone()
    return tensor.numpy() if kind == "numpy" else tensor


def _put(state: Any, place: str, value: object) -> None:
    *parents, last = (unquote(key, errors="surrogatepass") for key in place.split("/")[1:])
    for key in parents:
        state = state[int(key) if isinstance(state, list) else key]
    state[int(last) if isinstance(state, list) else last] = value
