"""Showing run folders."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from teb.report.records import RecordError
from teb.report.show import show


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=140)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_show_writes_into_the_first_run(run_folder, console):
    folders = [run_folder("a"), run_folder("b", seed=1)]
    paths = show([*folders, folders[0]], console=console)
    assert paths == [folders[0] / "show.png", folders[0] / "show.svg"]
    assert all(path.stat().st_size > 1000 for path in paths)
    assert printed(console).count("maze2d/ell") == 2
    assert "unfinished" not in printed(console)


def test_show_writes_where_it_is_told(run_folder, tmp_path, console):
    paths = show([run_folder("a", map={})], out=tmp_path / "new" / "place", console=console)
    assert [path.parent for path in paths] == [tmp_path / "new" / "place"] * 2
    assert all(path.is_file() for path in paths)


def test_an_unfinished_run_says_how_to_go_on(run_folder, console):
    folder = run_folder("a", finished=False, env_steps=12_000, config={"run": {"steps": 100_000}})
    show([folder], console=console)
    assert (
        f"unfinished: 12,000 of 100,000 steps; go on with: teb train --from {folder} --out {folder}"
        in printed(console)
    )


def test_an_unfinished_run_without_a_total(run_folder, console):
    show([run_folder("a", finished=False, config={})], console=console)
    assert "unfinished: 4,000 steps; go on with" in printed(console)


def test_wrong_folders_are_told(tmp_path, console):
    with pytest.raises(RecordError, match="not a run folder"):
        show([tmp_path], console=console)
    with pytest.raises(ValueError, match="at least one run folder"):
        show([], console=console)
