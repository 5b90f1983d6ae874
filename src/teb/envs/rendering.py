"""Pictures from MuJoCo without a display: which backend draws, and a canvas of one environment's own."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Quality = Literal["full", "no_shadows", "fast"]

SIZE = 84
"""Height and width of pictures (DrQ-v2)."""

BACKENDS = {"egl": "libegl1 libegl-mesa0 libgl1-mesa-dri", "osmesa": "libosmesa6"}
"""Values of MUJOCO_GL that need no display, best first, and the Debian packages that they need."""

_TRIAL = """
import mujoco
canvas = mujoco.Renderer(mujoco.MjModel.from_xml_string("<mujoco/>"), 8, 8)
canvas.update_scene(mujoco.MjData(canvas.model))
canvas.render()
canvas.close()
"""


@cache
def works(backend: str) -> bool:
    """Whether MuJoCo can draw with this backend; tried in a process of its own, as it may end the process."""
    environment = {name: value for name, value in os.environ.items() if name != "PYOPENGL_PLATFORM"}
    trial = subprocess.run(
        [sys.executable, "-c", _TRIAL],
        env=environment | {"MUJOCO_GL": backend},
        capture_output=True,
        check=False,
    )
    return trial.returncode == 0


def choose_backend() -> str:
    """Choose what MuJoCo draws with; call it before MuJoCo is imported, which looks at MUJOCO_GL only then.

    A backend that the user has set stays; else it is the first of `BACKENDS` that works. Elsewhere than on
    Linux MuJoCo draws with what the system has.

    Returns:
        Why nothing can be drawn, in one sentence; empty if all is well.
    """
    if sys.platform != "linux":
        return ""
    if "mujoco" in sys.modules:
        loaded = sys.modules["mujoco"].GLContext.__module__.rpartition(".")[2]
        if works(loaded):
            return ""
        return (
            f"{_CANNOT}MuJoCo was imported with {loaded}, which does not work here: set MUJOCO_GL=egl before"
        )
    chosen = os.environ.get("MUJOCO_GL", "").strip().lower()
    for backend in [chosen] if chosen else BACKENDS:
        if works(backend):
            os.environ["MUJOCO_GL"] = backend
            return ""
    what = f"MUJOCO_GL={chosen} does not work" if chosen else "neither EGL nor OSMesa works"
    unset = "unset it, or " if chosen and chosen not in BACKENDS else ""
    packages = BACKENDS.get(chosen) or " ".join(BACKENDS.values())
    return f"{_CANNOT}{what} here: {unset}apt-get install {packages} (Debian and Ubuntu)"


_CANNOT = "pictures cannot be drawn, "


def load_mujoco() -> Any:
    """The module `mujoco`, imported where it is needed, and untyped: its binary parts declare nothing.

    Raises:
        ValueError: if MUJOCO_GL is set to something that MuJoCo does not know.
    """
    try:
        import mujoco
    except RuntimeError as error:
        if not names_no_backend(error):
            raise
        raise ValueError(misnamed()) from error
    return mujoco


def names_no_backend(error: RuntimeError) -> bool:
    """Whether MuJoCo refused to be imported because of the value of MUJOCO_GL."""
    return "MUJOCO_GL" in str(error)


def misnamed() -> str:
    """What is wrong with MUJOCO_GL then."""
    known = " or ".join(map(repr, BACKENDS))
    return f"MUJOCO_GL: must be {known}, or not set, got {os.environ.get('MUJOCO_GL')!r}"


def set_quality(model: Any, quality: Quality) -> None:
    """Change what of a MuJoCo model costs time to draw, before its canvas is made.

    `full` changes nothing, `no_shadows` leaves out shadows, and `fast` also draws one sample per pixel into a
    buffer no larger than the picture.
    """
    if quality == "full":
        return
    model.light_castshadow[:] = 0
    if quality == "fast":
        model.vis.quality.offsamples = 0
        model.vis.global_.offwidth = model.vis.global_.offheight = SIZE


class Canvas:
    """Draws one model with a graphics context of its own.

    Contexts are switched before each picture, so that several environments can live side by side.
    """

    def __init__(self, model: Any, camera: str) -> None:
        """Make a context for `model`, seen through its camera of this name.

        Raises:
            ValueError: if nothing can be drawn here; the message says what to install.
        """
        problem = choose_backend()
        if problem:
            raise ValueError(problem)
        mujoco = load_mujoco()
        self.model = model
        self.scene = mujoco.MjvScene(model, maxgeom=2000)
        self._option = mujoco.MjvOption()
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._camera.fixedcamid = model.camera(camera).id
        self._rect = mujoco.MjrRect(0, 0, SIZE, SIZE)
        self._pixels = np.empty((SIZE, SIZE, 3), np.uint8)
        self._gl: Any = mujoco.GLContext(SIZE, SIZE)
        self._gl.make_current()
        self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        _close_at_exit(self)

    def draw(self, data: Any, extra: Iterable[Ball] = ()) -> npt.NDArray[np.uint8]:
        """The picture of a state, [3, 84, 84], with its rows in the order of the buffer, lowest row first.

        A camera that hangs upside down thus gives an upright picture. `extra` is drawn into the scene, and
        into no model.
        """
        mujoco = load_mujoco()
        self._gl.make_current()
        mujoco.mjv_updateScene(
            self.model, data, self._option, None, self._camera, mujoco.mjtCatBit.mjCAT_ALL.value, self.scene
        )
        for ball in extra:
            self._add(ball)
        mujoco.mjr_render(self._rect, self.scene, self._context)
        mujoco.mjr_readPixels(self._pixels, None, self._rect, self._context)
        return self._pixels.transpose(2, 0, 1).copy()

    def _add(self, ball: Ball) -> None:
        mujoco = load_mujoco()
        centre, radius, rgb = ball
        mujoco.mjv_initGeom(
            self.scene.geoms[self.scene.ngeom],
            mujoco.mjtGeom.mjGEOM_SPHERE.value,
            np.full(3, radius),
            np.asarray(centre, dtype=np.float64),
            np.eye(3).reshape(-1),
            np.array([*rgb, 1.0], dtype=np.float32),
        )
        self.scene.ngeom += 1

    def upload(self, textures: Sequence[int]) -> None:
        """Hand textures of the model that were rewritten to the graphics card."""
        mujoco = load_mujoco()
        self._gl.make_current()
        for texture in textures:
            mujoco.mjr_uploadTexture(self.model, self._context, texture)

    def close(self) -> None:
        """Free the context; nothing can be drawn any more."""
        if self._gl is None:
            return
        self._gl.make_current()  # or the context's objects would be looked for, and freed, in another one
        self._context.free()
        self._gl.free()
        self._gl = None
        _OPEN.discard(self)


Ball = tuple[npt.ArrayLike, float, Sequence[float]]
"""Something to draw that the model does not contain: centre, radius, red-green-blue."""

_OPEN: set[Canvas] = set()
"""Kept until they are closed: one that was collected would be freed in whichever context drew last."""


def _close_at_exit(canvas: Canvas) -> None:
    """EGL complains about contexts that are freed after its own end; what is registered last runs first."""
    if not _OPEN:
        atexit.unregister(_close_all)
        atexit.register(_close_all)
    _OPEN.add(canvas)


def _close_all() -> None:
    for canvas in tuple(_OPEN):
        canvas.close()
