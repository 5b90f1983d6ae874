from __future__ import annotations

import base64
import json
import pickle
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from teb.envs.coverage import CoverageMeter
from teb.envs.layouts import Layout, load_layouts
from teb.envs.maze2d import Maze2D

LAYOUTS = load_layouts()
BINS = {
    "square-a": (6800, 1700),
    "square-b": (6800, 1700),
    "square-c": (6800, 1700),
    "square-d": (8800, 2200),
    "corridor2": (4400, 1100),
    "square-tree": (12400, 3100),
    "square-bottleneck": (40000, 10000),
    "square-corridor": (4400, 1100),
    "square-large": (40000, 10000),
}

points = hnp.arrays(
    np.float32, st.tuples(st.integers(0, 40), st.just(2)), elements=st.floats(-5, 5, width=32)
)


def position(x: float, y: float) -> npt.NDArray[np.float32]:
    return np.array([x, y], dtype=np.float32)


def cell_centres_of_bins(layout: Layout, per_cell: int) -> npt.NDArray[np.float64]:
    offsets = (np.arange(per_cell) + 0.5) / per_cell - 0.5
    grid = np.stack(np.meshgrid(offsets, offsets, indexing="ij"), axis=-1).reshape(-1, 2)
    return (np.array(layout.cells)[:, None, :] + grid).reshape(-1, 2)


def walk(meter: CoverageMeter, episodes: range, maze: str = "square-a") -> None:
    env = Maze2D(maze)
    for e in episodes:
        rng = np.random.default_rng(e)
        meter.observe(env.reset(seed=e)[0], 50 * e)
        for t in range(50):
            meter.observe(env.step(rng.uniform(-1, 1, 2))[0], 50 * e + t + 1)


def decoded(record: dict[str, Any]) -> npt.NDArray[np.uint16]:
    packed = zlib.decompress(base64.b64decode(record["first_visit"]))
    return np.frombuffer(packed, dtype="<u2").reshape(record["shape"]).astype(np.uint16)


@pytest.mark.parametrize("maze", LAYOUTS)
@pytest.mark.parametrize("size", [0, 1])
def test_bin_totals(maze: str, size: int) -> None:
    meter = CoverageMeter(LAYOUTS[maze], bin_size=(0.05, 0.1)[size])
    assert meter.bins_total == BINS[maze][size]
    assert int(meter._in_cell.sum()) == meter.bins_total


@pytest.mark.parametrize(
    ("maze", "bins"), [("square-tree", 3100), ("square-bottleneck", 10000), ("square-d", 8800)]
)
def test_default_bin_size_is_that_of_the_paper(maze: str, bins: int) -> None:
    assert CoverageMeter(LAYOUTS[maze]).bins_total == bins


@pytest.mark.parametrize("size", [0.3, 0.0, -0.1, float("nan")])
def test_bin_sizes_that_straddle_walls_are_refused(size: float) -> None:
    with pytest.raises(ValueError, match=f"bin_size: a whole number of bins must fit into 1, got {size}"):
        CoverageMeter(LAYOUTS["square-a"], bin_size=size)


@pytest.mark.parametrize("maze", LAYOUTS)
def test_one_visit_per_bin_gives_full_coverage(maze: str) -> None:
    meter = CoverageMeter(LAYOUTS[maze])
    centres = cell_centres_of_bins(LAYOUTS[maze], round(1 / meter.bin_size))
    meter.observe_all(centres[:-1], 0)
    assert meter.metrics()["coverage"] == (meter.bins_total - 1) / meter.bins_total
    meter.observe_all(centres[-1:], 1)
    assert meter.metrics()["coverage"] == 1.0
    assert meter.metrics()["coverage_exdm"] == meter.bins_total / meter.bins_total_exdm


def test_square_d_ceiling_of_the_exdm_variant() -> None:
    meter = CoverageMeter(LAYOUTS["square-d"])
    meter.observe_all(cell_centres_of_bins(LAYOUTS["square-d"], 20), 0)
    assert meter.bins_total_exdm == 11200
    assert meter.metrics() == {"coverage": 1.0, "coverage_exdm": 8800 / 11200}


@pytest.mark.parametrize("maze", LAYOUTS)
def test_enclosed_area(maze: str) -> None:
    pockets = {(i, j) for i in (-2, 2) for j in (-1, -2, -3)} if maze == "square-d" else set()
    cells = set(LAYOUTS[maze].cells)
    assert len(LAYOUTS[maze].enclosed_cells) == len(cells) + (6 if maze == "square-d" else 0)
    assert cells <= LAYOUTS[maze].enclosed_cells
    assert len(pockets) == len(LAYOUTS[maze].enclosed_cells - cells)


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (-0.5, -4.5, (0, 0)),
        (4.5, 0.5, (99, 99)),
        (0.0, 0.0, (10, 90)),
        (-0.5 + 0.05, 0.0, (1, 90)),
        (-0.5 + 0.05 - 1e-7, 0.0, (0, 90)),
        (-0.5 + 3 * 0.05, 0.0, (3, 90)),
    ],
)
def test_bins_are_half_open_and_the_upper_edge_belongs_to_the_last(
    x: float, y: float, expected: tuple[int, int]
) -> None:
    meter = CoverageMeter(LAYOUTS["square-a"])
    meter.observe(np.array([x, y], dtype=np.float64), 7)
    assert np.argwhere(meter.first_visit == 7).tolist() == [list(expected)]
    assert (meter.first_visit >= 0).sum() == 1


