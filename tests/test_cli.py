"""What the command line says, and how it ends: 0 if all went well, 2 for what a user can mend, in one line."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import teb
from teb.agents.registry import AGENTS, PIXEL_AGENTS
from teb.cli import COMMANDS, default_folder, parse_train, run_command
from teb.config import RunConfig, default_config, to_json
from teb.envs import FAMILIES
from teb.explorers.teb import TebConfig
from teb.run.checkpoint import load_latest
from teb.run.session import read_config
from teb.run.train import Run

TRAIN = "train maze2d/square-a teb"
QUICK = shlex.split("train maze2d/square-a uniform --steps 100 --log-every 50 --threads 1")

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a hundred steps."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    assert run_command([*QUICK, "--seed", "3", "--out", str(folder)]) == 0
    return folder


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")


def called(words: str | list[str], capsys: Capture) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    capsys.readouterr()
    try:
        code = run_command(shlex.split(words) if isinstance(words, str) else words)
    except SystemExit as stop:
        code = 0 if stop.code is None else stop.code
    out, errors = capsys.readouterr()
    assert isinstance(code, int)
    return code, out, errors


# --- mistakes -----------------------------------------------------------------------------------------------------

MISTAKES = {
    "train maze2d/square-z teb": "unknown name 'square-z' in 'maze2d/square-z'; did you mean 'square-a'?",
    "train maze3d/square-a teb": "unknown family 'maze3d' in 'maze3d/square-a'; did you mean 'maze2d'?",
    "train square-a teb": "env: must look like family/name, got 'square-a'; did you mean 'maze2d/square-a'?",
    "train gym/CartPole-v1 teb": "gym/CartPole-v1 has Discrete actions; supported are",
    "train metaworld/box-close teb --reward-mode shaped": "--reward-mode",
    "train metaworld/box-close teb --distract-scale 1": "distract_scale: must lie in [0, 0.3], got 1.0",
    "train metaworld/box-closed teb": "did you mean 'box-close'?",
    "train gym/Pendulumm-v1 teb": "did you mean 'gym/Pendulum-v1'?",
    f"{TRAIN} --lr -1": "lr: must be above 0, got -1.0",
    f"{TRAIN} --lr nan": "lr: must be above 0, got nan",
    f"{TRAIN} --lr": "--lr",
    f"{TRAIN} --batch-size abc": "--batch-size: expected a whole number, got 'abc'",
    f"{TRAIN} --batch-size 1.5": "--batch-size: expected a whole number, got '1.5'",
    f"{TRAIN} --bath-size 3": "--bath-size, 3; did you mean --batch-size?",
    f"{TRAIN} --anchor foo": "--anchor",
    f"{TRAIN} --precision fp16": "--precision",
    f"{TRAIN} --steps 0": "steps: must be above 0, got 0",
    f"{TRAIN} --seed -1": "seed: must lie in [0, ",
    f"{TRAIN} --gamma 1": "gamma: must lie in [0, 1), got 1.0",
    f"{TRAIN} --sigma-max 1e-5": "sigma_max: must be at least sigma_min = 0.0001, got 1e-05",
    f"{TRAIN} --sigma-max nan": "sigma_max: ",
    f"{TRAIN} --neighbours 999999": "neighbours: must be at most particles = ",
    f"{TRAIN} --action-limit 2": "action_limit: must lie in (0, 1], got 2.0",
    f"{TRAIN} --preset laptop": "preset: must be one of paper, cpu, got 'laptop'",
    f"{TRAIN} --reading foo": "reading: 'teb' has default, theorem-faithful, literal, got 'foo'",
    f"{TRAIN} --device gpu": "device: must be cpu, cuda or auto, got 'gpu'",
    f"{TRAIN} --device meta": "device: ",
    f"{TRAIN} 3": "expected an environment and an agent, got also '3'",
    "train maze2d/square-a tebb": "unknown agent 'tebb'; did you mean 'teb'?",
    "train maze2d/square-a": "name an agent as well, such as: teb train maze2d/square-a teb-p",
    "train": "name an environment and an agent, such as: teb train maze2d/square-a teb-p",
    "train --seed 3": "name an environment and an agent",
    "train --from nowhere": "nowhere is not a run folder",
    "train --from": "--from",
    "trian maze2d/square-a teb": "unknown command 'trian'; did you mean 'train'?",
    "fly": "unknown command 'fly'; known: train, ",
    "eval nowhere": "nowhere is not a run folder",
    "eval .": "is not a run folder",
    "eval": "teb eval",
    "show nowhere": "nowhere: no such folder",
    "show .": "not a run folder",
    "show": "name at least one run folder",
    "show nowhere --by-skill": "nowhere: no such folder",
    "show one two --by-skill": "by_skill: draws one run at a time, got 2",
    "show one --by-skill --episodes 0": "episodes: must be above 0, got 0",
    "show one --by-skill --start 1": "--start",
    "show one --start 0 0": "start: goes with --by-skill",
    "show one --seed 3": "seed: goes with --by-skill",
    "list agents": "agents",
    "doctor --fast": "--fast",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_told_in_one_line(words: str, tmp_path: Path, capsys: Capture) -> None:
    code, out, errors = called(words, capsys)
    assert (code, out) == (2, "")
    assert errors.startswith("teb: ") and errors.endswith("\n") and errors.count("\n") == 1, errors
    assert MISTAKES[words] in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_cuda_without_a_device_is_told_in_one_line(device: str, capsys: Capture) -> None:
    code, out, errors = called(f"{TRAIN} --device {device}", capsys)
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert errors.startswith(f"teb: device: {device!r} asked for, but PyTorch sees no CUDA device")


def test_an_evaluation_needs_an_episode(trained: Path, capsys: Capture) -> None:
    code, out, errors = called(["eval", str(trained), "--episodes", "0"], capsys)
    assert (code, out, errors) == (2, "", "teb: episodes: must be above 0, got 0\n")


def test_a_place_that_cannot_be_written_is_told_in_one_line(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").write_text("")
    code, out, errors = called([*QUICK, "--out", "file/run"], capsys)
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert "file" in errors


def test_a_damaged_configuration_is_told_in_one_line(tmp_path: Path, capsys: Capture) -> None:
    called([*QUICK, "--out", "run"], capsys)
    data = json.loads((tmp_path / "run" / "config.json").read_text())
    for damaged in ("", '{"env": "maze2d/squa', "{}", "[]", json.dumps(data | {"run": {"sede": 1}})):
        (tmp_path / "run" / "config.json").write_text(damaged)
        for words in ("train --from run --out other", "eval run"):
            code, _, errors = called(words, capsys)
            assert (code, errors.count("\n")) == (2, 1), (damaged, errors)


def test_names_beside_from_are_refused(trained: Path, capsys: Capture) -> None:
    code, _, errors = called(f"{TRAIN} --from {trained} --steps 10 --seed-steps 20 --out new", capsys)
    assert (code, errors.count("\n")) == (2, 1)
    assert "--from" in errors


@pytest.mark.parametrize("option", ["--preset paper", "--reading literal"])
def test_what_from_already_decides_is_refused_beside_it(option: str, trained: Path, capsys: Capture) -> None:
    code, _, errors = called(f"train --from {trained} {option} --out new", capsys)
    assert (code, errors.count("\n")) == (2, 1)
    assert option.split()[0].lstrip("-") in errors


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_process_ends_as_the_command_does(encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "teb", *shlex.split(f"{TRAIN} --batch-size abc")],
        cwd=Path(teb.__file__).parents[1],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "teb: --batch-size: expected a whole number, got 'abc'\n"


def test_without_the_simulator_all_else_works_and_one_line_says_what_to_install(tmp_path: Path) -> None:
    source = """
