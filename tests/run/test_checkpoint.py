from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import pickle
import random
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.torch import load_file, save_file

from teb.run import checkpoint
from teb.run.checkpoint import CheckpointError, load_latest, save

DTYPES = ["bool", "uint8", "int32", "int64", "float32", "float64"]


def identical(left: Any, right: Any) -> bool:
    """Same types, same bits, everywhere."""
    if isinstance(left, dict):
        return (
            type(right) is dict
            and list(left) == list(right)
            and all(identical(left[k], right[k]) for k in left)
        )
    if isinstance(left, list):
        return type(right) is list and len(left) == len(right) and all(map(identical, left, right))
    if isinstance(left, torch.Tensor):
        return type(right) is torch.Tensor and left.dtype == right.dtype and bits(left) == bits(right)
    if isinstance(left, np.ndarray):
        return type(right) is np.ndarray and left.dtype == right.dtype and bits(left) == bits(right)
    if type(left) is float:
        return type(right) is float and struct.pack("d", left) == struct.pack("d", right)
    return type(left) is type(right) and left == right


def bits(array: torch.Tensor | np.ndarray) -> tuple[tuple[int, ...], bytes]:
    if isinstance(array, torch.Tensor):
        flat = torch.empty(array.numel(), dtype=array.dtype).copy_(array.detach().reshape(-1))
        return tuple(array.shape), bytes(flat.untyped_storage())
    return array.shape, array.tobytes()


def round_trip(folder: Path, state: dict[str, Any]) -> dict[str, Any]:
    save(folder, 7, state)
    loaded = load_latest(folder)
    assert loaded is not None and loaded.env_steps == 7 and loaded.rejected == []
    return loaded.state


def some_state(number: int) -> dict[str, Any]:
    return {"number": number, "weights": torch.full((300,), float(number)), "table": np.arange(number)}


def sidecar(path: Path) -> Path:
    return path.with_suffix(".sha256")


def reseal(path: Path) -> None:
    """Give a file a checksum that fits, as if it had been written like this."""
    sidecar(path).write_text(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def pair(*env_steps: int) -> list[str]:
    return sorted(
        f"checkpoint-{steps:09d}.{kind}" for steps in env_steps for kind in ("safetensors", "sha256")
    )


# --- what survives ------------------------------------------------------------------------------------


def test_every_kind_of_leaf_survives(tmp_path: Path) -> None:
    state: dict[str, Any] = {
        "none": None,
        "flags": [True, False],
        "ints": [0, -1, 2**53, 2**53 + 1, -(2**127) + 5, 2**128 - 1, 10**5000],
        "floats": [
            0.1,
            -0.0,
            5e-324,
            math.inf,
            -math.inf,
            *struct.unpack(">2d", bytes.fromhex("fff8000000abcdef" * 2)),
        ],
        "text": 'quote " slash / percent % tilde ~ \u00e9 \ud800 \x00',
        "empty": {"dict": {}, "list": []},
        "numpy generator": np.random.default_rng(3).bit_generator.state,
        "mersenne": np.random.RandomState(3).get_state(legacy=False),
        "torch generator": torch.Generator().manual_seed(5).get_state(),
        "": {"": torch.ones(2)},
        "__metadata__": torch.ones(3),
        "a/b": {"c": np.ones(1)},
        "a": {"b/c": np.ones(2), "b": {"c": np.ones(3)}, "\ud800": np.ones(4)},
        "list": [{"deep": torch.zeros(1)}, [np.zeros(2)]],
    }
    assert identical(round_trip(tmp_path, state), state)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3, 5)])
