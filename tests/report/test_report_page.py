"""The page's data against the records it is made of, and what the file may hold."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import shlex
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import teb.report
from teb.cli import parse_train, run_command
from teb.config import from_json, to_json
from teb.report.comparison import BEST_SUCCESS
from teb.report.document import Chapter, document, mean_interval
from teb.report.grid import Study
from teb.report.html import SCRIPTS, page
from teb.report.packing import POINTS, short, thinned, visit_levels
from teb.report.records import Record, RecordError, decode_first_visit, read_registry
from teb.report.statistics import bootstrap_interval
from teb.studies.page import command

ROOT = Path(__file__).resolve().parents[2]
PARTS = Path(teb.report.__file__).parent / "page"
Make = Callable[..., Record]


def unpacked(text: str) -> tuple[dict[str, Any], bytes]:
    """The data of a page's text, read as the format is described."""
    found = re.search(r'id="data">([^<]*)</script>', text)
    assert found
    raw = zlib.decompress(base64.b64decode(found[1]))
    length = int.from_bytes(raw[:4], "little")
    return json.loads(raw[4 : 4 + length]), raw[4 + length :]


def chapter(records: list[Record], **changes: Any) -> Chapter:
    given: dict[str, Any] = {"rows": ["teb", "icm"], "envs": ["maze2d/ell", "maze2d/far"]} | changes
    return Chapter("tiny", "A tiny study", "cpu", 4000, 8, 3, Study(records, **given))


def told(chapters: list[Chapter], records: list[Record]) -> dict[str, Any]:
    return unpacked(page(*document(chapters, records, lambda _: "teb train")))[0]


def seeds(record: Make, values: list[float], **changes: Any) -> list[Record]:
    return [
        record(seed=seed, run_id=f"{changes.get('label', 'teb')}-{seed}", **changes,
               final={"coverage": value}, curves={"env_steps": [2000, 4000], "coverage": [value / 2, value]})
        for seed, value in enumerate(values)
    ]  # fmt: skip


# --- packing ----------------------------------------------------------------------------------------------------------


def test_a_bin_is_never_shown_before_its_visit_nor_a_level_late(maze: Callable[..., dict[str, Any]]) -> None:
    stored = np.random.default_rng(0).permutation(1001)[:16].reshape(4, 4)
    stored[0, :3] = 0, 1000, 65535
    map = maze(stored, env_steps=98_000)
    levels, visits = visit_levels(map).astype(float), decode_first_visit(map)
    assert (levels[0, 2], levels[0, 0], levels[0, 1]) == (255, 0, 200)
    seen = np.isfinite(visits)
    shown = levels[seen] * 98_000 / 200
    assert (shown >= visits[seen] - 1e-6).all()
    assert (shown - 98_000 / 200 < visits[seen] - 1e-6).all()


@pytest.mark.parametrize("length", [0, 1, 2, POINTS, POINTS + 1, 5000])
def test_thinning_keeps_the_ends_and_an_even_choice(length: int) -> None:
    kept = thinned(length)
    assert len(kept) == min(length, POINTS)
    if length:
        assert (kept[0], kept[-1]) == (0, length - 1)
        assert np.ptp(np.diff(kept)) <= 1 if length > 2 else True


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(0.123456, 0.1235), (123456.0, 123500), (0.0, 0), (float("nan"), None), (float("inf"), None), (-1e-9, -1e-9)],
)  # fmt: skip
def test_numbers_are_rounded_to_four_digits(value: float, wanted: float | None) -> None:
    assert short(value) == wanted


def test_the_page_holds_what_the_records_hold(record: Make) -> None:
    long = np.linspace(0, 1, 1000)
    first = record(
        run_id="a" * 32,
        curves={"env_steps": list(range(1, 1001)), "coverage": list(long), "q": [None] * 1000},
    )
    other = record(run_id="b" * 32, seed=1, map={}, finished=False)
    data, maps = unpacked(page(*document([], [first, other], lambda one: f"teb train {one.seed}")))
    run, bare = data["runs"]
    assert (run["id"], run["command"], bare["command"]) == ("a" * 12, "teb train 0", "teb train 1")
    steps, values = run["curves"]["env_steps"], run["curves"]["coverage"]
    assert len(steps) <= POINTS and (steps[0], steps[-1]) == (1, 1000)
    np.testing.assert_allclose(values, [long[step - 1] for step in steps], rtol=1e-3)
    assert set(run["curves"]["q"]) == {None}
    assert bare["map"] is None and bare["finished"] is False
    place, maze = run["map"], data["mazes"][run["map"]["maze"]]
    stored = np.frombuffer(maps, np.uint8)[place["at"] :][:16].reshape(4, 4)
    assert (stored == visit_levels(first.map)).all()
    assert (maze["inside"], maze["cells"]) == (12, [[0, 0], [1, 0], [1, 1]])


