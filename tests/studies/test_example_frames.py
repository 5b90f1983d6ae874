"""Example frames: what an agent sees first, the same at every call, in one small picture."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from teb.cli import run_command
from teb.envs.metaworld import register_metaworld
from teb.report.scenes import scenes_figure
from teb.studies.frames import TASKS, first_frame

ROOT = Path(__file__).parents[2]


@pytest.mark.metaworld
def test_frames_are_what_an_agent_sees_first() -> None:
    register_metaworld()
    for task in TASKS:
        env = gym.make(f"teb/MetaWorld-{task}-v0")
        stack, _ = env.reset(seed=0)
        env.close()
        np.testing.assert_array_equal(first_frame(task), stack[-3:])


@pytest.mark.metaworld
def test_show_draws_the_same_bytes_again(tmp_path: Path) -> None:
    for place in ("a", "b"):
        assert run_command(["study", "show", "frames", "--results", str(tmp_path / place)]) == 0
    for file in ("frames.png", "frames.svg"):
        assert (tmp_path / "a/frames" / file).read_bytes() == (tmp_path / "b/frames" / file).read_bytes()


def test_the_committed_picture_is_small_and_shown() -> None:
    assert 10_000 < (ROOT / "results/frames/frames.png").stat().st_size < 200_000
    assert "../results/frames/frames.png" in (ROOT / "docs/environments.md").read_text()


def test_pictures_stand_upright_under_their_names() -> None:
    frame = np.zeros((3, 84, 84), np.uint8)
    frame[0, :42] = 255  # red above
    figure = scenes_figure({"one": frame, "two": frame})
    assert [ax.get_title() for ax in figure.axes] == ["one", "two"]
    figure.canvas.draw()
    ax = figure.axes[0]
    pixels = np.asarray(figure.canvas.buffer_rgba())  # type: ignore[attr-defined]
    left, bottom, width, height = ax.get_window_extent().bounds
    middle = round(left + width / 2)
    rows = [len(pixels) - 1 - round(bottom + share * height) for share in (0.25, 0.75)]
    assert [pixels[row, middle, 0] for row in rows] == [0, 255]