def test_every_dtype_and_shape_survives(tmp_path: Path, shape: tuple[int, ...]) -> None:
    noise = np.random.default_rng(0).bytes(8 * math.prod(shape))
    state: dict[str, Any] = {}
    for name in DTYPES:
        source = np.frombuffer(noise, dtype="uint8" if name == "bool" else name)
        array = source[: math.prod(shape)].reshape(shape).astype(name, copy=True)
        state |= {f"numpy {name}": array, f"torch {name}": torch.from_numpy(array.copy())}
    state["bfloat16"] = torch.from_numpy(np.frombuffer(noise, "int16")[: math.prod(shape)].copy()).view(
        torch.bfloat16
    )
    state["bfloat16"] = state["bfloat16"].reshape(shape)
    loaded = round_trip(tmp_path, state)
    assert identical(loaded, state)
    assert loaded["bfloat16"].dtype == torch.bfloat16


def test_nan_payloads_survive(tmp_path: Path) -> None:
    payloads = np.array([0x7FC00000, 0x7F800001, 0xFFC12345, 0x80000000], dtype=np.uint32)
    state = {"numpy": payloads.view(np.float32), "torch": torch.from_numpy(payloads.view(np.float32).copy())}
    loaded = round_trip(tmp_path, state)
    assert loaded["numpy"].view(np.uint32).tolist() == payloads.tolist()
    assert loaded["torch"].numpy().view(np.uint32).tolist() == payloads.tolist()


def test_arrays_that_are_not_in_order_in_memory_survive(tmp_path: Path) -> None:
    tensor, array = torch.arange(24.0).reshape(4, 6), np.arange(24).reshape(4, 6)
    state = {
        "transposed": tensor.T,
        "strided": tensor[::2, 1::3],
        "one of many": tensor[:1, 0],
        "numpy one of many": array[2:3, 1],
        "none of many": tensor[:0, ::2],
        "expanded": torch.ones(1).expand(5),
        "numpy transposed": array.T,
        "numpy reversed": array[::-1, ::2],
        "three bytes": torch.arange(3, dtype=torch.uint8),
    }
    loaded = round_trip(tmp_path, state)
    for name, value in state.items():
        np.testing.assert_array_equal(np.asarray(loaded[name]), np.asarray(value))


def test_modules_and_parameters_come_back_as_plain_values(tmp_path: Path) -> None:
    module = torch.nn.Linear(3, 2)
    loaded = round_trip(tmp_path, {"module": module.state_dict(), "parameter": module.weight})
    assert type(loaded["module"]) is dict and list(loaded["module"]) == ["weight", "bias"]
    assert type(loaded["parameter"]) is torch.Tensor and not loaded["parameter"].requires_grad
    assert torch.equal(loaded["parameter"], module.weight)


def test_loaded_arrays_and_the_file_do_not_depend_on_each_other(tmp_path: Path) -> None:
    path = save(tmp_path, 7, {"array": np.ones(10_000), "tensor": torch.ones(10_000)})
    first = load_latest(tmp_path)
    assert first is not None
    first.state["array"] += 1
    first.state["tensor"] += 1
    second = load_latest(tmp_path)
    assert second is not None
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    for value in second.state.values():
        assert (value == 1).all()


