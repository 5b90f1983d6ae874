"""`teb theory`: a file in, verdicts, arrays and a page out; and what is wrong with a file, in one line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from teb.cli import run_command
from teb.maths.exact_mdp import state_values
from teb.theory.command import EXPERIMENTS, refresh
from teb.theory.operators import reduction
from teb.theory.statement import Setting

ROOT = Path(__file__).parents[2]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")


def arrays(**changes: Any) -> dict[str, Any]:
    """A small valid process, with changes; None takes an array away."""
    rng = np.random.default_rng(0)
    valid = {"transitions": rng.dirichlet(np.ones(4), (4, 2)), "rewards": rng.normal(size=(4, 2))}
    return {name: value for name, value in (valid | changes).items() if value is not None}


def called(words: list[str], capsys: Capture) -> tuple[int, str, str]:
    capsys.readouterr()
    code = run_command(["theory", *words])
    out, errors = capsys.readouterr()
    return code, out, errors


def test_a_process_of_the_user_gets_verdicts_arrays_and_a_page(capsys: Capture) -> None:
    given = arrays()
    np.savez("mine.npz", **given)
    code, out, errors = called(["--mdp", "mine.npz", "--out", "here", "--gamma", "0.9"], capsys)
    assert (code, errors) == (0, "")
    lines = out.splitlines()
    names = ["Reduction", "Lemma 3.1", "Lemma 3.2", "Theorem 3.3", "Theorem 3.4", "Theorem 3.5"]
    assert [line.partition(":")[0] for line in lines[:-1]] == names
    assert all(re.match(r"[^:]+: (holds|fails|does not apply)\. \S", line) for line in lines[:-1])
    found = np.load("here/metrics.npz")
    kernel, reward = given["transitions"].mean(1), given["rewards"].mean(1)
    assert np.allclose(found["values"], state_values(kernel, reward, 0.9))
    for name in ("classical", "predictive_independent", "predictive_shared", "mico"):
        assert found[name].shape == (4, 4) and found[f"{name}_error_bound"] < 1e-8
    gaps = np.abs(found["values"][:, None] - found["values"])
    assert (gaps <= found["classical"] + 1e-8).all()
    page = Path("here/theory.md").read_text()
    pictures = re.findall(r"\]\((\S+\.png)\)", page)
    assert pictures and all((Path("here") / picture).stat().st_size > 1000 for picture in pictures)


def test_a_metric_of_the_user_is_held_against_the_exact_ones(capsys: Capture) -> None:
    np.savez("mine.npz", **arrays())
    called(["--mdp", "mine.npz", "--out", "one"], capsys)
    exact = np.load("one/metrics.npz")["classical"]
    np.savez("same.npz", **arrays(metric=3.0 * exact))
    _, out, _ = called(["--mdp", "same.npz", "--out", "two"], capsys)
    line = next(line for line in out.splitlines() if line.startswith("Your metric"))
    assert "most like the classical metric (+1.000)" in line and "so it bounds" in line
    np.savez("small.npz", **arrays(metric=1e-3 * exact))
    _, out, _ = called(["--mdp", "small.npz", "--out", "three"], capsys)
    assert "so it does not bound" in out


def test_a_chain_and_rewards_by_state_are_taken(capsys: Capture) -> None:
    np.savez("chain.npz", transitions=np.eye(3)[[1, 2, 2]], rewards=np.zeros(3), reward_sigma=np.array(0.25))
    code, out, _ = called(["--mdp", "chain.npz"], capsys)
    assert code == 0 and "has collapsed" in out and "no order" in out
    bound = 2 / np.sqrt(np.pi) * 0.25 / 0.03
    assert np.allclose(np.load("runs/theory/metrics.npz")["predictive_independent"], bound)


def test_one_state_is_a_process_too(capsys: Capture) -> None:
    np.savez("one.npz", transitions=np.ones((1, 1)), rewards=np.ones(1))
    assert called(["--mdp", "one.npz"], capsys)[0] == 0


ROWS = np.full((4, 2, 4), 0.25)
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "rows": (arrays(transitions=ROWS * 0.9), r"transitions: rows must sum to 1, but row \[0, 0\] sums to 0.9"),
    "negative": (arrays(transitions=ROWS + np.array([0.5, -0.5, 0, 0])), r"must not be negative, but \[0, 0, 1\]"),
    "nan": (arrays(rewards=np.full((4, 2), np.nan)), r"rewards: must be finite, but \[0, 0\] is nan"),
    "infinite": (arrays(transitions=ROWS * np.inf), "transitions: must be finite"),
    "not square": (arrays(transitions=np.full((4, 2, 5), 0.2)), r"transitions: must be .* got \[4, 2, 5\]"),
    "one axis": (arrays(transitions=np.ones(4)), r"transitions: must be .* got \[4\]"),
    "empty": (arrays(transitions=np.zeros((0, 0))), r"transitions: must be .* got \[0, 0\]"),
    "shape of rewards": (arrays(rewards=np.ones((2, 4))), r"rewards: must be \[4, 2\] or \[4\], got \[2, 4\]"),
    "policy": (arrays(policy=np.ones((4, 2))), r"policy: rows must sum to 1, but row \[0\] sums to 2"),
    "shape of policy": (arrays(policy=np.ones(4)), r"policy: must be \[4, 2\], got \[4\]"),
    "sigma": (arrays(reward_sigma=np.array(-1.0)), "reward_sigma: must not be negative, got -1"),
    "metric": (arrays(metric=np.ones((3, 3))), r"metric: must be \[4, 4\], got \[3, 3\]"),
    "missing": (arrays(rewards=None), "lacks the array 'rewards'; it has transitions"),
    "unknown": (arrays(reward=np.ones(4)), "unknown array 'reward'; known: transitions, "),
    "pickled": (arrays(rewards=np.array([None] * 4)), "rewards: holds Python objects, which are not read"),
    "words": (arrays(rewards=np.array(["a"] * 4)), "rewards: must hold real numbers, got <U1"),
    "complex": (arrays(rewards=np.ones(4) * 1j), "rewards: must hold real numbers, got complex128"),
}  # fmt: skip


def complains(words: list[str], pattern: str, capsys: Capture) -> None:
    code, out, errors = called(words, capsys)
    assert (code, out) == (2, "")
    assert errors.startswith("teb: ") and errors.count("\n") == 1, errors
    assert re.search(pattern, errors), errors
    assert not Path("runs").exists()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_malformed_file_is_told_in_one_line(mistake: str, capsys: Capture) -> None:
    given, pattern = MISTAKES[mistake]
    np.savez("bad.npz", **given)  # pyright: ignore[reportArgumentType]
    complains(["--mdp", "bad.npz"], pattern, capsys)


def test_a_file_that_is_none_is_told_in_one_line(capsys: Capture) -> None:
    np.savez("good.npz", **arrays())  # pyright: ignore[reportArgumentType]
    whole = Path("good.npz").read_bytes()
    Path("text.npz").write_text("transitions")
    Path("empty.npz").write_bytes(b"")
    Path("cut.npz").write_bytes(whole[: len(whole) // 2])
    Path("flipped.npz").write_bytes(whole.replace(whole[200:210], b"0123456789", 1))
    np.save("bare.npy", np.ones((2, 2)))
    np.save("pickle.npy", np.array([None]), allow_pickle=True)
    for name in ("text.npz", "empty.npz", "cut.npz", "pickle.npy"):
        complains(["--mdp", name], "is not a file of numpy.savez", capsys)
    complains(["--mdp", "flipped.npz"], "transitions: is damaged", capsys)
    complains(["--mdp", "bare.npy"], "holds one bare array", capsys)
    complains(["--mdp", "gone.npz"], "gone.npz is not a file", capsys)
    complains(["--mdp", "."], "is not a file", capsys)


def test_a_process_that_would_not_fit_is_refused(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("teb.theory.files.MOST_CELLS", 50)
    np.savez("large.npz", **arrays())  # pyright: ignore[reportArgumentType]
    complains(["--mdp", "large.npz"], "4 states with up to 4 successors make 80 cells", capsys)


@pytest.mark.parametrize(
    ("words", "pattern"),
    [
        ("--c-t 1", r"c_t: must lie in \[0, 1\), got 1.0"),
        ("--c-t nan", r"c_t: must lie in"),
        ("--gamma 1", r"gamma: must lie in \[0, 1\), got 1.0"),
        ("--c-r 0", "c_r: must be above 0, got 0"),
        ("--sigma 0", "sigma: must be above 0"),
        ("--seed -1", "seed: must lie in"),
        ("--only lemma-3.3", "unknown statement 'lemma-3.3'; did you mean 'lemma-3.1'"),
        ("--mdp x.npz --only cost", "mdp: takes all its statements"),
    ],
)
def test_options_out_of_range_are_told_in_one_line(words: str, pattern: str, capsys: Capture) -> None:
    complains(words.split(), pattern, capsys)


def test_some_statements_alone(capsys: Capture) -> None:
    code, out, _ = called(["--only", "theorem-3.5", "reduction", "--out", "here"], capsys)
    assert code == 0
    assert [line.partition(":")[0] for line in out.splitlines()[:2]] == ["Theorem 3.5", "Reduction"]
    assert Path("here/invariance.png").stat().st_size > 1000
    assert "## Reduction" in Path("here/theory.md").read_text()


def test_the_page_has_a_place_for_every_statement_and_is_up_to_date() -> None:
    page = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    assert re.findall(r"<!-- theory: (\S+) -->", page) == list(EXPERIMENTS)
    assert page.count("<!-- theory end -->") == len(EXPERIMENTS)
    setting = Setting(1.0, 0.97, 0.97, 0.5, 0)
    for name in ("theorem-3.3", "theorem-3.5"):
        statement = EXPERIMENTS[name](setting)
        assert statement.table.strip() in page, (
            f"{name}: teb theory --docs docs/theory.md brings it up to date"
        )


def test_refresh_writes_between_the_marks_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- theory: reduction -->\nstale words\n<!-- theory end -->\nafter\n")
    found = {"reduction": reduction(Setting(1.0, 0.9, 0.9, 0.5, 0))}
    assert refresh(page, found)
    text = page.read_text()
    assert "stale" not in text and text.startswith("before\n") and text.endswith("after\n")
    assert text.count("<!-- theory end -->") == text.count("<!-- theory: reduction -->") == 1
    assert "Holds under conditions." in text and not refresh(page, found)