def test_the_same_records_make_the_same_file(record: Make) -> None:
    def made() -> str:
        records = seeds(record, [0.1, 0.3])
        return page(*document([chapter(records)], records, lambda _: ""))

    assert made() == made()


def test_a_curve_of_success_goes_from_evaluation_to_evaluation_while_its_table_has_the_best(
    record: Make,
) -> None:
    curves = {"env_steps": [1000, 2000, 3000, 4000], "eval_success": [0.8, None, 0.4, 1.0]}
    one = record(curves=curves, final={"eval_success": 1.0})
    study = Study([one], ["teb"], [one.env], {}, BEST_SUCCESS, 3000)
    row = told([Chapter("s", "S", "cpu", 3000, 1, 1, study)], [one])["studies"][0]["rows"][0]
    assert row["cells"][0]["mean"] == 0.8
    assert (row["curves"][0]["steps"], row["curves"][0]["mean"]) == ([1000, 3000], [0.8, 0.4])


def test_a_damaged_map_is_named(record: Make) -> None:
    damaged = record(map={"shape": [4, 4]})
    with pytest.raises(RecordError, match="teb on maze2d/ell, seed 0: map.maze is missing"):
        document([], [damaged], lambda _: "")


def test_runs_of_one_maze_share_its_walls(record: Make) -> None:
    data = told([], [record(run_id="a"), record(run_id="b", seed=1)])
    assert len(data["mazes"]) == 1
    assert [run["map"]["at"] for run in data["runs"]] == [0, 16]


# --- studies ----------------------------------------------------------------------------------------------------------


def test_missing_cells_stay_missing_and_published_ones_are_marked(record: Make) -> None:
    records = seeds(record, [0.2, 0.4, 0.6])
    study = told(
        [chapter(records, published={"maze2d/far": {"teb": (0.9, 0.1), "cesd": (0.7, float("nan"))}})],
        records,
    )["studies"][0]
    rows = [(row["name"], row["published"]) for row in study["rows"]]
    assert rows == [("teb", False), ("teb", True), ("icm", False), ("uniform", False), ("cesd", True)]
    ours, theirs, icm, _, cesd = study["rows"]
    assert (ours["cells"][1], icm["cells"], icm["curves"]) == (None, [None, None], [None, None])
    assert (ours["overall"], ours["aggregates"]) == (None, None), (
        "a row with a hole has no mean over environments"
    )
    assert theirs["cells"] == [None, {"mean": 0.9, "std": 0.1}]
    assert cesd["cells"][1] == {"mean": 0.7, "std": None}
    cell = ours["cells"][0]
    assert (cell["mean"], cell["values"], cell["runs"]) == (0.4, [0.2, 0.4, 0.6], [0, 1, 2])
    assert [cell["low"], cell["high"]] == pytest.approx(bootstrap_interval([[0.2, 0.4, 0.6]]), abs=1e-4)
    assert study["compared"] == [{"steps": 4000, "cut": False}, {"steps": 0, "cut": False}]
    assert any("3 seeds" in note for note in study["notes"])


def test_one_seed_has_no_interval(record: Make) -> None:
    records = seeds(record, [0.5])
    row = told([chapter(records)], records)["studies"][0]["rows"][0]
    assert [row["cells"][0][name] for name in ("std", "low", "high")] == [None, None, None]
    assert (row["curves"][0]["low"], row["curves"][0]["high"]) == (None, None)


def test_curves_end_where_all_runs_have_been(record: Make) -> None:
    longer = seeds(record, [0.2, 0.4])
    shorter = record(
        run_id="s", label="icm", env_steps=3000, curves={"env_steps": [1000, 3000], "coverage": [0.1, 0.3]}
    )
    study = told([chapter([*longer, shorter])], [*longer, shorter])["studies"][0]
    assert study["compared"][0] == {"steps": 3000, "cut": True}
    curve = study["rows"][0]["curves"][0]
    assert curve["steps"] == [2000]
    assert curve["mean"] == pytest.approx([0.15])