def test_the_file_is_plain_safetensors_with_every_array_aligned(tmp_path: Path) -> None:
    state = {
        "a": torch.ones(3, dtype=torch.bool),
        "b": {"c": torch.ones(3, dtype=torch.float64)},
        "d": np.ones(1),
    }
    path = save(tmp_path, 7, state)
    assert identical(load_file(path)["/b/c"], state["b"]["c"])
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    begins = {name: header[name]["data_offsets"][0] for name in ("/a", "/b/c", "/d")}
    assert begins == {"/b/c": 0, "/d": 24, "/a": 32}
    assert (len(content) - 35) % 8 == 0


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**128), 2**128)
    | st.floats()
    | st.text()
    | st.sampled_from(DTYPES).flatmap(lambda name: hnp.arrays(name, hnp.array_shapes(min_dims=0, min_side=0)))
    | hnp.arrays("float32", hnp.array_shapes(min_dims=0, min_side=0)).map(torch.from_numpy)
)
TREES = st.dictionaries(
    st.text(),
    st.recursive(
        LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_size=4,
)


@settings(max_examples=40, deadline=None)
@given(state=TREES)
def test_any_tree_survives(tmp_path_factory: pytest.TempPathFactory, state: dict[str, Any]) -> None:
    assert identical(round_trip(tmp_path_factory.mktemp("tree"), state), state)


@pytest.mark.parametrize(
    ("state", "place"),
    [
        ({"agent": {"betas": (0.9, 0.999)}}, "/agent/betas"),
        ({"agent": [1, {"x": object()}]}, "/agent/1/x"),
        ({"objects": np.array([{}], dtype=object)}, "/objects"),
        ({"complex": torch.zeros(1, dtype=torch.complex64)}, "/complex"),
        ({"big endian": np.zeros(1, dtype=">f4")}, "/big endian"),
        ({"masked": np.ma.masked_array([1.0])}, "/masked"),
        ({"sparse": torch.eye(2).to_sparse()}, "/sparse"),
        ({"meta": torch.zeros(1, device="meta")}, "/meta"),
        ({"scalar": np.float64(1)}, "/scalar"),
        ({"state": {0: 1}}, "/state"),
        ({"set": {1}}, "/set"),
        ({"bytes": b"1"}, "/bytes"),
    ],
)
def test_what_cannot_be_stored_is_named_and_nothing_is_written(
    tmp_path: Path, state: dict[str, Any], place: str
) -> None:
    with pytest.raises(TypeError, match=f"{place}:"):
        save(tmp_path / "new", 1, state)
    assert not (tmp_path / "new").exists()


# --- files --------------------------------------------------------------------------------------------


def test_names_and_a_checksum_that_sha256sum_accepts(tmp_path: Path) -> None:
    path = save(tmp_path / "a" / "b", 12_000, some_state(1))
    assert path == tmp_path / "a" / "b" / "checkpoint-000012000.safetensors"
    assert names(path.parent) == pair(12_000)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert sidecar(path).read_text() == f"{digest}  {path.name}\n"
    if program := shutil.which("sha256sum"):
        subprocess.run([program, "-c", sidecar(path).name], cwd=path.parent, check=True, capture_output=True)


def test_no_folder_or_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert load_latest(tmp_path / "missing") is None
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / ".checkpoint-000000001.safetensors.tmp").write_text("half")
    assert load_latest(tmp_path) is None


def test_the_newest_two_stay_and_nothing_else_is_touched(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / ".checkpoint-000000050.safetensors.tmp").write_text("left by a crash")
    for steps in (100, 200, 999_999_999, 1_000_000_000):
        save(tmp_path, steps, some_state(steps % 7))
    assert names(tmp_path) == sorted([*pair(999_999_999, 1_000_000_000), "config.json"])
    loaded = load_latest(tmp_path)
    assert loaded is not None and loaded.env_steps == 1_000_000_000
    assert identical(loaded.state, some_state(1_000_000_000 % 7))


def test_older_checkpoints_go_only_after_the_new_one_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1, some_state(1))
    save(tmp_path, 2, some_state(2))
    seen: list[list[str]] = []
    unlink = Path.unlink

    def watched(path: Path, missing_ok: bool = False) -> None:
        if path.exists():
            seen.append(names(tmp_path))
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", watched)
    save(tmp_path, 3, some_state(3))
    assert seen and seen[0] == pair(1, 2, 3)


def test_saving_the_same_step_again_replaces_it(tmp_path: Path) -> None:
    for number in (1, 2):
        save(tmp_path, 5, some_state(number))
    loaded = load_latest(tmp_path)
    assert loaded is not None and loaded.state["number"] == 2 and loaded.rejected == []


# --- damage -------------------------------------------------------------------------------------------


def two_checkpoints(folder: Path) -> Path:
    save(folder, 1000, some_state(1))
    return save(folder, 2000, some_state(2))


def check_falls_back(folder: Path, newest: Path, reason: str) -> None:
    loaded = load_latest(folder)
    assert loaded is not None and loaded.env_steps == 1000
    assert identical(loaded.state, some_state(1))
    assert len(loaded.rejected) == 1
    assert newest.name in loaded.rejected[0] and reason in loaded.rejected[0]


