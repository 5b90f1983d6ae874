"""Studies: missing cells, single seeds, published rows, the uniform row."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from teb.report.records import RecordWarning
from teb.report.statistics import bootstrap_interval
from teb.report.study import Study, curves_figure, final_figure, study_table, write_study

ENVS = ["maze2d/ell", "maze2d/tee"]


def runs(record, label: str, env: str, values: list[float], **changes):
    return [
        record(label=label, env=env, seed=s, final={"coverage": v}, **changes) for s, v in enumerate(values)
    ]


@pytest.fixture
def study(record) -> Study:
    records = runs(record, "teb", ENVS[0], [0.4, 0.5, 0.6]) + runs(record, "teb", ENVS[1], [0.2, 0.4])
    records += runs(record, "rnd", ENVS[0], [0.3])
    records += runs(record, "uniform", ENVS[0], [0.1, 0.3]) + runs(record, "unasked", ENVS[0], [0.9])
    published = {ENVS[0]: {"teb": (0.87, 0.07), "cesd": (0.71, float("nan"))}}
    return Study(records, ["teb", "rnd"], ENVS, published)


def rows_of(table: str) -> list[list[str]]:
    return [
        [c.strip() for c in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")
    ]


def test_table(study):
    table = study_table(study)
    low, high = bootstrap_interval([[0.4, 0.5, 0.6], [0.2, 0.4]])
    assert rows_of(table) == [
        ["", "ell", "tee", "mean [95 %]"],
        ["---", "---:", "---:", "---:"],
        ["teb", "0.50 ± 0.10 (3)", "0.30 ± 0.14 (2)", f"0.40 [{low:.2f}, {high:.2f}]"],
        ["teb (published)", "0.87 ± 0.07", "missing", "-"],
        ["rnd", "0.30 (1 seed)", "missing", "missing"],
        ["uniform", "0.20 ± 0.14 (2)", "missing", "missing"],
        ["cesd (published)", "0.71", "missing", "-"],
    ]
    assert "ell, tee: after 4,000 environment steps." in table
    assert "numbers from papers, not measured here" in table
    assert "†" not in table


def test_uniform_is_a_row_even_without_any_run(record):
    study = Study(runs(record, "teb", ENVS[0], [0.4]), ["teb"], ENVS[:1])
    assert rows_of(study_table(study))[-1] == ["uniform", "missing"]
    labels = [text.get_text() for text in curves_figure(study).legends[0].get_texts()]
    assert labels == ["teb", "uniform (missing)"]


def test_runs_of_different_length_are_compared_where_all_have_been(record):
    short = runs(
        record, "uniform", ENVS[0], [0.9], env_steps=2000, curves={"env_steps": [2000], "coverage": [0.9]}
    )
    study = Study(runs(record, "teb", ENVS[0], [0.4]) + short, ["teb"], ENVS[:1])
    assert study.steps[ENVS[0]] == (2000, True)
    assert study.cell("teb", ENVS[0]).values == (0.2,)
    assert "after 2,000 environment steps, the most that all runs reached" in study_table(study)
    assert final_figure(study).axes[0].get_xlabel() == "coverage at 2K steps (shortest run)"


def test_unfinished_and_repeated_runs_are_left_out_and_named(record):
    records = [
        record(started="2026-11-02T00:00:00+00:00", config_hash="new", final={"coverage": 0.7}),
        record(started="2026-11-01T00:00:00+00:00", config_hash="old", final={"coverage": 0.1}),
        record(seed=1, finished=False),
    ]
    study = Study(records, ["teb"], ENVS[:1])
    with pytest.warns(RecordWarning) as caught:
        assert study.cell("teb", ENVS[0]).values == (0.7,)
    messages = " ".join(str(warning.message) for warning in caught)
    assert "seed 1: left out, unfinished" in messages
    assert "seed 0: ran under two configurations, kept the newest" in messages


def test_seeds_from_several_configurations_are_marked(record):
    records = [record(config_hash="a"), record(seed=1, config_hash="b")]
    study = Study(records, ["teb"], ENVS[:1])
    assert rows_of(study_table(study))[2] == ["teb", "0.42 ± 0.00 (2) †"]
    assert "† seeds from more than one configuration." in study_table(study)
    curves_figure(study)


def test_curves_have_a_line_per_row_with_runs(study):
    first, second = curves_figure(study).axes[:2]
    assert len(first.lines) == 3
    assert len(second.lines) == 1
    assert [first.get_title(), second.get_title()] == ["ell", "tee"]
    dashed = [line for line in first.lines if line.get_linestyle() == "--"]
    assert len(dashed) == 1


def test_final_values_are_where_they_belong(study):
    ax = final_figure(study).axes[0]
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == ["teb", "rnd", "uniform", "cesd (published)"]
    assert [patch.get_width() for patch in ax.patches if isinstance(patch, Rectangle)] == pytest.approx(
        [0.5, 0.3, 0.2]
    )
    dots = [np.asarray(line.get_xdata()) for line in ax.lines if line.get_marker() == "o"]
    assert [len(seeds) for seeds in dots] == [3, 1, 2]
    diamonds = [line for line in ax.lines if line.get_marker() == "D"]
    assert [np.asarray(line.get_xdata())[0] for line in diamonds] == [0.87, 0.71]
    assert [np.asarray(line.get_ydata())[0] for line in diamonds] == [0, 3], (
        "beside our row, where there is one"
    )
    assert {line.get_markerfacecolor() for line in diamonds} == {"white"}
    assert ax.get_ylim()[0] > ax.get_ylim()[1], "the first row is on top"


def test_missing_cells_say_so(study):
    texts = [text.get_text() for text in final_figure(study).axes[1].texts]
    assert texts == ["missing"] * 3


def test_a_study_needs_an_environment(record):
    with pytest.raises(ValueError, match="envs: expected at least one"):
        curves_figure(Study([record()], ["teb"], []))


def test_rebuilding_gives_the_same_bytes(study, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        built = [[path.read_bytes() for path in write_study(study, tmp_path / name)] for name in ("a", "b")]
    assert built[0] == built[1]
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    pictures = [f"{stem}.{ending}" for stem in ("curves", "final", "profiles") for ending in ("png", "svg")]
    assert names == sorted([*pictures, "aggregates.md", "runs.csv", "table.md", "table.tex"])


def test_a_row_without_runs_does_not_freeze_the_axes(record) -> None:
    records = runs(record, "teb", ENVS[0], [0.4, 0.5])
    reached = max(r.env_steps for r in records)
    figure = curves_figure(Study(records, ["teb", "missing row"], [ENVS[0]]))
    assert figure.axes[0].get_xlim()[0] == 0
    assert figure.axes[0].get_xlim()[1] >= reached
    assert len(figure.legends[0].get_texts()) == 3


@pytest.mark.parametrize("label", ["a", "teb (phi_action=replay_policy, phi_reward=sample, shaping=one) "])
def test_the_legend_stays_inside_the_figure(record, label: str) -> None:
    rows = [f"{label}{number}" for number in range(9)]
    records = [r for row in rows for r in runs(record, row, ENVS[0], [0.4])]
    figure = curves_figure(Study(records, rows, [ENVS[0]]))
    figure.draw_without_rendering()
    legend = figure.legends[0].get_window_extent()
    assert figure.bbox.x0 <= legend.x0 and legend.x1 <= figure.bbox.x1
    assert figure.bbox.y0 <= legend.y0 and legend.y1 <= figure.bbox.y1
