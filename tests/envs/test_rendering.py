"""Which backend is chosen, and canvases on small models of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from teb.envs import rendering
from teb.envs.rendering import BACKENDS, SIZE, Canvas, choose_backend, load_mujoco, set_quality, works

SCENE = """
<mujoco>
  <asset>
    <texture name="paint" type="2d" builtin="flat" rgb1="{colour}" width="8" height="8"/>
    <material name="paint" texture="paint"/>
  </asset>
  <worldbody>
    <light pos="1 0 3" dir="-0.3 0 -1" castshadow="true"/>
    <camera name="above" pos="0 -1.5 2" xyaxes="1 0 0 0 0.8 0.6"/>
    <geom type="plane" size="2 2 0.1" rgba="0.8 0.8 0.8 1"/>
    <geom type="box" pos="0.3 0.2 0.3" size="0.2 0.1 0.3" material="paint"/>
  </worldbody>
</mujoco>
"""
RED, BLUE = "1 0 0", "0 0 1"
DRAWING = pytest.mark.rendering


def scene(colour: str) -> tuple[Any, Any]:
    mujoco = load_mujoco()
    model = mujoco.MjModel.from_xml_string(SCENE.format(colour=colour))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return model, data


@pytest.fixture
def canvases() -> Iterator[list[Canvas]]:
    """A list whose canvases are closed after the test."""
    made: list[Canvas] = []
    yield made
    for canvas in made:
        canvas.close()


# --- backends ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def able(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pretends that only the named backends work, on Linux, with MUJOCO_GL as given."""

    def pretend(*backends: str, chosen: str | None = None) -> None:
        monkeypatch.setattr(sys, "platform", "linux")
        monkeypatch.delitem(sys.modules, "mujoco", raising=False)
        monkeypatch.setattr(rendering, "works", lambda backend: backend in backends)
        monkeypatch.setenv("MUJOCO_GL", "")
        if chosen is None:
            monkeypatch.delenv("MUJOCO_GL")
        else:
            monkeypatch.setenv("MUJOCO_GL", chosen)

    return pretend


@pytest.mark.parametrize(
    ("backends", "expected"), [(("egl", "osmesa"), "egl"), (("osmesa",), "osmesa"), (("egl",), "egl")]
)
def test_the_first_backend_that_works_is_chosen(able: Any, backends: tuple[str, ...], expected: str) -> None:
    able(*backends)
    assert choose_backend() == ""
    assert os.environ["MUJOCO_GL"] == expected


def test_the_user_s_choice_stays(able: Any) -> None:
    able("egl", "osmesa", chosen="osmesa")
    assert choose_backend() == ""
    assert os.environ["MUJOCO_GL"] == "osmesa"


@pytest.mark.parametrize(
    ("backends", "chosen", "expected"),
    [
        (
            (),
            None,
            "neither EGL nor OSMesa works here: apt-get install libegl1 libegl-mesa0 libgl1-mesa-dri lib",
        ),
        (("egl",), "osmesa", "MUJOCO_GL=osmesa does not work here: apt-get install libosmesa6 (Debian and"),
        (("egl",), "glfw", "MUJOCO_GL=glfw does not work here: unset it, or apt-get install libegl1"),
    ],
)
def test_a_missing_backend_is_told_in_one_sentence(
    able: Any, backends: tuple[str, ...], chosen: str | None, expected: str
) -> None:
    able(*backends, chosen=chosen)
    problem = choose_backend()
    assert expected in problem and "\n" not in problem
    assert os.environ.get("MUJOCO_GL") == chosen
    with pytest.raises(ValueError, match="^pictures cannot be drawn, "):
        Canvas(None, "above")


