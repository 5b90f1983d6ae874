from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small_runs import go_on, read_record, registered, small_config

from teb.config import config_hash, to_json
from teb.run.record import append_once, commit, curves, surroundings, write_record

APPEND = """
import sys, types
sys.modules["torch"] = types.ModuleType("torch")  # not needed to write a line, and slow to load
from pathlib import Path
from teb.run.record import append_once
registry, writer = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for number in range(20):
    record = {"run_id": f"{writer}-{number}", "env_steps": 1, "padding": "x" * 50_000}
    assert append_once(registry, record)
    assert not append_once(registry, record)
    append_once(registry, {"run_id": f"everyone-{number}", "env_steps": 1, "padding": "x" * 50_000})
"""


def record(run_id: str, **more: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "run_id": run_id,
        "env_steps": 200,
        "curves": {"env_steps": list(range(200))},
        **more,
    }


def test_processes_that_append_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    registry = tmp_path / "results.jsonl"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", APPEND, str(registry), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    for writer in writers:
        assert writer.stdout and writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=60)
        assert writer.returncode == 0
    found = sorted(line["run_id"] for line in registered(registry))
    assert found == sorted(f"{who}-{number}" for who in (0, 1, 2, 3, "everyone") for number in range(20))


def test_a_record_is_appended_once(tmp_path: Path) -> None:
    registry = tmp_path / "new folder" / "results.jsonl"
    assert append_once(registry, record("a"))
    assert not append_once(registry, record("a"))
    assert append_once(registry, record("b"))
    assert not append_once(registry, record("a", headline="changed"))
    assert registered(registry) == [record("a"), record("b")]


def test_an_id_that_is_part_of_another_is_another(tmp_path: Path) -> None:
    registry = tmp_path / "results.jsonl"
    assert append_once(registry, record("abc"))
    assert append_once(registry, record("ab"))
    assert append_once(registry, record("bc"))


@pytest.mark.parametrize("where", ["before its end", "in the middle", "near its start"])
def test_a_torn_line_does_not_swallow_the_next_record(where: str, tmp_path: Path) -> None:
    registry = tmp_path / "results.jsonl"
    append_once(registry, record("a"))
    whole = registry.stat().st_size
    append_once(registry, record("b"))
    length = registry.stat().st_size
    cut = {"before its end": length - 1, "in the middle": (whole + length) // 2, "near its start": whole + 5}
    with registry.open("r+b") as file:
        file.truncate(cut[where])
    assert append_once(registry, record("c"))
    lines = registry.read_text().splitlines()
    assert json.loads(lines[0]) == record("a")
    assert json.loads(lines[-1]) == record("c")


@pytest.mark.parametrize("where", ["in the middle", "near its start"])
def test_a_record_that_was_torn_is_appended_when_asked_again(where: str, tmp_path: Path) -> None:
    registry = tmp_path / "results.jsonl"
    append_once(registry, record("a"))
    whole = registry.stat().st_size
    append_once(registry, record("b"))
    length = registry.stat().st_size
    with registry.open("r+b") as file:
        file.truncate((whole + length) // 2 if where == "in the middle" else whole + 5)
    assert append_once(registry, record("b"))
    lines = registry.read_text().splitlines()
    assert json.loads(lines[0]) == record("a")
    assert json.loads(lines[-1]) == record("b")
    assert not append_once(registry, record("b"))


def test_columns_have_none_where_a_row_lacks_a_value() -> None:
    rows = [
        {"env_steps": 1, "return": None, "seconds_total": 0.5},
        {"env_steps": 2, "return": 1 / 3, "loss": 123456.789, "seconds_total": 0.7},
    ]
    assert curves(rows) == {"env_steps": [1, 2], "return": [None, 0.333333], "loss": [None, 123457.0]}


def test_a_record_replaces_another_at_once(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_record(path, {"a": 1})
    write_record(path, {"a": 2})
    assert [entry.name for entry in tmp_path.iterdir()] == ["record.json"]
    with pytest.raises(ValueError):
        write_record(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 2}


def test_the_commit_is_that_of_the_checkout_or_the_one_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEB_COMMIT", "abc")
    assert commit() == ("abc", False)
    monkeypatch.delenv("TEB_COMMIT")
    said, _ = commit()
    assert said == "" or (len(said) == 12 and int(said, 16) >= 0)
    monkeypatch.setenv("PATH", "")
    assert commit() == ("", False)


def test_a_record_says_what_ran_where_and_how_it_went(tmp_path: Path) -> None:
    config = small_config("eta0", seed=3)
    go_on(config, tmp_path)
    found = read_record(tmp_path)
    expected = {
        "schema": 1,
        "method": "eta0",
        "label": "eta0 (seed_steps=100, uniform_steps=60, batch_size=16, width=16)",
        "overrides": {"seed_steps": 100, "uniform_steps": 60, "batch_size": 16, "width": 16},
        "env": "maze2d/square-a",
        "seed": 3,
        "preset": "cpu",
        "config": to_json(config),
        "config_hash": config_hash(config),
        "env_steps": 300,
        "updates": 100,
        "finished": True,
        "headline": "coverage",
    }
    assert {name: found[name] for name in expected} == expected
    assert found["curves"]["env_steps"] == [50, 100, 150, 200, 250, 300]
    assert found["curves"]["critic_loss"][:2] == [None, None]
    assert found["final"]["coverage"] == found["curves"]["coverage"][-1] > 0
    assert found["map"]["env_steps"] == 300
    assert set(found["time_split"]) == {"act", "env", "sample", "update", "other"}
    assert min(found["time_split"].values()) >= 0
    assert surroundings().keys() <= found.keys()
    assert {"python", "torch", "numpy"} <= found["versions"].keys()
