"""Aggregates over environments, profiles, and the table as LaTeX and CSV."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from teb.report.aggregate import aggregate_table, profile_figure
from teb.report.exports import csv_table, latex_table
from teb.report.grid import Study, study_table
from teb.report.statistics import bootstrap_interval, improvement_probability

ENVS = ["maze2d/ell", "maze2d/tee"]


@pytest.fixture
def study(record) -> Study:
    values = {
        ("teb", ENVS[0]): [0.4, 0.5, 0.6],
        ("teb", ENVS[1]): [0.2, 0.4],
        ("rnd", ENVS[0]): [0.3],
        ("uniform", ENVS[0]): [0.1, 0.5],
        ("uniform", ENVS[1]): [0.3, 0.1],
    }
    records = [
        record(label=label, env=env, seed=seed, final={"coverage": value}, curves={})
        for (label, env), row in values.items()
        for seed, value in enumerate(row)
    ]
    return Study(records, ["teb", "rnd"], ENVS)


def lines_of(table: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if line.startswith("|")
    ]


def test_aggregates(study):
    table = lines_of(aggregate_table(study))
    teb, uniform = [[0.4, 0.5, 0.6], [0.2, 0.4]], [[0.1, 0.5], [0.3, 0.1]]
    low, high = bootstrap_interval(teb)
    assert table[0] == ["", "mean", "median", "IQM", "P(better than uniform)"]
    assert table[2][:2] == ["teb", f"0.40 [{low:.2f}, {high:.2f}]"]
    # The middle half of 0.2 0.4 0.4 0.5 0.6 leaves out one at each end.
    assert table[2][3].startswith("0.43 [")
    low, high = bootstrap_interval(teb, uniform, statistic=improvement_probability)
    # By hand: five of six pairs minus half a tie in ell, (0.5 + 2 + ...) in tee.
    better = (((1 + 0) + (1 + 0.5) + (1 + 1)) / 6 + ((0 + 1) + (1 + 1)) / 4) / 2
    assert table[2][4] == f"{better:.2f} [{low:.2f}, {high:.2f}]"
    assert table[3] == ["rnd", "missing", "missing", "missing", "missing"]
    assert table[4][0] == "uniform" and table[4][4] == "-"


def test_profiles_fall_from_one_to_zero_and_leave_incomplete_rows_out(study):
    ax = profile_figure(study).axes[0]
    assert [line.get_label() for line in ax.lines] == ["teb", "uniform"]
    for line in ax.lines:
        shares = np.asarray(line.get_ydata())
        assert shares[0] == 1 and shares[-1] == 0
        assert (np.diff(shares) <= 0).all()


def test_latex_escapes_and_has_all_cells(record):
    label = "teb (phi_action=replay_policy) & 50 %"
    records = [record(label=label, seed=seed) for seed in (0, 1)]
    text = latex_table(Study(records, [label], ENVS[:1], {ENVS[0]: {"icm": (0.54, 0.08)}}))
    assert r"teb (phi\_action=replay\_policy) \& 50 \% & 0.42 $\pm$ 0.00 (2) \\" in text
    assert r"icm (published) & 0.54 $\pm$ 0.08 \\" in text
    assert r"uniform & missing \\" in text
    assert text.count(r"\\") == 4
    assert "not measured here" in text


def test_csv_has_a_line_per_run_and_every_digit(study):
    lines = list(csv.DictReader(io.StringIO(csv_table(study))))
    assert len(lines) == 10
    first = lines[0]
    assert (first["method"], first["env"], first["seed"], float(first["coverage"])) == (
        "teb",
        ENVS[0],
        "0",
        0.4,
    )
    assert {line["env_steps"] for line in lines} == {"4000"}


def test_few_seeds_are_warned_of(study, record):
    assert "Some cells have 2 seeds" in study_table(study)
    many = [record(seed=seed) for seed in range(5)]
    uniform = [record(label="uniform", seed=seed) for seed in range(5)]
    assert "seeds: deviations" not in study_table(Study(many + uniform, ["teb"], ENVS[:1]))
