"""Films and neighbours of runs: what `teb eval --video` and `teb show` add for runs that see pictures."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
import torch
from small_runs import run_words

from teb.agents.compose import ComposedAgent
from teb.agents.protocol import states_batch
from teb.cli import run_command
from teb.replay.stacking import first_stack, next_stack
from teb.run import evaluate as module
from teb.run import insight
from teb.run.insight import appraised, experience, remembered_frames, trained
from teb.run.play import play

WORDS = (
    "--steps 160 --seed-steps 100 --uniform-steps 60 --update-every 8 --width 16 --batch-size 8 --threads 1 "
    "--precision fp32 --log-every 40 --eval-every 80 --eval-episodes 1"
)
PIXELS = "--channels 4 --latent-dim 8"

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Short runs by agent, on the probe; 100 of the 160 steps are two finished episodes before learning begins."""
    folder = tmp_path_factory.mktemp("runs")
    for agent in ("teb", "drqv2", "uniform"):
        words = shlex.split(f"train probe/near {agent} {WORDS}")
        if agent == "uniform":
            words = shlex.split("train probe/near uniform --steps 160 --threads 1")
        else:
            words += shlex.split(PIXELS)
        assert run_words(words, folder / agent) == 0
    return {path.name: path for path in folder.iterdir() if path.is_dir()}


def called(words: str, capsys: Capture) -> tuple[int, str, str]:
    capsys.readouterr()
    code = run_command(shlex.split(words))
    out, errors = capsys.readouterr()
    return code, out, errors


def frames_in(path: Path) -> int:
    frames, _ = imageio_ffmpeg.count_frames_and_secs(str(path))
    assert frames is not None
    return frames


