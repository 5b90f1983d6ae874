"""Studies: what they lack, how they are run, and that a rebuilt page is the committed one."""

from __future__ import annotations

import dataclasses
import json
import signal
import threading
from pathlib import Path

import pytest

from teb.cli import run_command
from teb.config import config_hash
from teb.report.records import parse_record, read_registry
from teb.run.stopping import StopWish
from teb.studies import STUDIES, command
from teb.studies.plan import Job, Study, Variant, jobs, missing, registry
from teb.studies.pool import run_jobs

ROOT = Path(__file__).parents[2]
TINY = Study(
    title="tiny",
    variants=[Variant("uniform"), Variant("uniform", {"action-limit": 1.0})],
    envs=["maze2d/square-a"],
    seeds=[0, 1],
    steps=400,
)


def record_of(job: Job, env_steps: int) -> dict[str, object]:
    return {
        "schema": 1,
        "method": job.config.agent,
        "label": job.config.agent,
        "overrides": {},
        "env": job.config.env,
        "seed": job.config.run.seed,
        "preset": "cpu",
        "config": {},
        "config_hash": config_hash(job.config),
        "commit": "",
        "dirty": False,
        "versions": {},
        "hardware": {},
        "started": "2026-01-01T00:00:00+00:00",
        "wall_seconds": 1.0,
        "time_split": {},
        "env_steps": env_steps,
        "updates": 0,
        "finished": True,
        "headline": "coverage",
        "curves": {"env_steps": [env_steps], "coverage": [0.5]},
        "final": {"coverage": 0.5},
        "map": {},
    }


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_names_runs_that_the_command_line_takes(name: str) -> None:
    listed = jobs(STUDIES[name])
    assert len({job.name for job in listed}) == len(listed), "two runs would share a folder"
    assert len({(config_hash(job.config), job.config.run.seed, job.config.env) for job in listed}) == len(
        listed
    )


def test_a_run_is_missing_until_one_as_long_is_stored() -> None:
    first, *others = jobs(TINY)
    stored = [parse_record(record_of(first, steps), "test") for steps in (399,)]
    assert missing(TINY, stored) == [first, *others]
    assert missing(TINY, [parse_record(record_of(first, 400), "test")]) == others
    assert missing(TINY, [parse_record(record_of(first, 9000), "test")]) == others


def test_seeds_come_last_so_that_an_interrupted_study_has_every_row() -> None:
    assert [job.config.run.seed for job in jobs(TINY)] == [0, 0, 1, 1]


def test_pool_runs_each_job_once_and_the_plan_is_then_empty(tmp_path: Path) -> None:
    said: list[str] = []
    results = registry(tmp_path)
    failed = run_jobs(jobs(TINY), tmp_path / "runs", results, 2, StopWish(), said.append)
    assert failed == []
    assert missing(TINY, read_registry(results)) == []
    assert len(results.read_text().splitlines()) == 4
    assert len(said) == 4 and said[-1].startswith("4/4 runs")


def test_pool_names_the_job_that_failed_and_goes_on(tmp_path: Path) -> None:
    good, other, *_ = jobs(TINY)
    bad = dataclasses.replace(other, words=(*other.words, "--device", "nonsense"))
    said: list[str] = []
    failed = run_jobs([bad, good], tmp_path / "runs", registry(tmp_path), 1, StopWish(), said.append)
    assert failed == [bad]
    assert "device" in (tmp_path / "runs" / bad.name / "log.txt").read_text()
    assert any(bad.name in line and "code 2" in line for line in said)
    assert len(read_registry(registry(tmp_path))) == 1


def test_a_wish_to_stop_saves_what_runs_and_starts_nothing_more(tmp_path: Path) -> None:
    long = dataclasses.replace(TINY, steps=100_000_000)
    wish = StopWish()
    first = jobs(long)[0]
    folder = tmp_path / "runs"

    def stop_once_it_trains() -> None:
        while not (folder / first.name / "metrics.jsonl").exists():
            pass
        wish.signal = signal.SIGTERM

    watcher = threading.Thread(target=stop_once_it_trains)
    watcher.start()
    run_jobs(jobs(long), folder, registry(tmp_path), 1, wish, lambda line: None)
    watcher.join()
    assert [path.name for path in folder.iterdir()] == [first.name]
    assert list((folder / first.name).glob("checkpoint-*.safetensors"))
    assert not registry(tmp_path).exists()


def test_refresh_replaces_only_its_own_block(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- results: x -->\nold\n<!-- end -->\nb\n<!-- results: y -->\nkeep\n<!-- end -->\n")
    assert command.refresh([page], "x", "| new |\n") == [page]
    text = page.read_text()
    assert "old" not in text and "| new |" in text and "keep" in text and text.startswith("a\n")
    assert command.refresh([page], "x", "| new |\n") == []


@pytest.mark.parametrize("name", STUDIES)
def test_stored_runs_rebuild_the_committed_tables_and_pages(name: str, tmp_path: Path) -> None:
    committed = ROOT / "results" / name
    (tmp_path / "runs.jsonl").write_bytes((ROOT / "results" / "runs.jsonl").read_bytes())
    assert run_command(["study", "show", name, "--results", str(tmp_path)]) == 0
    for path in sorted((tmp_path / name).iterdir()):
        assert path.read_bytes() == (committed / path.name).read_bytes(), (
            f"{path.name} is not what the runs give"
        )
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    copies = [tmp_path / f"{index}.md" for index, _ in enumerate(pages)]
    for page, copy in zip(pages, copies, strict=True):
        copy.write_text(page.read_text())
    assert command.refresh(copies, name, (committed / "table.md").read_text()) == []


def test_plan_and_list_speak_of_every_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["study", "list"]) == 0
    assert all(name in capsys.readouterr().out for name in [*STUDIES][:1])
    assert run_command(["study", "plan", "shaping", "--results", str(tmp_path), "--seeds", "0"]) == 0
    told = capsys.readouterr().out
    assert "0 of 34 runs" in told and "no stored run to estimate from" in told


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "shapin"],
        ["run", "shaping", "--workers", "0"],
        ["plan", "shaping", "--agents", "tebb"],
        ["dance"],
    ],
)
def test_wrong_words_are_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["study", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_registry_holds_valid_records() -> None:
    for line in (ROOT / "results" / "runs.jsonl").read_text().splitlines():
        record = json.loads(line)
        assert record["finished"] and record["final"][record["headline"]] <= 1.0
