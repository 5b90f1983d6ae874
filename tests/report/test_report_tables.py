"""Tables against values worked out by hand."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from teb.report.comparison import compare, groups
from teb.report.tables import markdown, summary_table
from teb.report.words import duration, number, short_steps


def text_of(table) -> str:
    stream = io.StringIO()
    Console(file=stream, width=140).print(table)
    return stream.getvalue()


def cells(table) -> list[list[str]]:
    columns = [[str(cell) for cell in column.cells] for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def test_runs_of_equal_length_show_their_final_value(record):
    table = summary_table([record(), record(seed=1, final={"coverage": 0.5})])
    assert [column.header for column in table.columns][4:] == ["coverage", "at steps", "wall-clock"]
    assert cells(table) == [
        ["maze2d/ell", "teb", "0", "4K", "0.42", "4K", "0:04:01"],
        ["maze2d/ell", "teb", "1", "4K", "0.50", "4K", "0:04:01"],
    ]
    assert "compared at" not in text_of(table)


def test_labels_get_mean_and_std(record):
    runs = [record(seed=s, final={"coverage": c}) for s, c in enumerate((0.4, 0.5, 0.6))]
    assert cells(summary_table([*runs, record(label="uniform")], by="label")) == [
        ["maze2d/ell", "teb", "3 (0, 1, 2)", "4K", "0.50 ± 0.10", "4K", "0:04:01"],
        ["maze2d/ell", "uniform", "0", "4K", "0.42", "4K", "0:04:01"],
    ]


def test_runs_of_different_length_are_cut_and_the_table_says_so(record):
    short = record(
        label="rnd",
        env_steps=2500,
        finished=False,
        curves={"env_steps": [1500, 2500], "coverage": [0.3, 0.6]},
    )
    table = summary_table([record(), short])
    assert [row[3:6] for row in cells(table)] == [
        ["4K", "0.20", "2.5K"],
        ["2.5K of 4K", "0.60", "2.5K"],
    ]
    assert "maze2d/ell: compared at 2,500 steps, the most that all its runs reached" in text_of(table)


def test_unfinished_runs_say_so(record):
    half = record(env_steps=2000, finished=False, config={})
    assert cells(summary_table([half]))[0][3] == "2K (unfinished)"
    assert cells(summary_table([half, record(seed=1)], by="label"))[0][3] == "2K-4K (1 unfinished)"


def test_another_environment_does_not_cut(record):
    other = record(
        env="metaworld/door", headline="episode_return", env_steps=2000, final={"episode_return": 12.345}
    )
    rows = cells(summary_table([record(), other]))
    assert [row[4:6] for row in rows] == [["coverage 0.42", "4K"], ["episode return 12.35", "2K"]]


def test_a_run_without_a_result_is_missing_and_holds_nobody_back(record):
    fresh = record(label="rnd", env_steps=0, finished=False, curves={}, final={})
    comparison = compare([record(), fresh])
    assert (comparison.env_steps, comparison.cut, comparison.values[0]) == (4000, False, 0.42)
    assert cells(summary_table([record(), fresh]))[1][4:6] == ["missing", "-"]


def test_only_a_run_without_a_result(record):
    assert cells(summary_table([record(env_steps=0, curves={}, final={}, map={})]))[0][4] == "missing"


def test_a_final_value_that_is_absent_comes_from_the_curve(record):
    assert compare([record(final={})]).values == (0.4,)


def test_a_run_without_curves_counts_only_at_its_own_length(record):
    bare = record(label="bare", curves={}, env_steps=8000)
    comparison = compare([record(), bare])
    assert comparison.env_steps == 4000 and comparison.cut
    assert str(comparison.values) == "(0.4, nan)"


def test_two_configurations_under_one_label_stay_apart(record):
    found = groups([record(), record(seed=1), record(seed=2, config_hash="77aa0000")])
    assert [(group.name, len(group.records)) for group in found] == [("teb [9f0c]", 2), ("teb [77aa00]", 1)]


def test_square_brackets_in_a_label_are_no_markup(record):
    assert "teb [bold]x" in text_of(summary_table([record(label="teb [bold]x")]))


def test_markdown():
    assert markdown([["a|b", 1, None], ["c", 0.5, "x\ny"]], ["", "n", "m"]) == (
        "|  | n | m |\n| --- | ---: | ---: |\n| a\\|b | 1 | missing |\n| c | 0.5 | x y |\n"
    )
    with pytest.raises(ValueError, match="a row has 1 cells, the header has 2"):
        markdown([["a"]], ["x", "y"])


def test_words():
    steps = [950, 1000, 12_345, 100_000, 999_999, 1_500_000]
    assert [short_steps(n) for n in steps] == ["950", "1K", "12.3K", "100K", "1M", "1.5M"]
    assert [duration(s) for s in (0.4, 61, 3661, float("nan"))] == [
        "0:00:00",
        "0:01:01",
        "1:01:01",
        "missing",
    ]
    assert number(0.978, "coverage") == "0.98"
    assert number(float("nan"), "coverage") == "missing"