@pytest.mark.parametrize("count", [2, 3, 5])
def test_the_band_is_the_bootstrap_of_the_mean(count: int) -> None:
    values = np.random.default_rng(1).normal(size=(count, 4))
    every = np.array(
        [values[list(drawn)].mean(axis=0) for drawn in itertools.product(range(count), repeat=count)]
    )
    wanted = np.quantile(every, [0.025, 0.975], axis=0, method="inverted_cdf")
    np.testing.assert_allclose(mean_interval(values, 20_000), wanted, atol=0.05 * values.std())


# --- the file ---------------------------------------------------------------------------------------------------------


def test_what_a_record_says_cannot_become_part_of_the_page(record: Make) -> None:
    text = page(*document([], [record(label="</script><script>alert(1)</script>")], lambda _: ""))
    assert text.count("<script") == text.count("</script>") == 2
    assert "alert(1)" not in text


def test_the_page_asks_for_nothing_and_runs_only_its_own_script(record: Make) -> None:
    text = page(*document([], [record()], lambda _: ""))
    script, style = (re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL) for tag in ("script", "style"))
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert script and style and policy
    for part in (script, style):
        assert base64.b64encode(hashlib.sha256(part[1].encode()).digest()).decode() in policy[1]
    assert policy[1].startswith("default-src 'none';") and "unsafe" not in policy[1]
    addresses = set(re.findall(r"\w+://[^\"'\s]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}, "a name of the SVG language, not fetched"
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch(",
                 "XMLHttpRequest", "WebSocket", "import(", "@import", "url(", "<link", "<img", "<iframe"):  # fmt: skip
        assert word not in text
    assert "{{" not in text


def test_every_part_of_the_page_is_in_it() -> None:
    assert {path.name for path in PARTS.iterdir()} == {*SCRIPTS, "index.html", "style.css"}


def test_the_committed_registry_makes_a_small_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "report.html"
    words = ["report", "--results", str(ROOT / "results"), "--out", str(out), "--studies", "shaping-long"]
    assert run_command(words) == 0
    assert str(out) in capsys.readouterr().out
    data, _ = unpacked(out.read_text(encoding="utf-8"))
    size, count = out.stat().st_size, len(data["runs"])
    assert count >= 200
    assert size < 10e6 and size / count * 800 < 10e6
    (study,) = data["studies"]
    assert study["stored"] == sum(len(cell["values"]) for row in study["rows"] for cell in row["cells"]
                                  if cell and not row["published"])  # fmt: skip
    for run in data["runs"]:
        assert run["id"] and run["command"].startswith("teb train ")
    assert len({run["id"] for run in data["runs"]}) == count


def test_the_command_of_a_run_repeats_its_configuration() -> None:
    records = read_registry(ROOT / "results" / "runs.jsonl")
    different = {(record.method, record.preset, len(record.overrides)): record for record in records}
    for record in different.values():
        _, _, *words = shlex.split(command(record))
        config = from_json(record.config)
        if config.run.device == "cuda":  # which is refused where there is none
            place = words.index("--device")
            assert words.pop(place + 1) == "cuda" and words.pop(place)
            config = replace(config, run=replace(config.run, device="cpu"))
        assert parse_train(words)[0] == config, words


def test_the_command_spells_switches_and_nothing(record: Make) -> None:
    told = [
        "probe/near",
        "teb",
        "--no-critic-grad-to-encoder",
        "--dyn-reward-decoder",
        "--c-t",
        "0.5",
        "--threads",
        "1",
    ]
    config = parse_train(told)[0]
    assert parse_train(shlex.split(command(record(config=to_json(config))))[2:])[0] == config


def test_a_configuration_that_cannot_be_read_has_no_command(record: Make) -> None:
    assert command(record(config={"env": "maze2d/square-a", "agent": "gone"})) == ""


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--results", "nowhere"], "nowhere/runs.jsonl: no such registry"),
        (["--studies", "maze2"], "unknown study 'maze2'"),
    ],
)
def test_what_a_user_can_mend_is_one_line(
    words: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["report", *words]) == 2
    said = capsys.readouterr().err
    assert complaint in said and said.count("\n") == 1
    assert not (tmp_path / "report.html").exists()