@pytest.mark.parametrize("backend", ["egl", "glfw"])
def test_what_mujoco_was_imported_with_counts(
    able: Any, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    able("egl", "osmesa", chosen="osmesa")
    context = type("GLContext", (), {"__module__": f"mujoco.{backend}"})
    monkeypatch.setitem(sys.modules, "mujoco", SimpleNamespace(GLContext=context))  # pyright: ignore
    problem = choose_backend()
    if backend == "egl":
        assert problem == ""
    else:
        assert "MuJoCo was imported with glfw, which does not work here: set MUJOCO_GL=egl before" in problem


@pytest.mark.parametrize("name", ["metaworld/box-close", "gym/Reacher-v5"])
def test_a_backend_that_does_not_exist_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    if find_spec("metaworld") is None:
        pytest.skip("needs Meta-World")
    command = [sys.executable, "-m", "teb", "train", name, "uniform", "--out", str(tmp_path)]
    ended = subprocess.run(
        command, env=os.environ | {"MUJOCO_GL": "crayons"}, capture_output=True, text=True, check=False
    )
    said = "teb: MUJOCO_GL: must be 'egl' or 'osmesa', or not set, got 'crayons'\n"
    assert (ended.returncode, ended.stderr) == (2, said)


def test_what_cannot_work_is_found_out_by_trying() -> None:
    assert not works("no-such-backend")


# --- canvases ---------------------------------------------------------------------------------------------------------


@DRAWING
def test_a_picture_is_that_of_mujoco_with_its_rows_reversed(canvases: list[Canvas]) -> None:
    model, data = scene(RED)
    canvases.append(Canvas(model, "above"))
    with load_mujoco().Renderer(model, SIZE, SIZE) as renderer:
        renderer.update_scene(data, camera="above")
        expected = renderer.render()
    picture = canvases[0].draw(data)
    assert picture.dtype == np.uint8 and picture.shape == (3, SIZE, SIZE) and picture.flags.c_contiguous
    np.testing.assert_array_equal(picture, expected[::-1].transpose(2, 0, 1))
    assert len(np.unique(picture)) > 20


@DRAWING
def test_a_picture_is_a_copy(canvases: list[Canvas]) -> None:
    model, data = scene(RED)
    canvases.append(Canvas(model, "above"))
    first = canvases[0].draw(data)
    kept = first.copy()
    model.mat_rgba[:] = 0.0, 0.0, 0.0, 1.0
    assert (canvases[0].draw(data) != kept).any()
    np.testing.assert_array_equal(first, kept)


@DRAWING
def test_canvases_live_side_by_side_and_outlive_each_other(canvases: list[Canvas]) -> None:
    (red, red_data), (blue, blue_data) = scene(RED), scene(BLUE)
    canvases.append(Canvas(red, "above"))
    alone = canvases[0].draw(red_data)
    canvases.append(Canvas(blue, "above"))
    other = canvases[1].draw(blue_data)
    assert (alone != other).any()
    np.testing.assert_array_equal(canvases[0].draw(red_data), alone)
    np.testing.assert_array_equal(canvases[1].draw(blue_data), other)
    canvases[0].draw(red_data)  # the one that is closed is not the one that drew last
    canvases[1].close()
    canvases[1].close()
    np.testing.assert_array_equal(canvases[0].draw(red_data), alone)


@DRAWING
def test_qualities_differ_in_shadows_and_samples(canvases: list[Canvas]) -> None:
    pictures: dict[str, npt.NDArray[np.uint8]] = {}
    for quality in ("full", "no_shadows", "fast"):
        model, data = scene(RED)
        set_quality(model, quality)
        canvases.append(Canvas(model, "above"))
        pictures[quality] = canvases[-1].draw(data)
    shadow = pictures["no_shadows"].astype(int) - pictures["full"]
    assert (shadow >= -1).all() and (shadow > 30).mean() > 0.01  # without shadows nothing is darker
    # One sample per pixel: edges are hard, so fewer colours appear, and the rest of the picture is the same.
    assert 0.0 < (pictures["fast"] != pictures["no_shadows"]).any(axis=0).mean() < 0.1


@DRAWING
def test_balls_are_drawn_and_leave_no_trace(canvases: list[Canvas]) -> None:
    model, data = scene(RED)
    canvases.append(Canvas(model, "above"))
    without = canvases[0].draw(data)
    with_ball = canvases[0].draw(data, [((-0.4, 0.2, 0.2), 0.2, (0.0, 1.0, 0.0))])
    changed = (with_ball != without).any(axis=0)
    green = (with_ball[1] > 100) & (with_ball[0] < 60)
    assert 0.01 < changed.mean() < 0.3 and green.sum() > 50
    np.testing.assert_array_equal(canvases[0].draw(data), without)


@DRAWING
@pytest.mark.parametrize("backend", BACKENDS)
def test_canvases_outlive_others_and_a_process_that_forgets_them_ends_in_silence(backend: str) -> None:
    if not works(backend):
        pytest.skip(f"{backend} does not work here")
    source = f"""
from teb.envs.rendering import Canvas, load_mujoco
mujoco = load_mujoco()
model = mujoco.MjModel.from_xml_string('''{SCENE.format(colour=RED)}''')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
canvases = [Canvas(model, "above") for _ in range(3)]
first = [canvas.draw(data) for canvas in canvases][0]
canvases.pop().close()
assert (canvases[0].draw(data) == first).all() and first.any()
canvases.pop(0).close()
assert (canvases[0].draw(data) == first).all()
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYOPENGL_PLATFORM"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source],
        env=environment | {"MUJOCO_GL": backend},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