import sys
sys.modules.update(metaworld=None, mujoco=None)
from teb.cli import run_command
quick = "--steps 10 --log-every 10 --threads 1".split()
print(run_command(["list"]), run_command(["train", "maze2d/square-a", "uniform", *quick, "--out", "run"]))
sys.exit(run_command(["train", "metaworld/box-close", "uniform", *quick, "--env-process", "no"]))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source],
        env={**os.environ, "PYTHONPATH": str(Path(teb.__file__).parents[1])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and done.stdout.endswith("0 0\n")
    assert done.stderr.splitlines()[-1] == (
        'teb: metaworld/box-close needs Meta-World: pip install "teb[metaworld]"'
    )
    assert {path.name for path in tmp_path.iterdir()} == {"run", "results.jsonl"}


# --- help and lists -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["", "--help", "-h"])
def test_help_names_every_command(words: str, capsys: Capture) -> None:
    code, out, errors = called(words, capsys)
    assert (code, errors) == (0, "")
    for name, (_, summary) in COMMANDS.items():
        assert name in out and summary in out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: Capture) -> None:
    code, out, errors = called([command, "--help"], capsys)
    assert (code, errors) == (0, "")
    assert f"usage: teb {command}" in out


def help_of(option: str, text: str) -> str:
    """What the help says about one option, in one line."""
    plain = " ".join(line.strip("│ ") for line in text.splitlines())
    found = re.search(rf"(?<!\S){option}(?:,| [A-Z{{]).*?\(default: .*?\)", plain)
    assert found, option
    return found[0]


