from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from teb.run.logging import Bar, Lines, MetricsFile, display, read_rows


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The time that `time.monotonic` tells."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    yield now


def plain() -> Console:
    return Console(file=io.StringIO(), soft_wrap=True)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


# --- metrics.jsonl ------------------------------------------------------------------------------------------------


def test_rows_are_on_file_as_soon_as_they_are_written(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.jsonl", 0)
    assert (file.length, read_rows(tmp_path / "metrics.jsonl")) == (0, [])
    for step in (1, 2):
        file.write({"env_steps": step, "loss": None})
        assert read_rows(tmp_path / "metrics.jsonl")[-1] == {"env_steps": step, "loss": None}
        assert file.length == (tmp_path / "metrics.jsonl").stat().st_size
    file.close()


def test_a_resumed_file_is_cut_to_where_the_checkpoint_saw_it(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path, 0)
    file.write({"env_steps": 1})
    length = file.length
    file.write({"env_steps": 2})
    file.close()
    file = MetricsFile(path, length)
    assert file.length == length
    file.write({"env_steps": 3})
    file.close()
    assert read_rows(path) == [{"env_steps": 1}, {"env_steps": 3}]


def test_a_file_that_is_shorter_than_expected_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"env_steps": 1}\n')
    with pytest.raises(ValueError, match=r"metrics.jsonl: 17 bytes, but .* after 18"):
        MetricsFile(path, 18)
    assert path.read_text() == '{"env_steps": 1}\n'


def test_numbers_that_json_lacks_are_refused(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.jsonl", 0)
    with pytest.raises(ValueError):
        file.write({"loss": float("nan")})
    file.close()
    assert read_rows(tmp_path / "metrics.jsonl") == []


# --- lines --------------------------------------------------------------------------------------------------------


def test_lines_tell_how_far_how_fast_and_how_long_still(clock: list[float]) -> None:
    console = plain()
    with Lines(console, "teb on a maze, seed 0", 10_000, 0, "coverage") as lines:
        clock[0] += 4.0
        lines.advance({"env_steps": 2000, "coverage": 0.25})
    assert printed(console) == (
        "teb on a maze, seed 0  2,000/10,000 steps  coverage 0.250  500 steps/s  16 s left\n"
    )


def test_a_resumed_run_is_timed_from_where_it_was_taken_up(clock: list[float]) -> None:
    console = plain()
    with Lines(console, "teb", 10_000, 8000, "coverage") as lines:
        clock[0] += 10.0
        lines.advance({"env_steps": 9000, "coverage": None})
    assert printed(console) == "teb  9,000/10,000 steps  100 steps/s  10 s left\n"


def test_lines_come_about_twenty_times_and_at_the_end(clock: list[float]) -> None:
    console = plain()
    with Lines(console, "teb", 1010, 0, "coverage") as lines:
        for step in (*range(10, 1010, 10), 1010):
            clock[0] += 1.0
            lines.advance({"env_steps": step, "coverage": 0.5})
    said = printed(console).splitlines()
    assert 15 <= len(said) <= 25
    assert "1,010/1,010 steps" in said[-1] and "0 s left" in said[-1]


def test_a_row_at_the_step_of_the_start_does_not_divide_by_zero(clock: list[float]) -> None:
    console = plain()
    with Lines(console, "teb", 100, 50, "coverage") as lines:
        lines.advance({"env_steps": 50})
    assert "50/100 steps" in printed(console)


# --- the bar ------------------------------------------------------------------------------------------------------


def test_the_bar_shows_title_progress_headline_and_time_left() -> None:
    console = Console(force_terminal=True, file=io.StringIO(), width=160)
    with Bar(console, "teb on a maze, seed 0", 4000, 1000, "coverage") as bar:
        bar.advance({"env_steps": 3000, "coverage": 0.125})
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", printed(console))
    assert "teb on a maze, seed 0" in text
    assert "3000/4000" in text and "75%" in text
    assert "coverage 0.125" in text
    assert re.search(r"-:--:--|\d+:\d\d:\d\d", text)


def test_the_bar_bears_rows_without_the_headline() -> None:
    console = Console(force_terminal=True, file=io.StringIO(), width=160)
    with Bar(console, "teb", 10, 0, "episode_return") as bar:
        bar.advance({"env_steps": 5, "episode_return": None})
        bar.advance({"env_steps": 10})
    assert "10/10" in printed(console)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "kind"), [(Terminal(), Bar), (io.StringIO(), Lines)])
def test_a_terminal_gets_a_bar_and_a_file_gets_lines(
    stream: io.StringIO, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", stream)
    with display("teb", 10, 0, "coverage") as shown:
        assert type(shown) is kind
        shown.advance({"env_steps": 10, "coverage": 0.5})
    assert "coverage 0.500" in stream.getvalue()
