"""Reading records and registries."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from teb.report.records import RecordError, RecordWarning, decode_first_visit, read_record, read_registry

NEVER = 65535


def write_lines(path: Path, *lines: dict | bytes) -> Path:
    path.write_bytes(b"".join((x if isinstance(x, bytes) else json.dumps(x).encode()) + b"\n" for x in lines))
    return path


def test_fields_are_typed(run_folder):
    record = read_record(run_folder("a"))
    assert (record.method, record.task, record.seed, record.planned_steps) == ("teb", "ell", 0, 4000)
    np.testing.assert_array_equal(record.curves["episode_return"], [np.nan, 1, np.nan, 3])
    assert record.series("absent") is None
    assert record.started_at.year == 2026


def test_a_series_of_nulls_counts_as_absent(record):
    assert record(curves={"env_steps": [1, 2], "coverage": [None, None]}).series("coverage") is None


def test_an_unfinished_run_without_a_result_is_readable(record):
    made = record(finished=False, curves={}, final={}, map={}, env_steps=0, wall_seconds=None)
    assert not made.finished
    assert np.isnan(made.wall_seconds)


def test_a_folder_that_is_not_a_run_is_named(tmp_path):
    with pytest.raises(RecordError, match="not a run folder, it has no record.json"):
        read_record(tmp_path)
    with pytest.raises(RecordError, match="absent: no such folder"):
        read_record(tmp_path / "absent")


def test_a_newer_schema_is_refused(run_folder):
    with pytest.raises(RecordError, match="schema 2 is newer than 1"):
        read_record(run_folder("a", schema=2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": "0"}, "field 'seed' is '0', expected int"),
        ({"seed": True}, "field 'seed' is True, expected int"),
        ({"finished": 1}, "field 'finished' is 1, expected bool"),
        ({"curves": {"coverage": [1.0]}}, "curves.env_steps is missing"),
        ({"curves": {"env_steps": [1, 2], "coverage": [1.0]}}, "curves.coverage has 1 values"),
        ({"curves": {"env_steps": [2, 1]}}, "curves.env_steps must be numbers that never fall"),
        ({"curves": {"env_steps": [1], "x": ["high"]}}, "curves.x is not a list of numbers"),
    ],
)
def test_errors_name_the_field(run_folder, change, message):
    with pytest.raises(RecordError, match=message):
        read_record(run_folder("a", **change))


def test_a_missing_field_is_named(tmp_path, raw):
    broken = raw()
    del broken["env"]
    (tmp_path / "record.json").write_text(json.dumps(broken), encoding="utf-8")
    with pytest.raises(RecordError, match="field 'env' is missing"):
        read_record(tmp_path)


def test_damaged_lines_are_named_and_skipped(tmp_path, raw):
    path = write_lines(
        tmp_path / "runs.jsonl",
        raw(seed=0),
        b'{"schema": 1, "met',
        b"",
        b"\xff\xfe",
        raw(schema=9),
        raw(seed=1),
        b"7",
    )
    with pytest.warns(RecordWarning) as caught:
        records = read_registry(path)
    assert [record.seed for record in records] == [0, 1]
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == 4
    for line, message in zip((2, 4, 5, 7), messages, strict=True):
        assert f"{path}:{line}:" in message
    assert "schema 9 is newer" in messages[2]


def test_the_newest_finished_duplicate_stays(tmp_path, raw):
    path = write_lines(
        tmp_path / "runs.jsonl",
        raw(started="2026-11-02T00:00:00+00:00", final={"coverage": 0.2}),
        raw(started="2026-11-01T00:00:00+00:00", final={"coverage": 0.1}),
        raw(started="2026-11-09T00:00:00", final={"coverage": 0.9}, finished=False),
        raw(config_hash="other"),
        raw(label="teb (eta=2)"),
    )
    with pytest.warns(RecordWarning) as caught:
        records = read_registry(path)
    assert len(records) == 3
    assert records[0].final["coverage"] == 0.2
    messages = [str(warning.message) for warning in caught]
    assert "runs.jsonl:2: left out" in messages[0] and "line 1" in messages[0]
    assert "runs.jsonl:3: left out" in messages[1]


def test_of_equal_duplicates_the_later_line_stays(tmp_path, raw):
    path = write_lines(tmp_path / "r.jsonl", raw(), raw(final={"coverage": 0.7}))
    with pytest.warns(RecordWarning, match="r.jsonl:1: left out"):
        assert read_registry(path)[0].final["coverage"] == 0.7


def test_a_run_made_longer_takes_the_place_of_its_shorter_self_silently(tmp_path, raw):
    path = write_lines(tmp_path / "r.jsonl", raw(env_steps=8000), raw(env_steps=4000))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [record.env_steps for record in read_registry(path)] == [8000]


def test_an_absent_registry_is_an_error(tmp_path):
    with pytest.raises(RecordError, match="no such file"):
        read_registry(tmp_path / "runs.jsonl")


def test_first_visits_against_a_hand_made_array(maze):
    stored = np.full((4, 4), NEVER)
    stored[0, 0], stored[3, 1], stored[2, 3] = 0, 250, 1000
    visits = decode_first_visit(maze(stored, env_steps=8000))
    assert visits.shape == (4, 4)
    assert (visits[0, 0], visits[3, 1], visits[2, 3]) == (0, 2000, 8000)
    assert np.isnan(visits).sum() == 13


def test_first_visits_keep_the_order_of_a_long_maze(maze):
    stored = np.arange(6).reshape(3, 2)
    visits = decode_first_visit(maze(stored, env_steps=1000) | {"shape": [3, 2]})
    np.testing.assert_array_equal(visits, [[0, 1], [2, 3], [4, 5]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"first_visit": "###"}, "not base64 of a zlib stream"),
        ({"first_visit": "AAAA"}, "not base64 of a zlib stream"),
        ({"shape": [4, 5]}, "32 bytes, but shape 4 x 5 needs 40"),
    ],
)
def test_damaged_maps_are_named(maze, change, message):
    with pytest.raises(RecordError, match=message):
        decode_first_visit(maze() | change)


def test_impossible_visits_are_refused(maze):
    with pytest.raises(RecordError, match="got 1001"):
        decode_first_visit(maze(np.full((4, 4), 1001)))
    with pytest.raises(RecordError, match="shape"):
        decode_first_visit({})


def test_reading_and_tabulating_load_no_matplotlib():
    modules = "teb.report.records, teb.report.tables, teb.report.show"
    code = f"import sys, {modules}; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