@pytest.mark.parametrize(
    ("agent", "name", "episodes"),
    [("teb", "potential", 2), ("drqv2", "critic's value", 1), ("uniform", "return so far", 1)],
)
def test_a_film_of_all_episodes(
    agent: str,
    name: str,
    episodes: int,
    runs: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    from teb.report import film

    named: list[str] = []
    make = film.film

    def noted(takes, words, curve, *more):  # pyright: ignore
        named.append(curve)
        return make(takes, words, curve, *more)

    monkeypatch.setattr(film, "film", noted)
    folder = runs[agent]
    code, out, errors = called(f"eval {folder} --episodes {episodes} --video --fps 8", capsys)
    assert (code, errors, named) == (0, "", [name])
    assert out.splitlines()[1:] == [f"written: {folder / 'eval.json'}", f"written: {folder / 'eval.mp4'}"]
    assert frames_in(folder / "eval.mp4") == episodes * (51 + 4)
    assert json.loads((folder / "eval.json").read_text())["episodes"] == episodes


def test_an_evaluation_is_the_same_with_a_film_and_without(runs: dict[str, Path], capsys: Capture) -> None:
    results = []
    for more in ("", " --video"):
        assert called(f"eval {runs['teb']} --episodes 1 --seed 3{more}", capsys)[0] == 0
        results.append((runs["teb"] / "eval.json").read_text())
    assert results[0] == results[1]


@pytest.mark.parametrize("agent", ["teb", "drqv2"])
def test_an_episode_is_judged_state_by_state(
    agent: str, runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(insight, "AT_ONCE", 7)
    run = trained(runs[agent])
    over = experience(run, 0)
    assert over is not None and run.agent.sampling is not None
    assert over.window_obs.shape == (run.agent.sampling.batch_size, 4, 9, 24, 24)
    episode = play(run.task, run.agent, 7)
    judged = appraised(run, episode, over)
    stack = first_stack(episode.obs[0], 3)
    nothing = np.full((1, 2), np.nan, np.float32)
    for step in range(12):
        stack = stack if step == 0 else next_stack(stack, episode.obs[step])
        skill = np.zeros((1, 0), np.float32)
        states = states_batch(stack[None], nothing, skill, run.saved["first_obs"], torch.device("cpu"))
        assert isinstance(run.agent, ComposedAgent) and judged is not None
        alone = run.agent.appraise(states, over)
        assert judged.values[step] == pytest.approx(float(alone.values[0]), rel=1e-4, abs=1e-5)
    assert judged is not None and judged.values.shape == (51,)


def test_an_episode_says_what_was_done_and_when_it_was_solved(runs: dict[str, Path]) -> None:
    run = trained(runs["drqv2"])
    episode = play(run.task, run.agent, 3)
    env = run.task.env
    assert np.array_equal(env.reset(seed=3)[0], episode.obs[0])
    solved = False
    for step, action in enumerate(episode.actions):
        frame, reward, _, _, info = env.step(action)
        solved |= bool(info["success"])
        assert np.array_equal(frame, episode.obs[step + 1])
        assert (reward, solved) == (episode.rewards[step], episode.solved[step])
    assert episode.said["return"] == sum(episode.rewards) and episode.said["success"] == episode.solved[-1]


def test_a_maze_can_be_filmed(tmp_path: Path, capsys: Capture) -> None:
    words = f"train maze2d/square-a teb {WORDS.partition(' --eval-every')[0]} --pred-hidden 16"
    assert run_words(shlex.split(words), tmp_path / "run") == 0
    assert called(f"eval {tmp_path / 'run'} --episodes 1 --video --fps 4", capsys)[0] == 0
    assert frames_in(tmp_path / "run" / "eval.mp4") == 51 + 2


@pytest.mark.parametrize("agent", ["teb", "drqv2"])
def test_show_draws_curves_and_neighbours(agent: str, runs: dict[str, Path], capsys: Capture) -> None:
    folder = runs[agent]
    code, out, errors = called(f"show {folder}", capsys)
    assert (code, errors) == (0, "")
    for name in ("show.png", "show.svg", "neighbours.png", "neighbours.svg"):
        assert (folder / name).stat().st_size > 1000
        assert f"written: {folder / name}" in out


def test_remembered_frames_are_those_of_the_replay(runs: dict[str, Path]) -> None:
    run, frames = trained(runs["teb"]), remembered_frames(runs["teb"], 60)
    stored = run.saved["replay"]["obs"]
    assert len(frames.pictures) == 60 and frames.distances.shape == (60, 60)
    assert frames.metric == "bisimulation metric" and frames.env_steps == 160
    begins = {number: np.flatnonzero((stored == picture).all((1, 2, 3)))[0] - step
              for picture, number, step in zip(frames.pictures, frames.episode, frames.step, strict=True)}  # fmt: skip
    assert sorted(begins.values()) == [0, 50, 100]
    for picture, number, step in zip(frames.pictures, frames.episode, frames.step, strict=True):
        assert np.array_equal(stored[begins[number] + step], picture)
    np.testing.assert_allclose(frames.distances, frames.distances.T, atol=1e-5)


def test_several_runs_share_their_curves_alone(
    runs: dict[str, Path], tmp_path: Path, capsys: Capture
) -> None:
    code, _, errors = called(f"show {runs['teb']} {runs['drqv2']} --out {tmp_path / 'both'}", capsys)
    assert (code, errors) == (0, "")
    assert sorted(path.name for path in (tmp_path / "both").iterdir()) == ["show.png", "show.svg"]


def test_what_cannot_be_drawn_is_said_beside_the_curves(
    runs: dict[str, Path], tmp_path: Path, capsys: Capture
) -> None:
    code, out, errors = called(f"show {runs['uniform']}", capsys)
    assert (code, errors) == (0, "")
    said = f"no neighbours of frames are drawn: {runs['uniform']}: its agent does not say how far"
    assert said in out and (runs["uniform"] / "show.png").is_file()
    bare = tmp_path / "bare"
    shutil.copytree(runs["teb"], bare, ignore=shutil.ignore_patterns("checkpoint-*", "*.png", "*.svg"))
    code, out, _ = called(f"show {bare}", capsys)
    assert code == 0 and f"no neighbours of frames are drawn: {bare} has no checkpoint yet" in out
    assert called(f"eval {bare} --video", capsys) == (1, "", f"teb: {bare} has no checkpoint yet\n")


def test_what_cannot_be_filmed_is_told_in_one_line_before_anything_is_played(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    run_words(shlex.split("train gym/Pendulum-v1 uniform --steps 10 --threads 1"), tmp_path / "run")
    said = "teb: video: gym/Pendulum-v1 has neither pictures nor a maze to show\n"
    assert called(f"eval {tmp_path / 'run'} --video", capsys) == (2, "", said)
    assert called(f"eval {runs['teb']} --video --fps 0", capsys)[2] == "teb: fps: must be above 0, got 0\n"
    assert called(f"eval {runs['teb']} --fps 3", capsys)[2] == "teb: fps: goes with --video\n"
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    monkeypatch.setattr(module, "play", lambda *_: pytest.fail("played"))
    said = 'teb: video: needs imageio with ffmpeg: pip install "teb[metaworld]"\n'
    assert called(f"eval {runs['teb']} --video", capsys) == (2, "", said)


def test_a_replay_without_a_finished_episode_is_told(tmp_path: Path, capsys: Capture) -> None:
    words = f"train probe/near teb {WORDS.replace('--steps 160', '--steps 30')} {PIXELS}"
    assert run_words(shlex.split(words), tmp_path / "run") == 0
    said = f"{tmp_path / 'run'}: no episode of its replay has ended yet"
    assert called(f"eval {tmp_path / 'run'} --video", capsys) == (2, "", f"teb: {said}\n")
    assert f"no neighbours of frames are drawn: {said}" in called(f"show {tmp_path / 'run'}", capsys)[1]
