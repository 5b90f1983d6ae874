"""Trajectories of skills."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb

from teb.report.records import RecordError
from teb.report.skills import check_maze, show_skills, skill_colours, skill_names, skills_figure, spread


def paths(skills, episodes=2, size=0.3):
    rng = np.random.default_rng(0)
    return [[size * rng.normal(size=(7, 2)) for _ in range(episodes)] for _ in range(skills)]


def drawn(figure):
    """Line collections of the maze's axes, by colour."""
    (ax,) = figure.axes
    found = [lines for lines in ax.collections if isinstance(lines, LineCollection)]
    return {tuple(np.asarray(lines.get_colors())[0, :3]): lines for lines in found}


@pytest.mark.parametrize("count", [1, 4, 8, 9, 16, 40])
def test_colours_of_skills_can_be_told_apart(count):
    colours = np.array(skill_colours(count))
    assert colours.shape == (count, 3) and (colours >= 0).all() and (colours <= 1).all()
    apart = np.linalg.norm(colours[:, None] - colours[None], axis=2) + 9 * np.eye(count)
    assert apart.min() > (0.12 if count <= 16 else 0.02)
    assert colours.min(1).max() < 0.7, "none is too pale on white"


def test_every_episode_is_drawn_in_the_colour_of_its_skill(record):
    played = paths(3)
    figure = skills_figure(record(), ["0", "1", "2"], played, 4000)
    lines = drawn(figure)
    for episodes, colour in zip(played, skill_colours(3), strict=True):
        segments = lines[to_rgb(colour)].get_segments()
        assert len(segments) == len(episodes)
        for segment, episode in zip(segments, episodes, strict=True):
            np.testing.assert_allclose(segment, episode)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["0", "1", "2"]
    assert [to_rgb(line.get_color()) for line in legend.get_lines()] == [to_rgb(c) for c in skill_colours(3)]


def test_lines_are_drawn_over_the_walls_that_they_run_along(record):
    figure = skills_figure(record(), ["0"], paths(1), 4000)
    walls = drawn(figure)[to_rgb("#1a1a1a")]
    assert len(walls.get_segments()) == len(record().map["walls"])
    assert walls.get_zorder() < min(
        lines.get_zorder() for lines in drawn(figure).values() if lines is not walls
    )


def test_the_number_of_a_skill_stands_at_its_middlemost_end(record):
    played = [[np.array([[0.0, 0.0], [1.0, y]]) for y in (0.1, 0.12, 1.3)], paths(1)[0]]
    (ax,) = skills_figure(record(), ["0", "1"], played, 4000).axes
    numbers = {text.get_text(): text.get_position() for text in ax.texts}
    assert set(numbers) == {"0", "1"}
    np.testing.assert_allclose(numbers["0"], (1.0, 0.12))


@pytest.mark.parametrize("count", [1, 2, 16, 40])
def test_numbers_of_skills_that_end_together_do_not_cover_each_other(count):
    placed = np.array(spread([np.array([1.0, 2.0])] * count, 0.1))
    apart = np.linalg.norm(placed[:, None] - placed[None], axis=2) + 9 * np.eye(count)
    assert apart.min() >= 0.1 - 1e-9
    assert np.linalg.norm(placed - placed[0], axis=1).max() <= 0.1 * (1 + count**0.5)


def test_numbers_lie_within_the_axes_so_that_the_title_stays_clear(record):
    ends = np.array([[0.0, 0.0], [1.0, 1.5]])
    figure = skills_figure(record(), [str(i) for i in range(16)], [[ends]] * 16, 4000)
    (ax,) = figure.axes
    for text in ax.texts:
        x, y = text.get_position()
        assert ax.get_xlim()[0] < x < ax.get_xlim()[1] and ax.get_ylim()[0] < y < ax.get_ylim()[1]


def test_numbers_that_have_room_stay_where_they_are():
    points = [np.array([0.0, 0.0]), np.array([1.0, 0.0]), np.array([0.0, 1.0])]
    np.testing.assert_array_equal(spread(points, 0.9), points)


def test_the_title_says_what_was_played(record):
    figure = skills_figure(record(label="diayn"), ["0"], paths(1, episodes=3), 12_000)
    assert "diayn on ell, seed 0" in figure.axes[0].get_title().replace("\n", " ")
    assert "3 episodes of each skill after 12K steps" in figure.axes[0].get_title().replace("\n", " ")


@pytest.mark.parametrize("count", [2, 16, 40])
@pytest.mark.parametrize("flat", [False, True])
def test_the_legend_stands_beside_or_below_the_maze(record, maze, count, flat):
    map = maze()
    if flat:
        map = {**map, "bounds": [[-0.5, 10.5], [-0.5, 0.5]], "shape": [22, 2]}
    figure = skills_figure(record(map=map), [str(i) for i in range(count)], paths(count, size=0.15), 4000)
    figure.canvas.draw()
    legend, ax = figure.legends[0].get_window_extent(), figure.axes[0].get_window_extent()
    assert legend.y1 <= ax.y0 + 1 if flat else legend.x0 >= ax.x1 - 1
    box = figure.bbox
    assert box.x0 <= legend.x0 and legend.x1 <= box.x1 and box.y0 <= legend.y0 and legend.y1 <= box.y1
    title = figure.axes[0].title.get_window_extent()
    assert box.x0 <= title.x0 and title.x1 <= box.x1 and title.y1 <= box.y1


def test_files_repeat_byte_for_byte(record, tmp_path):
    for name in ("one", "two"):
        written = show_skills(record(), np.eye(3), paths(3), 4000, tmp_path / name / "skills")
        assert [path.name for path in written] == ["skills.png", "skills.svg"]
    for ending in ("png", "svg"):
        one, two = ((tmp_path / name / f"skills.{ending}").read_bytes() for name in ("one", "two"))
        assert one == two and len(one) > 1000


def test_names_of_skills():
    assert skill_names(np.eye(3)) == ["0", "1", "2"]
    assert skill_names(np.array([[0.31, -1.2]])) == ["0  (+0.3, -1.2)"]
    assert skill_names(np.random.default_rng(0).random((2, 64))) == ["0", "1"]


def test_a_run_elsewhere_is_told_in_one_line(record):
    with pytest.raises(RecordError, match="skills are drawn in mazes, and this is none"):
        check_maze(record(map={}))