@pytest.mark.parametrize("size", [0, 4, 100, -500, -1])
def test_a_truncated_file_is_passed_over(tmp_path: Path, size: int) -> None:
    newest = two_checkpoints(tmp_path)
    os.truncate(newest, size if size >= 0 else newest.stat().st_size + size)
    check_falls_back(tmp_path, newest, "truncated")


def test_bytes_too_many_are_noticed(tmp_path: Path) -> None:
    newest = two_checkpoints(tmp_path)
    with newest.open("ab") as file:
        file.write(b"\0")
    check_falls_back(tmp_path, newest, "checksum differs")


def test_any_flipped_bit_in_any_file_is_noticed(tmp_path: Path) -> None:
    newest = two_checkpoints(tmp_path)
    rng = random.Random(0)
    for path in (newest, sidecar(newest)):
        good = path.read_bytes()
        positions = {*rng.sample(range(len(good)), min(50, len(good))), 0, 1, 9, len(good) - 1}
        for position in positions:
            bad = bytearray(good)
            bad[position] ^= 1 << rng.randrange(8)
            path.write_bytes(bad)
            check_falls_back(tmp_path, newest, "")
        path.write_bytes(good)
    assert load_latest(tmp_path).env_steps == 2000  # type: ignore[union-attr]


def test_a_kill_between_file_and_checksum_uses_the_previous(tmp_path: Path) -> None:
    newest = two_checkpoints(tmp_path)
    sidecar(newest).unlink()
    check_falls_back(tmp_path, newest, "checksum file is missing")


def test_a_failure_between_putting_the_two_files_in_place_uses_the_previous(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1000, some_state(1))
    replace, calls = os.replace, 0

    def failing(source: Path, target: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing)
        with pytest.raises(CheckpointError, match="Input/output error"):
            save(tmp_path, 2000, some_state(2))
    check_falls_back(tmp_path, tmp_path / "checkpoint-000002000.safetensors", "checksum file is missing")
    save(tmp_path, 3000, some_state(3))
    assert names(tmp_path) == pair(1000, 3000)


def test_a_checksum_without_its_file_uses_the_previous(tmp_path: Path) -> None:
    newest = two_checkpoints(tmp_path)
    newest.unlink()
    check_falls_back(tmp_path, newest, "missing")


def test_a_checksum_of_another_file_is_not_believed(tmp_path: Path) -> None:
    newest = two_checkpoints(tmp_path)
    shutil.copy(sidecar(newest.with_name("checkpoint-000001000.safetensors")), sidecar(newest))
    check_falls_back(tmp_path, newest, "checksum file is damaged")


def test_a_renamed_checkpoint_is_not_believed(tmp_path: Path) -> None:
    newest = two_checkpoints(tmp_path)
    renamed = newest.with_name("checkpoint-000003000.safetensors")
    newest.rename(renamed)
    sidecar(newest).unlink()
    reseal(renamed)
    check_falls_back(tmp_path, renamed, "written at 2000 env_steps")


def test_a_newer_schema_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1000, some_state(1))
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "SCHEMA", checkpoint.SCHEMA + 1)
        newest = save(tmp_path, 2000, some_state(2))
    check_falls_back(tmp_path, newest, "newer version")


class _Bomb:
    def __init__(self, trace: Path) -> None:
        self.trace = str(trace)

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (self.trace,))


