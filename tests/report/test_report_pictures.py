"""Pictures: real pixels, real lines, and identical bytes."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from teb.agents.registry import AGENTS, PIXEL_AGENTS, REPRESENTED
from teb.report import style
from teb.report.curves import bonus_curve, learning_curve
from teb.report.maps import coverage_map, inside_cells
from teb.report.pictures import runs_figure, show_runs
from teb.report.records import RecordError

NEVER = 65535


def axes():
    with style.applied():
        return style.new_figure(4, 4).subplots()


def pixel(ax, x: float, y: float) -> np.ndarray:
    """RGB in 0..1 at data coordinates of a drawn figure."""
    image = np.asarray(ax.figure.canvas.buffer_rgba())
    column, row = ax.transData.transform((x, y))
    return image[image.shape[0] - 1 - int(row), int(column), :3] / 255


def test_bins_have_the_colour_of_their_time_at_their_place(record, maze):
    visits = np.full((4, 4), NEVER)
    visits[0, 0], visits[3, 0], visits[2, 3] = 0, 500, 1000
    visits[0, 3] = 700  # outside the cells: must not show
    ax = axes()
    coverage_map(record(map=maze(visits)), ax)
    ax.figure.canvas.draw()
    colours = matplotlib.colormaps["viridis"]([0.0, 0.5, 1.0])[:, :3]
    np.testing.assert_allclose(pixel(ax, -0.25, -0.25), colours[0], atol=0.01)
    np.testing.assert_allclose(pixel(ax, 1.25, -0.25), colours[1], atol=0.01)
    np.testing.assert_allclose(pixel(ax, 0.75, 1.25), colours[2], atol=0.01)
    np.testing.assert_allclose(pixel(ax, 1.25, 1.25), to_rgb(style.UNVISITED), atol=0.01)
    np.testing.assert_allclose(pixel(ax, -0.25, 1.25), (1, 1, 1), atol=0.01)
    assert pixel(ax, -0.5, 0.0).max() < 0.2, "the wall on the left is dark"
    low, high = (ax.transData.transform((0, y))[1] for y in (0, 1))
    assert high > low, "y points up"


def test_maps_side_by_side_share_a_scale(record, maze):
    ax = axes()
    image = coverage_map(record(map=maze(np.full((4, 4), 1000))), ax, last_step=8000)
    assert image.get_clim() == (0, 8)
    ax.figure.canvas.draw()
    half = matplotlib.colormaps["viridis"](0.5)[:3]
    np.testing.assert_allclose(pixel(ax, 1.25, 1.25), half, atol=0.01)


def test_title_and_colourbar(record):
    ax = axes()
    coverage_map(record(label="teb-p", final={"coverage": 0.978}, env_steps=100_000), ax)
    assert ax.get_title().split() == ["teb-p", "on", "ell,", "seed", "0:", "0.98", "after", "100K"]
    assert [other.get_ylabel() for other in ax.figure.axes[1:]] == ["first visit (thousand steps)"]


def test_title_of_an_unfinished_run_counts_bins_itself(record):
    ax = axes()
    coverage_map(record(finished=False, final={}), ax)
    assert " ".join(ax.get_title().split()).endswith("0.08 after 4K (unfinished)"), "1 of 12 bins"


def test_a_run_without_a_map_is_refused(record):
    with pytest.raises(RecordError, match="holds no coverage map"):
        coverage_map(record(map={}), axes())


def test_inside_cells(maze):
    expected = np.ones((4, 4), dtype=bool)
    expected[:2, 2:] = False
    np.testing.assert_array_equal(inside_cells(maze()), expected)


def test_inside_cells_of_fine_bins(maze):
    fine = maze() | {"bin": 0.05, "shape": [40, 40]}
    assert inside_cells(fine).sum() == 3 * 20 * 20


def test_one_run_is_one_line(record):
    ax = axes()
    (line,) = learning_curve([record()], ax, "coverage")
    np.testing.assert_array_equal(line.get_xdata(), [1000, 2000, 3000, 4000])
    np.testing.assert_array_equal(line.get_ydata(), [0.1, 0.2, 0.3, 0.4])
    assert line.get_label() == "teb (seed 0)"
    assert ax.get_ylim() == (0, 1)
    assert ax.get_xlabel() == "environment steps"
    assert ax.xaxis.get_major_formatter()(20_000, 0) == "20K"


def test_seeds_become_mean_and_band(record):
    ax = axes()
    other = record(seed=1, curves={"env_steps": [1000, 2000, 3000], "coverage": [0.3, 0.4, 0.5]})
    (line,) = learning_curve([record(), other], ax, "coverage")
    np.testing.assert_allclose(np.asarray(line.get_ydata()), [0.2, 0.3, 0.4])
    assert line.get_label() == "teb (2 seeds)"
    corners = np.asarray(ax.collections[0].get_paths()[0].vertices)
    std = np.std([0.1, 0.3], ddof=1)
    assert corners[:, 1].min() == pytest.approx(0.2 - std)
    assert corners[:, 1].max() == pytest.approx(0.4 + std)


def test_a_missing_series_draws_nothing(record):
    assert learning_curve([record()], axes(), "absent") == []


def test_bonus_draws_what_there_is(record):
    assert len(bonus_curve([record()], axes())) == 3
    ax = axes()
    curves = {"env_steps": [1, 2], "bonus_mean": [1.0, 2.0]}
    assert len(bonus_curve([record(curves=curves)], ax)) == 1
    assert ax.get_ylabel() == "intrinsic bonus, mean"


def test_colours_are_fixed():
    styles = style.line_styles(["uniform", "teb (eta=2)", "teb-p", "teb"])
    assert styles["teb"] == style.line_styles(["teb"])["teb"]
    assert styles["uniform"] == style.LineStyle(style.MISSING_GREY, "dashed")
    assert len({(look.colour, str(look.stroke)) for look in styles.values()}) == 4
    many = style.line_styles([*style.KNOWN, *(f"{name}+rep" for name in style.KNOWN), "another"])
    assert len({(look.colour, str(look.stroke)) for look in many.values()}) == 2 * len(style.KNOWN) + 1
    assert many["icm+rep"].colour == many["icm"].colour


def test_every_method_has_a_look_of_its_own():
    assert style.JOINED == REPRESENTED
    alone = {name.removesuffix(style.JOINED) for name in {*AGENTS, *PIXEL_AGENTS}}
    assert alone == {"uniform", *style.KNOWN}


def panels(figure) -> list[str]:
    return [ax.get_ylabel() for ax in figure.axes if ax.axison and not ax.get_ylabel().startswith("first")]


def test_what_stands_below_the_maps(record):
    assert panels(runs_figure([record()])) == ["coverage", "intrinsic bonus"]
    plain = record(label="uniform", map={}, curves={"env_steps": [1], "coverage": [0.1]})
    assert panels(runs_figure([plain])) == ["coverage"]
    door = record(env="metaworld/door", headline="episode_return", map={})
    assert panels(runs_figure([plain, door])) == ["coverage", "episode return", "intrinsic bonus"]
    fresh = record(curves={}, final={}, env_steps=0, finished=False)
    assert panels(runs_figure([fresh])) == ["coverage"]
    with pytest.raises(ValueError, match="at least one run"):
        runs_figure([])


def test_many_maps_wrap(record):
    figure = runs_figure([record(seed=seed) for seed in range(7)])
    maps = [ax for ax in figure.axes if ax.get_title()]
    assert len(maps) == 7
    figure.canvas.draw()
    assert len({round(ax.get_position().y0, 2) for ax in maps}) == 2


def test_rebuilding_gives_the_same_bytes(record, tmp_path):
    built = []
    for name in ("first", "second"):
        records = [record(), record(seed=1), record(label="uniform")]
        paths = show_runs(records, tmp_path / name / "v1.0")
        assert [path.name for path in paths] == ["v1.0.png", "v1.0.svg"]
        built.append([path.read_bytes() for path in paths])
    assert built[0] == built[1]
    assert built[0][0].startswith(b"\x89PNG")
    assert b"<dc:date>" not in built[0][1]


def test_the_users_settings_do_not_matter(record, tmp_path):
    first = show_runs([record()], tmp_path / "a")
    with matplotlib.rc_context({"font.size": 30, "axes.grid": False, "savefig.dpi": 20}):
        second = show_runs([record()], tmp_path / "b")
    assert first[0].read_bytes() == second[0].read_bytes()
