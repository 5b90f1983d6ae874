"""Frames that are alike, and their pictures."""

from __future__ import annotations

import numpy as np
import pytest

from teb.report.frames import Frames, chosen_frames, neighbours
from teb.report.neighbours import COUNT, ROWS, neighbours_figure, show_neighbours

EPISODE = np.array([0, 0, 1, 1, 2, 3])
AT = np.array([0.0, 0.1, 2.0, 1.0, 5.0, 0.5])
"""Frames on a line: the distance of two is the difference of their places."""
DISTANCES = np.abs(AT[:, None] - AT[None])


def frames(episodes=6, each=4, channels=3, side=8, metric="bisimulation metric"):
    rng = np.random.default_rng(0)
    count = episodes * each
    places = rng.normal(size=count)
    return Frames(
        rng.integers(0, 256, (count, channels, side, side), dtype=np.uint8),
        np.repeat(np.arange(episodes), each),
        np.tile(np.arange(each), episodes),
        np.abs(places[:, None] - places[None]),
        metric,
        4000,
    )


def test_neighbours_are_of_other_episodes_one_of_each():
    found = neighbours(DISTANCES, EPISODE, 0, 3)
    assert found.nearest.tolist() == [5, 3, 4]
    assert found.farthest.tolist() == [4, 2, 5]
    found = neighbours(DISTANCES, EPISODE, 4, 2)
    assert found.nearest.tolist() == [2, 5]
    assert found.farthest.tolist() == [0, 5]


def test_a_metric_need_not_be_zero_between_equals_nor_symmetric():
    distances = DISTANCES + 10 * np.eye(6)
    distances[0, 5] = 100.0
    assert neighbours(distances, EPISODE, 0, 1) == (np.array([3]), np.array([5]))


def test_there_may_be_fewer_episodes_than_wanted():
    assert neighbours(DISTANCES, EPISODE, 0, 9).nearest.tolist() == [5, 3, 4]
    assert neighbours(DISTANCES[:2, :2], EPISODE[:2], 0, 3).nearest.size == 0


def test_chosen_frames_are_of_different_episodes_and_always_the_same():
    episode = np.repeat(np.arange(10), 7)
    chosen = chosen_frames(episode, 5)
    assert len(set(episode[chosen])) == 5
    assert chosen == chosen_frames(episode, 5) != chosen_frames(episode, 5, seed=1)
    assert len(chosen_frames(episode[:14], 5)) == 2


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_each_picture_stands_over_its_distance(record, channels):
    known = frames(channels=channels)
    figure = neighbours_figure(record(label="teb", env="probe/near"), known)
    axes = np.array(figure.axes).reshape(ROWS, -1)
    for line, frame in zip(axes, chosen_frames(known.episode, ROWS), strict=True):
        found = neighbours(known.distances, known.episode, frame, COUNT)
        expected = [frame, None, *found.nearest, None, *found.farthest]
        for ax, index in zip(line, expected, strict=True):
            if index is None:
                assert not ax.images and not ax.texts
                continue
            ((image,), (text,)) = ax.images, ax.texts
            picture = known.pictures[index]
            shown = picture[0] if channels == 1 else picture[:3].transpose(1, 2, 0)
            np.testing.assert_array_equal(np.asarray(image.get_array()), shown)
            if index == frame:
                assert text.get_text() == f"episode {known.episode[frame]}, step {known.step[frame]}"
            else:
                assert float(text.get_text()) == pytest.approx(known.distances[frame, index], rel=0.006)


@pytest.mark.parametrize("label", ["teb", "teb (" + "pred_hidden=16, " * 12 + "width=1)"])
def test_the_title_names_run_and_metric_within_the_figure(record, label):
    figure = neighbours_figure(record(label=label, env="probe/near"), frames(metric="predictive distance"))
    title = figure._suptitle  # pyright: ignore[reportAttributeAccessIssue]
    assert "predictive distance" in title.get_text() and "after" not in title.get_text()
    assert "on probe/near, seed 0, 4K steps" in title.get_text().replace("\n", " ")
    figure.canvas.draw()
    box, (left, top) = title.get_window_extent(), (figure.bbox.x1, figure.bbox.y1)
    assert box.x0 >= 0 and box.x1 <= left and box.y1 <= top
    assert box.y0 >= max(ax.title.get_window_extent().y1 for ax in figure.axes if ax.get_title(loc="left"))


def test_places_without_a_neighbour_stay_empty(record):
    figure = neighbours_figure(record(), frames(episodes=2))
    assert sum(bool(ax.images) for ax in figure.axes) == 2 * 3


def test_frames_of_one_episode_have_no_neighbours(record):
    with pytest.raises(ValueError, match="all are of one episode"):
        neighbours_figure(record(), frames(episodes=1))


def test_two_files_are_written(record, tmp_path):
    paths = show_neighbours(record(), frames(), tmp_path / "new" / "neighbours")
    assert [path.name for path in paths] == ["neighbours.png", "neighbours.svg"]
    assert all(path.stat().st_size > 1000 for path in paths)
