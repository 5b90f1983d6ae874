from __future__ import annotations

import os
import shutil
import sys
from importlib import util
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from packaging.requirements import Requirement

from teb import doctor
from teb.doctor import Check
from teb.envs import rendering


def test_the_report_is_complete_and_finds_no_problem_here() -> None:
    checks = doctor.report()
    names = [check.name for check in checks]
    assert len(set(names)) == len(names)
    expected = {
        "python",
        "teb",
        "torch",
        "numpy",
        "gymnasium",
        "threads",
        "bf16 on the CPU",
        "memory",
        "disk",
    }
    assert expected | {"rendering", "tensorboard", "mujoco", "metaworld"} <= set(names)
    assert not [check for check in checks if check.status == "problem"]
    assert all(check.advice for check in checks if check.status != "ok")


def test_dev_tools_are_not_asked_for() -> None:
    assert "pyright" not in [check.name for check in doctor.report()]


@pytest.mark.parametrize(("status", "code"), [("ok", 0), ("note", 0), ("problem", 1)])
def test_only_a_problem_fails(
    status: doctor.Status, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "report", lambda: [Check("x", status, "what it is", "what to do [here]")])
    assert doctor.run() == code
    printed = capsys.readouterr().out
    assert "what it is" in printed
    assert "what to do [here]" in printed


@pytest.mark.parametrize(
    ("wanted", "status"), [("numpy>=1", "ok"), ("numpy<1", "note"), ("no-such-package-teb>=1", "problem")]
)
def test_packages_are_held_against_the_declared_range(wanted: str, status: str) -> None:
    assert doctor._package(Requirement(wanted)).status == status


def test_more_threads_than_cores_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_usable_cores", lambda: 2)
    check = doctor._threads(SimpleNamespace(get_num_threads=lambda: 3))
    assert (check.status, "OMP_NUM_THREADS=2" in check.advice) == ("note", True)
    assert doctor._threads(SimpleNamespace(get_num_threads=lambda: 2)).status == "ok"


def test_bf16_works_without_the_private_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cpu, "_is_avx512_bf16_supported", raising=False)
    monkeypatch.delattr(torch.cpu, "_is_amx_tile_supported", raising=False)
    check = doctor._bf16(torch)
    assert check.status == "ok"
    assert "no hardware support" in check.text


def test_every_cuda_device_gets_a_line() -> None:
    device = SimpleNamespace(name="GPU", total_memory=2**34, major=9, minor=0)
    cuda = SimpleNamespace(
        is_available=lambda: True, device_count=lambda: 2, get_device_properties=lambda index: device
    )
    built = SimpleNamespace(cuda=SimpleNamespace(is_built=lambda: True))
    found = doctor._cuda(SimpleNamespace(backends=built, cuda=cuda))
    assert [(check.name, check.text) for check in found] == [
        ("cuda:0", "GPU, 16.0 GiB, compute capability 9.0"),
        ("cuda:1", "GPU, 16.0 GiB, compute capability 9.0"),
    ]


@pytest.mark.parametrize(
    ("sizes", "status"), [((None, None), "note"), ((2**36, 2**35), "ok"), ((2**36, 2**20), "note")]
)
def test_memory(sizes: tuple[int | None, int | None], status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "memory_bytes", lambda: sizes)
    assert doctor._memory().status == status


@pytest.mark.parametrize(("free", "status"), [(2**40, "ok"), (2**31, "note"), (2**20, "problem")])
def test_disk(free: int, status: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    assert doctor._disk(tmp_path).status == status


def test_a_folder_that_cannot_be_written_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "access", lambda folder, mode: False)
    assert doctor._disk(tmp_path).status == "problem"


@pytest.mark.parametrize(
    ("chosen", "working", "status", "text", "advice"),
    [
        ("", ["egl", "osmesa"], "ok", "egl, osmesa loads, MUJOCO_GL not set", ""),
        ("", [], "note", "no backend loads, MUJOCO_GL not set", "libosmesa6"),
        ("osmesa", ["egl"], "note", "egl loads, MUJOCO_GL=osmesa", "apt-get install libosmesa6"),
        ("EGL", ["egl"], "ok", "egl loads, MUJOCO_GL=EGL", ""),
    ],
)
def test_rendering(
    chosen: str, working: list[str], status: str, text: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(util, "find_spec", lambda name: name)
    monkeypatch.delitem(sys.modules, "mujoco", raising=False)
    monkeypatch.setenv("MUJOCO_GL", chosen)
    monkeypatch.setattr(rendering, "works", lambda backend: backend in working)
    check = doctor._rendering()
    assert (check.status, check.text) == (status, text)
    assert advice in check.advice


def test_rendering_without_mujoco_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    assert doctor._rendering().status == "note"
