"""The panels of runs that see pictures."""

from __future__ import annotations

import numpy as np
import pytest

from teb.report.health import has_health, health_figure, with_ratio
from teb.report.pictures import runs_figure

STEPS = [1000, 2000, 3000, 4000]
LEARNT = {
    "env_steps": STEPS,
    "success": [0.0, 0.1, 0.2, 0.5],
    "eval_success": [0.0, None, 0.4, None],
    "episode_return": [None, 1.0, 2.0, 3.0],
    "eval_return": [1.0, None, 5.0, None],
    "bonus_mean": [None, 0.1, 0.2, 0.1],
    "bonus_abs_p50": [None, 0.2, 0.2, 0.2],
    "bonus_abs_p95": [None, 0.5, 0.6, 0.5],
    "latent_std": [None, 0.3, 0.2, 0.1],
    "metric_target": [None, 1.0, 2.0, 3.0],
    "metric_distance": [None, 2.0, 4.0, 4.0],
    "sigma_mean": [None, 0.6, 0.5, 0.4],
}
PIXELS = {"env": "probe/near", "headline": "success", "map": {}, "final": {"success": 0.5}, "curves": LEARNT}
PLAIN = {name: LEARNT[name] for name in ("env_steps", "success", "episode_return")}


def labels(figure):
    return [ax.get_ylabel() for ax in figure.axes if ax.axison]


def test_a_run_from_pixels_gets_every_panel(record):
    assert labels(runs_figure([record(**PIXELS)])) == [
        "success rate",
        "return of an episode",
        "intrinsic bonus",
        "standard deviation of latents",
        "metric: target / distance",
        "sigma of predicted rewards",
    ]


def test_a_run_without_representation_gets_fewer_and_shares_them_with_one_that_has(record):
    curves = {name: LEARNT[name] for name in (*PLAIN, "eval_success", "eval_return")}
    bare = record(**PIXELS | {"label": "drqv2", "method": "drqv2", "curves": curves})
    assert labels(runs_figure([bare])) == ["success rate", "return of an episode"]
    both = runs_figure([bare, record(**PIXELS)])
    assert len(labels(both)) == 6
    (legend,) = both.legends
    assert [text.get_text() for text in legend.get_texts()] == ["drqv2 (seed 0)", "teb (seed 0)"]
    colours = [
        {line.get_color() for line in ax.lines if len(np.asarray(line.get_xdata())) > 2} for ax in both.axes
    ]
    assert [len(found) for found in colours] == [2, 2, 1, 1, 1, 1]


def test_a_headline_of_its_own_keeps_its_panel(record):
    other = record(**PIXELS | {"headline": "score", "curves": {**LEARNT, "score": [1.0, 2.0, 3.0, 4.0]}})
    assert labels(health_figure([other]))[:2] == ["score", "success rate"]


def test_evaluations_are_joined_by_straight_lines(record):
    (success, *_) = health_figure([record(**PIXELS)]).axes
    evaluation = next(line for line in success.lines if len(np.asarray(line.get_xdata())) == 2)
    np.testing.assert_array_equal(evaluation.get_xydata(), [[1000, 0.0], [3000, 0.4]])


def test_the_ratio_is_that_of_target_to_distance(record):
    curves = {**LEARNT, "metric_distance": [None, 2.0, 0.0, 4.0]}
    ratio = with_ratio(record(**PIXELS | {"curves": curves})).curves["metric_ratio"]
    np.testing.assert_allclose(ratio, [np.nan, 0.5, np.nan, 0.75])
    assert "metric_ratio" not in with_ratio(record(**PIXELS | {"curves": PLAIN})).curves


def test_other_runs_are_drawn_as_before(record):
    assert not has_health(record()) and not has_health(record(**PIXELS | {"curves": PLAIN}))
    assert labels(runs_figure([record(**PIXELS | {"curves": PLAIN})])) == ["success rate in training"]
    mixed = runs_figure([record(), record(**PIXELS)])
    assert "success rate" not in labels(mixed), "with a maze among them there are maps and headlines"


@pytest.mark.parametrize("label", ["teb", "teb (anchor=random, anchor_reward=pred_sample, width=64)"])
def test_nothing_overlaps(record, label):
    figure = health_figure([record(**PIXELS | {"label": label})])
    figure.canvas.draw()
    drawn = [*[ax for ax in figure.axes if ax.axison], *figure.legends]
    boxes = [box for part in drawn if (box := part.get_tightbbox()) is not None]
    assert len(boxes) == 7
    for i, one in enumerate(boxes):
        assert one.x0 >= 0 and one.x1 <= figure.bbox.x1 and one.y0 >= 0 and one.y1 <= figure.bbox.y1
        assert not any(one.overlaps(other) for other in boxes[i + 1 :])
