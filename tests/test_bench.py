"""The benchmark's look at a real run; its other tables are only numbers."""

from __future__ import annotations

import os

import numpy as np
import pytest
from rich.table import Table

from teb import bench
from teb.machine import peak_memory


@pytest.mark.skipif("DISPLAY" in os.environ, reason="a display is a way to draw")
def test_without_a_way_to_draw_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    said = bench.stepping_table(1)
    assert isinstance(said, str)
    assert said.startswith("A run on Meta-World is not measured: ")
    assert "\n" not in said and ("pictures cannot be drawn" in said or "needs Meta-World" in said)


def test_peak_memory_remembers_what_is_gone() -> None:
    before = peak_memory()
    np.ones(300 * 2**20, np.uint8)
    assert peak_memory() > max(before, 300 * 2**20)


@pytest.mark.slow
@pytest.mark.metaworld
@pytest.mark.rendering
def test_a_real_run_is_split_both_ways() -> None:
    table = bench.stepping_table(1, actions=60)
    assert isinstance(table, Table) and "times as fast" in str(table.caption)
    names, *measured = ([*column.cells] for column in table.columns)
    assert names == ["act", "env", "sample", "update", "total", "peak memory, MiB"]
    for column in measured:
        act, env, sample, update, total, memory = (float(str(cell)) for cell in column)
        assert 0 < env < total and 0 < update < total and act + env + sample + update <= 1.05 * total
        assert 100 < memory < 10_000
