"""Studies: what they lack, how they are run, and that a rebuilt page is the committed one."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import signal
import threading
from pathlib import Path

import pytest

from teb.cli import parse_train, run_command
from teb.config import config_hash
from teb.report.records import Record, parse_record, read_registry
from teb.run.stopping import StopWish
from teb.studies import COMPUTED, STUDIES, command
from teb.studies.plan import Budget, Job, Study, Variant, jobs, rows, words
from teb.studies.pool import run_jobs, usable_cores
from teb.studies.stored import estimate, evidence, missing, registry, stored_records

ROOT = Path(__file__).parents[2]
TINY = Study(
    title="tiny",
    variants=[Variant("uniform"), Variant("uniform", {"action-limit": 1.0})],
    envs=["maze2d/square-a"],
    budgets={"cpu": Budget("cpu", 400, [0, 1])},
)
SMALL = TINY.budgets["cpu"]
MIXED = [Variant("icm"), Variant("rnd"), Variant("uniform")]
EVERY = [(name, budget) for name, study in STUDIES.items() for budget in study.budgets]


def record_of(job: Job, env_steps: int, **changes: object) -> dict[str, object]:
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
        **changes,
    }


def stored(job: Job, env_steps: int, **changes: object) -> Record:
    return parse_record(record_of(job, env_steps, **changes), "test")


@pytest.mark.parametrize(("name", "budget"), EVERY)
def test_every_study_names_runs_that_the_command_line_takes(name: str, budget: str) -> None:
    study, size = STUDIES[name], STUDIES[name].budgets[budget]
    listed = jobs(study, size)
    assert len({job.name for job in listed}) == len(listed), "two runs would share a folder"
    assert len({(job.hashes, job.config.run.seed) for job in listed}) == len(listed)
    assert len(listed) == len({(job.row, job.config.env, job.config.run.seed) for job in listed})
    assert {job.row for job in listed} == set(rows(study, size))
    assert "uniform" in rows(study, size)
    for job in (listed[0], listed[-1]):
        assert parse_train(job.words)[0] == job.config


def test_no_run_of_any_study_shares_its_folder_with_another_configuration() -> None:
    listed = [job for name, budget in EVERY for job in jobs(STUDIES[name], STUDIES[name].budgets[budget])]
    assert len({job.name for job in listed}) == len({(job.name, job.hashes[0]) for job in listed})


def test_an_agent_that_is_not_there_is_refused_by_name() -> None:
    study = dataclasses.replace(TINY, variants=[*TINY.variants, Variant("nobody")])
    with pytest.raises(ValueError, match="nobody"):
        jobs(study, SMALL)


def test_options_of_a_budget_reach_the_runs_and_not_the_names_of_rows() -> None:
    study = Study(
        "tuned",
        [Variant("uniform"), Variant("teb", where={"probe/far": {"eta": 0.05}}, name="teb")],
        ["probe/near", "probe/far"],
        {"cpu": Budget("cpu", 3000, [0], options={"horizon": 20})},
    )
    near, far = (job for job in jobs(study, study.budgets["cpu"]) if job.row == "teb")
    assert (near.config.learner.explorer.eta, far.config.learner.explorer.eta) == (1.0, 0.05)
    assert all(job.config.task.horizon == 20 for job in (near, far))
    assert rows(study, study.budgets["cpu"]) == ["uniform", "teb"]


def test_a_switch_is_a_word_of_its_own() -> None:
    assert words({"distract-light": True, "eta": 1.0}) == ["--distract-light", "--eta", "1.0"]
    assert words({"distract-light": False}) == ["--no-distract-light"]


def test_a_run_is_missing_until_one_as_long_is_stored() -> None:
    first, *others = jobs(TINY, SMALL)
    assert missing(TINY, SMALL, [stored(first, 399)]) == [first, *others]
    assert missing(TINY, SMALL, [stored(first, 400)]) == others
    assert missing(TINY, SMALL, [stored(first, 9000)]) == others
    assert missing(TINY, SMALL, [stored(first, 400, finished=False)]) == [first, *others]


def test_a_run_in_either_precision_serves_unless_the_row_asks_for_one() -> None:
    first, *_ = jobs(TINY, SMALL)
    half, single = first.hashes
    twice = [stored(first, 400, config_hash=single), stored(first, 400, config_hash=half)]
    for records in (twice, twice[:1]):
        (taken,) = evidence(TINY, SMALL, records).records
        assert taken.config_hash == records[-1].config_hash
    (asked, *_) = jobs(dataclasses.replace(TINY, variants=[Variant("uniform", {"precision": "fp32"})]), SMALL)
    assert asked.hashes == (single,)


def test_evidence_compares_longer_runs_at_the_steps_of_the_study() -> None:
    first, *_ = jobs(TINY, SMALL)
    curves = {"env_steps": [400, 800], "coverage": [0.3, 0.6]}
    drawn = evidence(TINY, SMALL, [stored(first, 800, curves=curves, final={"coverage": 0.6})])
    assert drawn.cell("uniform", "maze2d/square-a").values == (0.3,)
    assert drawn.steps["maze2d/square-a"] == (400, False)


def test_an_estimate_says_how_much_of_it_is_guessed_or_unknown() -> None:
    jobs_of = {job.config.agent: job for job in jobs(dataclasses.replace(TINY, variants=MIXED), SMALL)}
    config = {"run": {"device": "cpu"}}
    records = [stored(jobs_of["icm"], 400, wall_seconds=36.0, config=config)]
    records += [stored(jobs_of["rnd"], 400, wall_seconds=108.0, config=config)]
    known = estimate([jobs_of["icm"]], records)
    assert (known.hours, known.guessed, known.unknown) == (pytest.approx(0.01), 0, 0)
    guessed = estimate([jobs_of["icm"], jobs_of["uniform"]], records)
    assert (guessed.hours, guessed.guessed) == (pytest.approx(0.03), 1)
    assert "1 by the mean speed of other agents" in str(guessed)
    elsewhere = [dataclasses.replace(record, config={"run": {"device": "cuda"}}) for record in records]
    assert estimate([jobs_of["icm"]], elsewhere).unknown == 1
    assert str(estimate([jobs_of["icm"]], elsewhere)) == "no stored run to estimate from"


def test_seeds_come_last_so_that_an_interrupted_study_has_every_row() -> None:
    assert [job.config.run.seed for job in jobs(TINY, SMALL)] == [0, 0, 1, 1]


def test_pool_runs_each_job_once_and_the_plan_is_then_empty(tmp_path: Path) -> None:
    said: list[str] = []
    results = registry(tmp_path)
    failed = run_jobs(jobs(TINY, SMALL), tmp_path / "runs", results, 2, StopWish(), said.append)
    assert failed == []
    assert missing(TINY, SMALL, read_registry(results)) == []
    assert len(results.read_text().splitlines()) == 4
    assert len(said) == 4 and said[-1].startswith("4/4 runs")


def test_pool_names_the_job_that_failed_and_goes_on(tmp_path: Path) -> None:
    good, other, *_ = jobs(TINY, SMALL)
    bad = dataclasses.replace(other, words=(*other.words, "--device", "nonsense"))
    said: list[str] = []
    failed = run_jobs([bad, good], tmp_path / "runs", registry(tmp_path), 1, StopWish(), said.append)
    assert failed == [bad]
    assert "device" in (tmp_path / "runs" / bad.name / "log.txt").read_text()
    assert any(bad.name in line and "code 2" in line for line in said)
    assert len(read_registry(registry(tmp_path))) == 1


def test_pool_lets_a_run_wait_whose_folder_is_in_use(tmp_path: Path) -> None:
    busy, other, *_ = jobs(TINY, SMALL)
    folder, ended = tmp_path / "runs", list[str]()
    (folder / busy.name).mkdir(parents=True)
    with (folder / busy.name / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        def say(line: str) -> None:
            ended.append(line)
            fcntl.flock(lock, fcntl.LOCK_UN)

        assert run_jobs([busy, other], folder, registry(tmp_path), 1, StopWish(), say) == []
    assert [line.rpartition(" ")[2] for line in ended] == [other.name, busy.name]


def test_a_wish_to_stop_saves_what_runs_and_starts_nothing_more(tmp_path: Path) -> None:
    long = dataclasses.replace(SMALL, steps=100_000_000)
    wish = StopWish()
    first = jobs(TINY, long)[0]
    folder = tmp_path / "runs"

    def stop_once_it_trains() -> None:
        while not (folder / first.name / "metrics.jsonl").exists():
            pass
        wish.signal = signal.SIGTERM

    watcher = threading.Thread(target=stop_once_it_trains)
    watcher.start()
    run_jobs(jobs(TINY, long), folder, registry(tmp_path), 1, wish, lambda line: None)
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


COMMITTED = sorted(path.parent.name for path in (ROOT / "results").glob("*/table.md"))


def test_every_study_with_stored_runs_has_its_tables_committed() -> None:
    records = stored_records(ROOT / "results")
    shown = command.every_choice(command.StudyOptions("show", all=True))
    assert len(shown) == sum(len(study.budgets) for study in STUDIES.values())
    drawn = [c.folder for c in shown if evidence(c.study, c.budget, records).records]
    assert sorted(drawn) == COMMITTED


@pytest.mark.parametrize("folder", COMMITTED)
def test_stored_runs_rebuild_the_committed_tables_and_pages(folder: str, tmp_path: Path) -> None:
    committed = ROOT / "results" / folder
    (tmp_path / "runs.jsonl").write_bytes((ROOT / "results" / "runs.jsonl").read_bytes())
    name, _, budget = (folder, "", "") if folder in STUDIES else folder.rpartition("-")
    asked = ["--budget", budget] if budget else []
    assert run_command(["study", "show", name, *asked, "--results", str(tmp_path)]) == 0
    made = sorted(path.name for path in (tmp_path / folder).iterdir())
    assert made == sorted(path.name for path in committed.iterdir())
    for file in made:
        assert (tmp_path / folder / file).read_bytes() == (committed / file).read_bytes(), (
            f"{file} is not what the runs give"
        )
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    copies = [tmp_path / f"{index}.md" for index, _ in enumerate(pages)]
    for page, copy in zip(pages, copies, strict=True):
        copy.write_text(page.read_text())
    assert command.refresh(copies, folder, (committed / "table.md").read_text()) == []


def test_plan_and_list_speak_of_every_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["study", "list"]) == 0
    listed = capsys.readouterr().out
    assert all(f"{name} " in listed for name in [*STUDIES, *COMPUTED])
    assert run_command(["study", "plan", "shaping", "--results", str(tmp_path), "--seeds", "0"]) == 0
    told = capsys.readouterr().out
    assert "0 of 34 runs" in told and "34 to go: no stored run to estimate from" in told
    assert run_command(["study", "plan", "--all", "--results", str(ROOT / "results")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        name if place == 0 else f"{name}-{budget}"
        for name, study in STUDIES.items()
        for place, budget in enumerate(study.budgets)
    ]
    assert all("complete" in line or "to go" in line for line in lines)


def test_the_computed_study_points_to_its_command_and_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in ("plan", "show"):
        assert run_command(["study", verb, "theory", "--runs", str(tmp_path)]) == 0
        told = capsys.readouterr().out
        assert "`teb theory`" in told and "docs/theory.md" in told and "teb study run theory" in told
    (tmp_path / "theory").mkdir()
    (tmp_path / "theory" / "theory.md").write_text("# computed\n")
    assert run_command(["study", "show", "theory", "--runs", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith("# computed\n")


def test_a_worker_gets_its_share_of_the_cores_it_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[list[str], dict[str, str]]] = []

    class Ended:
        returncode = 0

        def __init__(self, told: list[str], *, env: dict[str, str], **_: object) -> None:
            seen.append((told, env))

        def __class_getitem__(cls, _: object) -> type:
            return cls

        def poll(self) -> int:
            return 0

    monkeypatch.setattr("teb.studies.pool.subprocess.Popen", Ended)
    monkeypatch.setattr("teb.studies.pool.usable_cores", lambda: 7)
    run_jobs(jobs(TINY, SMALL)[:1], tmp_path, registry(tmp_path), 2, StopWish(), lambda line: None)
    ((told, env),) = seen
    assert told[told.index("--threads") + 1] == "3"
    assert env["OMP_NUM_THREADS"] == env["MKL_NUM_THREADS"] == env["OPENBLAS_NUM_THREADS"] == "3"
    assert usable_cores() >= 1


@pytest.mark.parametrize(
    "told",
    [
        ["plan", "shapin"],
        ["run", "shaping", "--workers", "0"],
        ["plan", "shaping", "--methods", "tebb"],
        ["plan", "shaping", "--budget", "paper"],
        ["run", "--all"],
        ["show", "shaping", "--all"],
        ["dance"],
    ],
)
def test_wrong_words_are_one_line(told: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["study", *told]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_registry_holds_valid_records() -> None:
    for line in (ROOT / "results" / "runs.jsonl").read_text().splitlines():
        record = json.loads(line)
        assert record["finished"] and record["final"][record["headline"]] <= 1.0