def test_the_help_of_train_names_every_option_with_its_source(capsys: Capture) -> None:
    code, out, _ = called("train --help", capsys)
    assert code == 0
    unsourced = [
        field.name
        for kind in (RunConfig, TebConfig)
        for field in dataclasses.fields(kind)
        if not re.search(
            r"\b(ours|paper|URLB|Gymnasium|Campos)\b|\([A-E]-\d+\)",
            help_of(f"--{field.name.replace('_', '-')}", out).rpartition("(default")[0],
        )
    ]
    assert unsourced == []


@pytest.mark.parametrize("agent", ["teb", "drqv2", "teb-p+rep", "uniform"])
def test_the_help_of_train_from_pixels_is_that_of_the_agent(agent: str, capsys: Capture) -> None:
    code, out, _ = called(["train", "probe/far", agent, "--help"], capsys)
    assert code == 0
    learner = to_json(default_config("probe/far", agent, "cpu"))["learner"]
    for part in learner.values():
        for name, value in part.items():
            shown = f"'{value}" if name == "noise" else str(value)
            assert f"(default: {shown}" in help_of(f"--{name.replace('_', '-')}", out), name


@pytest.mark.parametrize("agent", AGENTS)
def test_the_help_of_train_is_that_of_the_agent_and_its_preset(agent: str, capsys: Capture) -> None:
    code, out, _ = called(["train", "gym/Pendulum-v1", agent, "--preset", "paper", "--help"], capsys)
    assert code == 0
    assert "(default: None)" in help_of("--max-episode-steps", out)
    learner = to_json(default_config("gym/Pendulum-v1", agent, "paper"))["learner"]
    parts = [part for part in learner.values() if isinstance(part, dict)]
    options = dict(field for part in parts for field in part.items()) if parts else learner
    for name, value in options.items():
        assert f"(default: {value})" in help_of(f"--{name.replace('_', '-')}", out), name


def test_list_names_every_agent_reading_and_environment(capsys: Capture) -> None:
    code, out, errors = called("list", capsys)
    assert (code, errors) == (0, "")
    for name, spec in {**AGENTS, **PIXEL_AGENTS}.items():
        assert name.endswith("+rep") or re.search(rf"│ {name} ", out)
        assert all(reading in out for reading in spec.readings)
    assert "NAME+rep" in out
    for name, family in FAMILIES.items():
        assert f"{name}/..." in out
        assert all(known in out for known in family.names)


def test_doctor_looks_at_the_machine(capsys: Capture) -> None:
    code, out, errors = called("doctor", capsys)
    assert (code, errors) == (0, "")
    assert all(word in out for word in ("python", "threads", "bf16", "memory", "disk", "ready to train"))


# --- train --------------------------------------------------------------------------------------------------------


