"""Bars side by side: their heights and places, what is missing, and rates on the edge of the axes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from teb.report import style
from teb.report.bars import bars_figure
from teb.report.comparison import BEST_SUCCESS
from teb.report.grid import Study
from teb.report.study import curves_figure, write_study

ENVS = ["probe/near", "probe/far"]
FOUND = {
    ("teb", ENVS[0]): [1.0, 0.8],
    ("icm+rep", ENVS[0]): [0.0],
    ("teb", ENVS[1]): [0.5],
    ("uniform", ENVS[1]): [0.1, 0.3],
}


@pytest.fixture
def study(record) -> Study:
    """Two tasks, three rows, each run evaluated twice: the second time worse, and once more after the end."""
    records = [
        record(
            label=row, env=env, seed=seed, headline="success", env_steps=4000, map={}, final={"eval_success": 0.0},
            curves={"env_steps": [1000, 2000, 3000, 4000], "eval_success": [best, None, best / 2, 1.0]},
        )
        for (row, env), values in FOUND.items()
        for seed, best in enumerate(values)
    ]  # fmt: skip
    return Study(records, ["teb", "icm+rep"], ENVS, {}, BEST_SUCCESS, 3000, final="bars")


def test_bars_stand_in_groups_in_the_order_of_rows_and_are_as_high_as_the_means(study) -> None:
    (ax,) = bars_figure(study).axes
    bars = [p for p in ax.patches if isinstance(p, Rectangle) and p.get_fill() and p.get_height() > 0]
    heights = {round(p.get_x() + p.get_width() / 2, 2): round(p.get_height(), 6) for p in bars}
    assert heights == {-0.28: 0.9, 0.72: 0.5, 1.28: 0.2}
    assert [text.get_text() for text in ax.texts] == ["missing"] * 2
    assert [round(text.get_position()[0], 2) for text in ax.texts] == [1.0, 0.28]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["near\n3K steps", "far\n3K steps"]
    assert ax.get_ylim() == (0, 1)
    assert ax.get_ylabel() == "best episode success rate"


def test_every_seed_is_a_dot_and_a_rate_of_one_is_not_cut_off(study) -> None:
    (ax,) = bars_figure(study).axes
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    assert sorted(float(y) for line in dots for y in np.asarray(line.get_ydata())) == [
        0,
        0.1,
        0.3,
        0.5,
        0.8,
        1,
    ]
    assert not any(line.get_clip_on() for line in dots)


def test_what_stands_beside_a_representation_is_hatched(study) -> None:
    figure = bars_figure(study)
    hatched = [key.get_hatch() for key in figure.legends[0].get_patches()]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["teb", "icm+rep", "uniform"]
    assert [bool(hatch) for hatch in hatched] == [False, True, False]


def test_the_study_says_which_figure_its_final_values_become(study, tmp_path) -> None:
    pictures = []
    for final in ("bars", "panels"):
        write_study(replace(study, final=final), tmp_path)
        pictures.append((tmp_path / "final.png").read_bytes())
    (expected, _) = style.save(bars_figure(study), tmp_path / "bars")
    assert pictures[0] == expected.read_bytes() != pictures[1]


def test_curves_go_from_evaluation_to_evaluation_and_end_where_runs_are_compared(study) -> None:
    near, far = curves_figure(study).axes[:2]
    found = [line for line in near.lines if np.size(line.get_xdata()) and line.get_linestyle() == "-"]
    (teb,) = (line for line in found if max(np.asarray(line.get_ydata())) == 0.9)
    np.testing.assert_array_equal(teb.get_xdata(), [1000, 3000])
    np.testing.assert_allclose(np.asarray(teb.get_ydata()), [0.9, 0.45])
    assert not teb.get_clip_on()
    assert far.get_ylim() == (0, 1)