def test_a_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    newest = two_checkpoints(tmp_path)
    trace = tmp_path / "code was run"
    pickled = pickle.dumps(_Bomb(trace))
    for content in (pickled, len(pickled).to_bytes(8, "little") + pickled):
        newest.write_bytes(content)
        reseal(newest)
        check_falls_back(tmp_path, newest, "unreadable")
    torch.save({"bomb": _Bomb(trace)}, newest)
    reseal(newest)
    check_falls_back(tmp_path, newest, "unreadable")
    assert not trace.exists()
    pickle.loads(pickled)
    assert trace.exists()


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {"schema": "one"},
        {"schema": "1", "env_steps": "2000", "tree": "{", "leaves": "{}"},
        {"schema": "1", "env_steps": "2000", "tree": "{}", "leaves": '{"/absent": "torch"}'},
        {"schema": "1", "env_steps": "2000", "tree": "[]", "leaves": '{"/x": "float 00"}'},
        {"schema": "1", "env_steps": "2000", "tree": "1", "leaves": '{"/x": "torch"}'},
        {"schema": "1", "env_steps": "2000", "tree": "{}", "leaves": "[]"},
    ],
)
def test_a_safetensors_file_from_elsewhere_is_refused(
    tmp_path: Path, metadata: dict[str, str] | None
) -> None:
    newest = two_checkpoints(tmp_path)
    save_file({"/x": torch.zeros(2)}, newest, metadata)
    reseal(newest)
    check_falls_back(tmp_path, newest, "unreadable")


def test_nothing_intact_is_an_error_that_names_every_file(tmp_path: Path) -> None:
    newest = two_checkpoints(tmp_path)
    os.truncate(newest, 50)
    sidecar(newest.with_name("checkpoint-000001000.safetensors")).unlink()
    with pytest.raises(CheckpointError, match=r"000002000.*truncated.*000001000.*missing"):
        load_latest(tmp_path)


def test_a_damaged_checkpoint_never_pushes_out_the_one_that_was_resumed_from(tmp_path: Path) -> None:
    newest = two_checkpoints(tmp_path)
    os.truncate(newest, 50)
    save(tmp_path, 1500, some_state(3))
    assert names(tmp_path) == pair(1000, 1500)
    save(tmp_path, 2500, some_state(4))
    assert names(tmp_path) == pair(1500, 2500)


def test_an_intact_checkpoint_of_a_later_step_is_not_deleted(tmp_path: Path) -> None:
    for steps in (3000, 2000, 1000):
        save(tmp_path, steps, some_state(1))
    assert names(tmp_path) == pair(1000, 2000, 3000)


# --- a disk that does not take it ---------------------------------------------------------------------


def check_failed_save_changes_nothing(folder: Path, env_steps: int) -> CheckpointError:
    before = {entry.name: entry.read_bytes() for entry in folder.iterdir()}
    with pytest.raises(CheckpointError) as caught:
        save(folder, env_steps, some_state(9))
    assert {entry.name: entry.read_bytes() for entry in folder.iterdir()} == before
    loaded = load_latest(folder)
    assert loaded is not None and loaded.env_steps == 2000 and loaded.rejected == []
    return caught.value


@pytest.mark.parametrize("failing_call", [1, 2])
@pytest.mark.parametrize("env_steps", [2000, 3000])
def test_a_full_disk_leaves_the_old_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing_call: int, env_steps: int
) -> None:
    two_checkpoints(tmp_path)
    fsync, calls = os.fsync, 0

    def full(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls == failing_call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        patch.setattr(shutil, "disk_usage", lambda _place: shutil._ntuple_diskusage(9, 8, 123))  # type: ignore[attr-defined]
        message = str(check_failed_save_changes_nothing(tmp_path, env_steps))
    assert str(tmp_path) in message and "No space left" in message and "123 bytes free" in message
    needed = save(tmp_path, env_steps, some_state(9)).stat().st_size
    assert f"{needed} bytes needed" in message


def test_a_write_that_the_system_refuses_leaves_the_old_checkpoints(tmp_path: Path) -> None:
    """A real refusal half way through the file: the process may not write files beyond this size."""
    resource = pytest.importorskip("resource")
    newest = two_checkpoints(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (newest.stat().st_size - 100, hard))
    try:
        check_failed_save_changes_nothing(tmp_path, 3000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(CheckpointError, match=r"runs.*bytes needed.*bytes free"):
        save(tmp_path / "runs" / "one", 1, {})


def test_an_interrupt_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_checkpoints(tmp_path)

    def interrupted(_handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 3000, some_state(3))
    assert names(tmp_path) == pair(1000, 2000)