def test_a_run_says_how_it_ended_and_where_it_lies(tmp_path: Path, capsys: Capture) -> None:
    code, out, errors = called(QUICK, capsys)
    folder = Path("runs") / "maze2d-square-a_uniform_cpu_seed0"
    coverage = json.loads((folder / "record.json").read_text())["final"]["coverage"]
    assert code == 0
    assert out.splitlines() == [
        f"uniform on maze2d/square-a: coverage {coverage:.3f} after 100 steps",
        f"run: {folder}   pictures: teb show {folder}",
    ]
    assert "100/100 steps" in errors
    assert len((tmp_path / "runs" / "results.jsonl").read_text().splitlines()) == 1


def test_the_registry_may_lie_elsewhere(tmp_path: Path, capsys: Capture) -> None:
    assert called([*QUICK, "--results", "all/of.jsonl"], capsys)[0] == 0
    assert len((tmp_path / "all" / "of.jsonl").read_text().splitlines()) == 1
    assert not (tmp_path / "runs" / "results.jsonl").exists()


def test_variants_have_folders_of_their_own() -> None:
    words = [
        "train maze2d/square-a teb",
        "train maze2d/square-a teb --seed 1",
        "train maze2d/square-a teb --preset paper",
        "train maze2d/square-a teb --reading literal",
        "train maze2d/square-a teb --lr 1e-3",
        "train maze2d/square-a teb --action-limit 0.5",
        "train maze2d/square-a teb-p",
        "train maze2d/square-b teb",
    ]
    folders = [default_folder(parse_train(line.split()[1:])[0]) for line in words]
    assert len(set(folders)) == len(folders)
    assert all(re.fullmatch(r"runs/[\w.=-]+", str(folder)) for folder in folders)


def test_options_may_be_written_with_an_equals_sign() -> None:
    config, start = parse_train(
        shlex.split("maze2d/square-a teb --preset=paper --reading=literal --lr=0.5 --out=x")
    )
    base = default_config("maze2d/square-a", "teb", "paper", "literal")
    assert (config.preset, config.reading, start.out) == ("paper", "literal", Path("x"))
    assert config.learner.backbone.lr == 0.5
    assert config.learner.explorer == base.learner.explorer


def test_from_repeats_a_configuration(trained: Path, tmp_path: Path, capsys: Capture) -> None:
    assert called(["train", "--from", str(trained), "--seed", "4", "--out", "again"], capsys)[0] == 0
    before, after = read_config(trained), read_config(tmp_path / "again")
    assert after == dataclasses.replace(before, run=dataclasses.replace(before.run, seed=4))
    assert called([*QUICK, "--seed", "4", "--out", "direct"], capsys)[0] == 0
    again, direct = (json.loads(Path(name, "record.json").read_text()) for name in ("again", "direct"))
    assert again["curves"] == direct["curves"] and again["map"] == direct["map"]
    assert again["config_hash"] == direct["config_hash"]
    assert json.loads((trained / "record.json").read_text())["map"] != again["map"]


def test_from_keeps_what_was_overridden(capsys: Capture) -> None:
    words = "train maze2d/square-a teb --reading literal --preset paper --seed 7 --steps 4 --width 8"
    assert called(f"{words} --action-limit 0.5 --pred-hidden 8 --out first", capsys)[0] == 0
    config, start = parse_train(["--from", "first", "--out", "second"])
    assert config == read_config(Path("first"))
    assert (start.preset, start.reading) == ("paper", "literal")
    changed, _ = parse_train(["--from", "first", "--width", "9"])
    assert (changed.learner.backbone.width, changed.learner.explorer.pred_hidden) == (9, 8)


def signal_at(step: int, number: signal.Signals, patch: pytest.MonkeyPatch) -> None:
    """Let this process receive a signal during a step of the next run."""
    take = Run.take

    def take_and_signal(run: Run, action: Any) -> bool:
        if run.env_steps == step:
            os.kill(os.getpid(), number)
        return take(run, action)

    patch.setattr(Run, "take", take_and_signal)