def test_the_first_visit_counts() -> None:
    meter = CoverageMeter(LAYOUTS["square-a"])
    for env_steps in (0, 3, 9):
        meter.observe(position(0, 0), env_steps)
    assert meter.first_visit.max() == 0
    assert meter.metrics()["coverage"] == 1 / 6800
    assert meter.record()["env_steps"] == 9
    assert meter.coverage_at(0) == 1 / 6800


@pytest.mark.parametrize(
    "outside", [(-0.6, 0.0), (1.0, 0.0), (4.6, 0.6), (-9.0, -9.0), (0.0, 0.500001), (0.0, 80.0)]
)
def test_points_outside_all_cells_are_masked_but_count_for_exdm(outside: tuple[float, float]) -> None:
    meter = CoverageMeter(LAYOUTS["square-a"])
    meter.observe(position(*outside), 0)
    assert meter.metrics() == {"coverage": 0.0, "coverage_exdm": 1 / 6800}


@settings(max_examples=60, deadline=None)
@given(obs=points)
def test_coverage_never_falls_and_outside_points_change_nothing(obs: npt.NDArray[np.float32]) -> None:
    meter = CoverageMeter(LAYOUTS["square-a"])
    cells = set(LAYOUTS["square-a"].cells)
    before = meter.metrics()
    for step, point in enumerate(obs):
        meter.observe(point, step)
        after = meter.metrics()
        x, y = point.tolist()
        if not any(abs(x - i) <= 0.5 and abs(y - j) <= 0.5 for i, j in cells):
            assert after["coverage"] == before["coverage"]
        assert before["coverage"] <= after["coverage"] <= 1.0
        assert before["coverage_exdm"] <= after["coverage_exdm"]
        assert after["coverage"] * 6800 <= step + 1
        before = after


@settings(max_examples=60, deadline=None)
@given(obs=points, split=st.integers(0, 40), maze=st.sampled_from(sorted(LAYOUTS)))
def test_bulk_counting_equals_counting_one_by_one(
    obs: npt.NDArray[np.float32], split: int, maze: str
) -> None:
    single, bulk = CoverageMeter(LAYOUTS[maze]), CoverageMeter(LAYOUTS[maze])
    on_edges = (np.round(obs * 2) / 2).astype(np.float32)
    obs = np.concatenate([obs, on_edges, obs[:5]])
    steps = np.arange(len(obs))
    for point, step in zip(obs, steps, strict=True):
        single.observe(point, int(step))
    bulk.observe_all(obs[:split], steps[:split])
    bulk.observe_all(obs[split:], steps[split:])
    np.testing.assert_array_equal(bulk.first_visit, single.first_visit)
    assert bulk.metrics() == single.metrics()
    assert bulk.record() == single.record()


def test_state_round_trip_midway_gives_identical_records() -> None:
    whole, first, second = (CoverageMeter(LAYOUTS["square-a"]) for _ in range(3))
    walk(whole, range(12))
    walk(first, range(5))
    state = first.state()
    walk(first, range(20, 25))  # what is saved must not follow its meter
    second.load(state)
    walk(second, range(5, 12))
    assert second.record() == whole.record()
    assert second.metrics() == whole.metrics()
    for key, value in whole.state().items():
        np.testing.assert_array_equal(second.state()[key], value, strict=True)


def test_load_replaces_what_was_there() -> None:
    fresh, used = CoverageMeter(LAYOUTS["square-a"]), CoverageMeter(LAYOUTS["square-a"])
    walk(used, range(3))
    used.load(fresh.state())
    assert used.record() == fresh.record() and used.metrics() == {"coverage": 0.0, "coverage_exdm": 0.0}


def test_load_refuses_the_state_of_another_maze() -> None:
    state = CoverageMeter(LAYOUTS["square-a"]).state()
    with pytest.raises(ValueError, match=r"first_visit: must have shape \(140, 80\), got \(100, 100\)"):
        CoverageMeter(LAYOUTS["square-d"]).load(state)


@pytest.mark.parametrize("maze", ["square-a", "square-d", "square-tree"])
def test_record_survives_json_and_decodes_to_the_map(maze: str) -> None:
    meter = CoverageMeter(LAYOUTS[maze])
    walk(meter, range(8), maze)
    record = meter.record()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    first = meter.first_visit
    expected = [
        [65535 if step < 0 else -(-1000 * step // 400) for step in column] for column in first.tolist()
    ]
    assert record["env_steps"] == 400 and record["kind"] == "maze2d" and record["maze"] == maze
    assert record["bin"] == LAYOUTS[maze].coverage_bin
    assert record["shape"] == list(first.shape)
    assert decoded(record).tolist() == expected
    assert (decoded(record) <= 1000).sum() == round(meter.metrics()["coverage"] * meter.bins_total) > 100
    assert len(record["walls"]) == len(LAYOUTS[maze].walls) and len(record["cells"]) == len(
        LAYOUTS[maze].cells
    )


def test_record_before_any_step() -> None:
    meter = CoverageMeter(LAYOUTS["square-a"])
    assert (decoded(meter.record()) == 65535).all()
    meter.observe(position(0, 0), 0)
    assert decoded(meter.record())[10, 90] == 0


def test_a_meter_that_travels_keeps_what_it_saw() -> None:
    meter = CoverageMeter(LAYOUTS["corridor2"], 0.25)
    for step in range(5):
        meter.observe(np.array([0.3 * step, 0.1], np.float32), step)
    other = pickle.loads(pickle.dumps(meter))
    meter.observe(np.array([3.2, 0.1], np.float32), 6)
    other.observe(np.array([3.2, 0.1], np.float32), 6)
    assert meter.metrics() == other.metrics() and meter.record() == other.record()
    assert meter.metrics()["coverage"] > 0
