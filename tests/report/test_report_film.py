"""Films of episodes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest

from teb.report import film as module
from teb.report.film import Take, Words, enlarged, film, film_length, save_film

WORDS = Words("probe/near", "teb", "seed 0, 2,000 steps of training")


def take(steps=6, side=24, values=True, solved_at=4, seed=0):
    rng = np.random.default_rng(seed)
    seen = rng.integers(0, 256, (steps + 1, 3, side, side), dtype=np.uint8)
    solved = np.arange(1, steps + 1) >= solved_at if solved_at else np.zeros(0, bool)
    return Take(seen, np.ones(steps), solved, rng.normal(size=steps + 1) if values else None)


def sheets(takes, **changes):
    options = {"words": WORDS, "name": "potential", "maze": {}, "fps": 10} | changes
    return list(film(takes, **options))


def test_each_pixel_becomes_a_square():
    frame = np.random.default_rng(0).integers(0, 256, (3, 5, 7), dtype=np.uint8)
    large = enlarged(frame, 30)
    assert large.shape == (20, 28, 3)
    for row in range(5):
        for column in range(7):
            square = large[4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
            assert (square == frame[:, row, column]).all()


def test_grey_pictures_and_transparent_ones_become_colour():
    grey = np.arange(4, dtype=np.uint8).reshape(1, 2, 2)
    assert np.array_equal(enlarged(grey, 2), np.repeat(grey[0, :, :, None], 3, 2))
    clear = np.arange(16, dtype=np.uint8).reshape(4, 2, 2)
    assert np.array_equal(enlarged(clear, 2), clear[:3].transpose(1, 2, 0))


def test_pictures_larger_than_the_film_stay_as_they_are():
    assert enlarged(np.zeros((3, 500, 700), np.uint8), 432).shape == (500, 700, 3)


def test_every_frame_shows_what_was_seen():
    episode = take()
    pictures = sheets([episode])
    assert len(pictures) == film_length([episode], 10) == 7 + 5
    for step, picture in enumerate(pictures):
        large = enlarged(episode.seen[min(step, 6)])
        left = (picture.shape[1] - large.shape[1]) // 2
        shown = picture[module._TITLE : module._TITLE + len(large), left : left + large.shape[1]]
        assert np.array_equal(shown, large)
        assert picture.shape[0] % 16 == picture.shape[1] % 16 == 0


@pytest.mark.parametrize("side", [24, 84, 60])
def test_the_curve_grows_with_the_frame(side):
    values = np.random.default_rng(1).normal(size=7)
    episode = take(side=side)._replace(values=values)
    sheet = module._Sheet(episode, WORDS, "episode 1 of 1", "potential", (-3, 3), {})
    for step in (0, 3, 6):
        sheet.at(step)
        np.testing.assert_array_equal(
            sheet.line.get_xydata(), np.stack([range(step + 1), values[: step + 1]], 1)
        )
        np.testing.assert_array_equal(sheet.dot.get_xydata(), [[step, values[step]]])
        assert sheet.status.get_text() == f"episode 1 of 1   step {step} of 6   return {step}"


def test_success_is_said_from_the_step_on_that_brought_it():
    sheet = module._Sheet(take(), WORDS, "", "potential", (-3, 3), {})
    said = []
    for step in (3, 4, 5, 0):
        sheet.at(step)
        said.append((sheet.verdict.get_text(), sheet.mark.get_visible()))
    assert said == [("not solved yet", False), *[("solved at step 4", True)] * 2, ("not solved yet", False)]
    silent = module._Sheet(take(solved_at=0), WORDS, "", "potential", (-3, 3), {})
    silent.at(5)
    assert silent.verdict.get_text() == ""


def test_without_values_the_curve_is_the_return():
    episode = take(values=False)
    sheet = module._Sheet(episode, WORDS, "", "return so far", (-1, 7), {})
    sheet.at(6)
    np.testing.assert_array_equal(sheet.line.get_ydata(), range(7))


def test_episodes_share_one_scale():
    low, high = module._limits([np.array([0.0, 1.0]), np.array([5.0, 6.0])])
    assert low < 0 and high > 6
    low, high = module._limits([np.zeros(3)])
    assert low < 0 < high


@pytest.mark.parametrize("label", ["teb", "teb (anchor=random, " + "pred_hidden=16, " * 20 + "width=1)"])
def test_words_stay_inside_and_apart(label):
    words = Words("metaworld/pick-out-of-hole", label, "seed 12, 1,000,000 steps of training")
    sheet = module._Sheet(take(steps=250), words, "episode 10 of 10", "potential", (-1, 1), {})
    sheet.at(250)
    boxes = [text.get_window_extent() for text in sheet.figure.texts if text.get_text()]
    assert len(boxes) == 5
    for box in boxes:
        assert box.x0 >= 0 and box.x1 <= sheet.width and box.y0 > sheet.height - module._TITLE
    for i, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[i + 1 :])


def test_a_maze_is_drawn_with_the_path(maze):
    positions = np.array([[0.0, 0.0], [0.4, 0.1], [1.0, 0.0], [1.0, 1.0]])
    episode = Take(positions, np.zeros(3), np.zeros(0, bool), np.arange(4.0))
    sheet = module._Sheet(episode, WORDS, "", "potential", (-1, 4), maze())
    sheet.at(2)
    np.testing.assert_array_equal(sheet.path.get_xydata(), positions[:3])
    np.testing.assert_array_equal(sheet.point.get_xydata(), positions[2:3])
    assert len(sheets([episode], maze=maze())) == 4 + 5


def test_the_file_has_every_frame_at_its_rate_and_place(tmp_path: Path):
    episodes = [take(), take(steps=3, seed=1)]
    path = tmp_path / "new" / "eval.mp4"
    save_film(path, iter(pictures := sheets(episodes)), 10)
    assert [file.name for file in path.parent.iterdir()] == ["eval.mp4"]
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    read = subprocess.run(command, capture_output=True, check=True)
    height, width, _ = pictures[0].shape
    frames = np.frombuffer(read.stdout, np.uint8).reshape(-1, height, width, 3)
    stream = next(line for line in read.stderr.decode().splitlines() if "Video: h264" in line)
    assert f" {width}x{height}" in stream and " 10 fps" in stream and "yuv420p" in stream
    assert len(frames) == film_length(episodes, 10) == (7 + 5) + (4 + 5)
    # Neighbouring pixels share their colour in the file, brightness differs by what compression costs.
    for got, given in zip(frames, pictures, strict=True):
        assert np.abs(got.mean(2) - given.mean(2)).mean() < 8