@pytest.mark.parametrize(
    ("where", "option"),
    [
        ("plain", ["--out", "plain"]),
        ("two words", ["--out", "two words"]),
        ("it's", ["--out=it's"]),
        ("sweep [b]2[/b]", ["--out", "sweep [b]2[/b]"]),
        (str(Path("runs") / "maze2d-square-a_uniform_cpu_seed0"), []),
    ],
)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_command_that_goes_on_survives_a_shell(
    number: signal.Signals,
    code: int,
    where: str,
    option: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    with monkeypatch.context() as patch:
        signal_at(70, number, patch)
        stopped, out, errors = called([*QUICK, *option], capsys)
    assert (stopped, out) == (code, "")
    said = re.fullmatch(r"stopped at step 71 and saved; to go on: (.*)", errors.splitlines()[-1])
    assert said
    loaded = load_latest(Path(where))
    assert loaded is not None and loaded.env_steps == 71
    program, *words = shlex.split(said[1])
    assert program == "teb"
    done, _, errors = called(words, capsys)
    assert done == 0
    assert errors.startswith(f"resuming {where} at step 71\n")


# --- eval and show ------------------------------------------------------------------------------------------------


def test_eval_writes_what_it_prints(trained: Path, capsys: Capture) -> None:
    code, out, errors = called(["eval", str(trained), "--episodes", "2", "--seed", "5"], capsys)
    assert (code, errors) == (0, "")
    result = json.loads((trained / "eval.json").read_text())
    assert (result["episodes"], result["seed"], result["env_steps"]) == (2, 5, 100)
    assert len(result["returns"]) == 2
    assert f"coverage {result['coverage']:.4g}" in out and "episodes 2" in out
    assert out.splitlines()[-1] == f"written: {trained / 'eval.json'}"


def test_eval_of_a_run_without_a_checkpoint(trained: Path, capsys: Capture) -> None:
    Path("new").mkdir()
    Path("new", "config.json").write_text((trained / "config.json").read_text())
    assert called("eval new", capsys) == (1, "", "teb: new has no checkpoint yet\n")


def test_show_draws_beside_the_run(trained: Path, capsys: Capture) -> None:
    code, out, errors = called(["show", str(trained)], capsys)
    assert (code, errors) == (0, "")
    for name in ("show.png", "show.svg"):
        assert (trained / name).stat().st_size > 1000
        assert f"written: {trained / name}" in out
    assert "uniform" in out


def test_show_draws_the_skills_of_a_run(capsys: Capture) -> None:
    words = "train maze2d/square-a diayn --steps 100 --width 16 --hidden 16 --threads 1 --out run"
    assert called(words, capsys)[0] == 0
    code, out, errors = called("show run --by-skill --start -0.25 -3 --episodes 2 --seed 1", capsys)
    assert (code, errors) == (0, "")
    assert out.splitlines() == ["written: run/skills.png", "written: run/skills.svg"]
    assert all(Path(f"run/skills.{ending}").stat().st_size > 1000 for ending in ("png", "svg"))
    for start, said in (("9 9", "lies in no cell of square-a"), ("0.5 0", "lies in a wall of square-a")):
        code, out, errors = called(f"show run --by-skill --start {start}", capsys)
        assert (code, out, errors.count("\n")) == (2, "", 1)
        assert errors.startswith("teb: start: ") and said in errors


def test_show_tells_where_there_are_no_skills_or_no_maze(trained: Path, capsys: Capture) -> None:
    code, out, errors = called(["show", str(trained), "--by-skill"], capsys)
    assert (code, out, errors) == (2, "", f"teb: {trained}: its method has no skills\n")
    called("train gym/Pendulum-v1 uniform --steps 10 --threads 1 --out run", capsys)
    code, out, errors = called("show run --by-skill", capsys)
    assert (code, out) == (2, "")
    assert errors == "teb: uniform on gym/Pendulum-v1: skills are drawn in mazes, and this is none\n"


def test_show_tells_how_to_go_on_with_an_unfinished_run(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    with monkeypatch.context() as patch:
        signal_at(70, signal.SIGTERM, patch)
        called([*QUICK, "--out", "a [b] run"], capsys)
    code, out, _ = called(["show", "a [b] run"], capsys)
    assert code == 0
    said = re.search(r"unfinished: 71 of 100 steps; go on with: (.*)", out)
    assert said
    code, out, errors = called(shlex.split(said[1])[1:], capsys)
    assert code == 0 and "after 100 steps" in out and " at step 71" in errors
