"""What runs are compared by: the last or the best value, at a chosen step; and maps that stop there."""

from __future__ import annotations

import math

import numpy as np
import pytest

from conftest import maze_map
from teb.report.atlas import atlas_figure
from teb.report.comparison import BEST_SUCCESS, COVERAGE, Measure, compare
from teb.report.grid import Study, notes, study_table

NAN = math.nan
RATES = [NAN, 0.4, NAN, 0.9, NAN, 0.2]
STEPS = [1000, 2000, 3000, 4000, 5000, 6000]


@pytest.fixture
def solver(record):
    """A run that was evaluated every second row, best in the middle, with a headline of another name."""
    return record(
        headline="success",
        env_steps=6000,
        final={"success": 0.1, "eval_success": 0.2},
        curves={"env_steps": STEPS, "success": [0.1] * 6, "eval_success": RATES},
    )


def test_the_best_value_is_the_largest_evaluation_and_never_a_later_one(solver):
    assert compare([solver], BEST_SUCCESS).values == (0.9,)
    assert compare([solver], BEST_SUCCESS, at=6000).values == (0.9,)
    assert compare([solver], BEST_SUCCESS, at=3999).values == (0.4,)
    assert math.isnan(compare([solver], BEST_SUCCESS, at=1999).values[0])


def test_the_last_value_is_that_of_the_series_asked_for(solver):
    assert compare([solver], Measure("eval_success")).values == (0.2,)
    assert compare([solver], Measure("eval_success"), at=5000).values == (0.9,)
    assert compare([solver]).values == (0.1,)


def test_at_compares_there_although_every_run_went_further(record):
    curves = {"env_steps": [1000, 4000], "coverage": [0.1, 0.5]}
    runs = [record(curves=curves, final={"coverage": 0.5}, seed=seed) for seed in (0, 1)]
    found = compare(runs, COVERAGE, at=1000)
    assert (found.env_steps, found.cut, found.values) == (1000, False, (0.1, 0.1))
    short = compare(runs, COVERAGE, at=9000)
    assert (short.env_steps, short.cut, short.values) == (4000, True, (0.5, 0.5))


def test_a_table_says_that_the_best_is_a_maximum_and_what_else_was_told(solver):
    study = Study([solver], ["teb"], [solver.env], {}, BEST_SUCCESS, 6000, ["Made for a test."])
    assert "| teb | 0.900 (1 seed) |" in study_table(study)
    told = " ".join(notes(study))
    assert "best episode success rate" in told and "by chance alone" in told and "Made for a test." in told
    assert "by chance alone" not in " ".join(notes(Study([solver], ["teb"], [solver.env])))


def test_maps_stop_at_the_steps_of_the_comparison(record):
    visits = np.full((4, 4), 65535)
    visits[0, 0], visits[1, 0], visits[2, 0] = 0, 500, 1000  # at 0, 2000 and 4000 steps
    run = record(map=maze_map(visits))
    study = Study([run], ["teb", "rnd"], [run.env], at=2000, map_rows=("teb", "rnd"))
    figure = atlas_figure(study, [run.env])
    seen, absent = figure.axes[:2]
    shown = np.ma.masked_array(seen.images[-1].get_array())
    assert shown.compressed().tolist() == [0.0, 2.0]
    assert seen.get_title().splitlines()[-1] == f"{study.cell('teb', run.env).values[0]:.2f}"
    assert [text.get_text() for text in absent.texts] == ["missing"]
