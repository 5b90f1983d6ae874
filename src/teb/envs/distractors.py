"""Visual distractors: light, camera, colours and textures that change while the task stays the same.

They edit how the compiled MuJoCo model looks, nothing that moves. Each is a function of a vector in [-1, 1]^k,
always applied to the original model, so that edits never add up. The vector is drawn when an episode begins,
from a generator of the distractors' own, and either stays or walks at random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from teb.envs.rendering import Ball, Canvas, load_mujoco

Vector = npt.NDArray[np.float64]

HARD = 0.3
"""The largest scale: the level that the Distracting Control Suite calls hard (Stone et al. 2021)."""
WALK = 0.03
"""Standard deviation of a step of the walk, as a share of its limit (colours in Stone et al. 2021)."""
REFRESH = 3
"""Pictures between two uploads of textures that walk; uploading all of them costs more than drawing."""

CAMERA_SHIFT, CAMERA_TURN, CAMERA_ZOOM = 0.05, np.deg2rad(3.0), 3.0
"""The most that the camera moves (m), turns (rad) and zooms (degrees), so that goals of few pixels stay in view."""

BALLS = 8
"""Balls of clutter at the largest scale."""
BALLS_LOW, BALLS_HIGH = np.array([-0.6, 0.35, 0.02]), np.array([0.45, 0.95, 0.3])
"""Corners of the space that the balls are in: table and wall behind it, away from the camera."""

FURNITURE = ("T_table", "T_floor", "T_wallmetal")
"""Textures of table, floor and wall."""
STEADY = ("world", "tablelink", "RetainingWall", "base")
"""Bodies of the room, and the one that the robot hangs from: all that no task moves."""

CELLS = 6
"""Cells per side of the smooth noise in patterns."""


class Element(NamedTuple):
    """One kind of distractor."""

    size: int
    """How many numbers it is made of."""
    show: Callable[[Vector], Sequence[Ball]]
    """Change the look of the model to what a vector in [-1, 1]^size says; returns what to draw beside it."""
    textures: tuple[int, ...] = ()
    """Textures of the model that `show` rewrites."""


class Distractors:
    """The chosen distractors of one model."""

    def __init__(
        self, model: Any, camera: str, kinds: Iterable[str], scale: float, *, dynamic: bool, seed: int
    ) -> None:
        """Distract views of `model` through `camera` by `kinds`, keys of `KINDS`, at a scale up to 0.3."""
        self._model, self._dynamic, self._seed = model, dynamic, seed
        self._elements = {kind: KINDS[kind](model, camera, scale) for kind in kinds}
        self._beside: dict[str, Sequence[Ball]] = {}
        self._rngs: dict[str, np.random.Generator] = {}
        self._at: dict[str, Vector] = {}
        self._pictures = 0

    def reset(self, episode_seed: int) -> None:
        """Draw new distractors; each kind from a generator of its own, so that it is the same beside others."""
        self._pictures = 0
        for number, kind in enumerate(KINDS):
            if kind in self._elements:
                self._rngs[kind] = np.random.default_rng((self._seed, episode_seed, number))
                self._at[kind] = self._rngs[kind].uniform(-1.0, 1.0, self._elements[kind].size)

    def advance(self) -> None:
        """Let a step pass: dynamic distractors walk on."""
        if self._dynamic:
            for kind, at in self._at.items():
                step = WALK * self._rngs[kind].standard_normal(at.shape)
                self._at[kind] = np.clip(at + step, -1.0, 1.0)

    def draw(self, canvas: Canvas, data: Any) -> npt.NDArray[np.uint8]:
        """The distracted picture of a state, as `Canvas.draw` gives it; call it once per step."""
        mujoco = load_mujoco()
        for kind, element in self._elements.items():
            if self._pictures == 0 or (
                self._dynamic and (not element.textures or self._pictures % REFRESH == 0)
            ):
                self._beside[kind] = element.show(self._at[kind])
                canvas.upload(element.textures)
        self._pictures += 1
        if self._elements:
            mujoco.mj_camlight(
                self._model, data
            )  # or lights and camera would stay until the next physics step
        return canvas.draw(data, [ball for balls in self._beside.values() for ball in balls])


def _light(model: Any, camera: str, scale: float) -> Element:
    """Colours by up to `scale`, directions by a vector of up to `scale` per axis, the ambient light as well."""
    lights = model.nlight
    diffuse, direction, position = (
        field.copy() for field in (model.light_diffuse, model.light_dir, model.light_pos)
    )
    ambient = model.vis.headlight.ambient.copy()

    def show(at: Vector) -> Sequence[Ball]:
        shift = scale * at[3:].reshape(3, lights, 3)
        model.vis.headlight.ambient[:] = np.clip(ambient + scale * at[:3], 0.0, 1.0)
        model.light_diffuse[:] = np.clip(diffuse + shift[0], 0.0, 1.0)
        turned = direction + shift[1]
        model.light_dir[:] = turned / np.linalg.norm(turned, axis=1, keepdims=True)
        model.light_pos[:] = position + shift[2]
        return ()

    return Element(3 + 9 * lights, show)


def _camera(model: Any, camera: str, scale: float) -> Element:
    """The camera moves, turns and zooms by up to its limits, in proportion to `scale`."""
    mujoco = load_mujoco()
    number, share = model.camera(camera).id, scale / HARD
    position, turned = model.cam_pos[number].copy(), model.cam_quat[number].copy()
    angle = float(model.cam_fovy[number])

    def show(at: Vector) -> Sequence[Ball]:
        model.cam_pos[number] = position + CAMERA_SHIFT * share * _in_ball(at[:3])
        turn = CAMERA_TURN * share * _in_ball(at[3:6])
        by, result = np.empty(4), np.empty(4)
        mujoco.mju_axisAngle2Quat(by, turn / max(float(np.linalg.norm(turn)), 1e-12), np.linalg.norm(turn))
        mujoco.mju_mulQuat(result, turned, by)
        model.cam_quat[number] = result
        model.cam_fovy[number] = angle + CAMERA_ZOOM * share * at[6]
        return ()

    return Element(7, show)


def _in_ball(at: Vector) -> Vector:
    """A vector of the cube [-1, 1]^3, shortened to length 1 where it is longer."""
    return at / max(1.0, float(np.linalg.norm(at)))


def _colour(model: Any, camera: str, scale: float) -> Element:
    """Colours of room and robot by up to `scale`; what a task moves keeps its own."""
    steady = _steady_geoms(model)
    # A material multiplies its texture. One that a task's object shares with the room stays as it is.
    worn = model.geom_matid
    materials = np.setdiff1d(worn[steady], worn[~steady])
    materials = materials[materials >= 0]
    geoms = np.flatnonzero(steady & (worn < 0))
    of_materials, of_geoms = model.mat_rgba[materials, :3], model.geom_rgba[geoms, :3]

    def show(at: Vector) -> Sequence[Ball]:
        shift = scale * at.reshape(-1, 3)
        model.mat_rgba[materials, :3] = np.clip(of_materials + shift[: len(materials)], 0.0, 1.0)
        model.geom_rgba[geoms, :3] = np.clip(of_geoms + shift[len(materials) :], 0.0, 1.0)
        return ()

    return Element(3 * (len(materials) + len(geoms)), show)


def _steady_geoms(model: Any) -> npt.NDArray[np.bool_]:
    """Which geoms belong to the room or to the robot."""
    roots = [model.body(root).name for root in model.body_rootid]
    return np.isin(roots, STEADY)[model.geom_bodyid]


def _background(model: Any, camera: str, scale: float) -> Element:
    """A pattern on the sky box."""
    mujoco = load_mujoco()
    return _patterned(model, np.flatnonzero(model.tex_type == mujoco.mjtTexture.mjTEXTURE_SKYBOX), scale)


def _texture(model: Any, camera: str, scale: float) -> Element:
    """Patterns on table, floor and wall, as far as a task has them."""
    names = [model.texture(texture).name for texture in range(model.ntex)]
    return _patterned(model, [names.index(name) for name in FURNITURE if name in names], scale)


def _clutter(model: Any, camera: str, scale: float) -> Element:
    """Balls around the table, their number in proportion to `scale`."""
    count = max(1, round(BALLS * scale / HARD))

    def show(at: Vector) -> Sequence[Ball]:
        share = (1.0 + at.reshape(count, 7)) / 2.0
        centres = BALLS_LOW + share[:, :3] * (BALLS_HIGH - BALLS_LOW)
        radii = 0.015 + 0.02 * share[:, 3]
        return list(zip(centres, radii.tolist(), share[:, 4:].tolist(), strict=True))

    return Element(7 * count, show)


def _patterned(model: Any, textures: Sequence[int] | npt.NDArray[np.int64], scale: float) -> Element:
    """Patterns in the place of textures, mixed with the originals below the largest scale."""
    share = scale / HARD
    views = [_pixels(model, int(texture)) for texture in textures]
    originals = [view.copy() for view in views]

    def show(at: Vector) -> Sequence[Ball]:
        for view, original, of_one in zip(views, originals, at.reshape(len(views), -1), strict=True):
            drawn = 255.0 * pattern(of_one, *view.shape[:2])
            view[:] = np.rint((1.0 - share) * original + share * drawn).astype(np.uint8)
        return ()

    return Element(PATTERN_SIZE * len(views), show, tuple(int(texture) for texture in textures))


def _pixels(model: Any, texture: int) -> npt.NDArray[np.uint8]:
    """A texture of the model as a view [H, W, 3]."""
    shape = model.tex_height[texture], model.tex_width[texture], model.tex_nchannel[texture]
    start = model.tex_adr[texture]
    return model.tex_data[start : start + np.prod(shape)].reshape(shape)


PATTERN_SIZE = 3 + 6 + 4 + CELLS**2
"""Numbers that a pattern is made of: weights, two colours, two frequencies and phases, noise."""


def pattern(at: Vector, height: int, width: int) -> npt.NDArray[np.floating[Any]]:
    """A picture [height, width, 3] in [0, 1]: a mix of waves, blocks and smooth noise between two colours.

    It changes smoothly, but for the edges of blocks, with the vector in [-1, 1]^PATTERN_SIZE that it is made of.
    """
    share = ((1.0 + at) / 2.0).astype(np.float32)
    weights, colours = share[:3], share[3:9].reshape(2, 3)
    (fx, fy), (px, py) = 1.0 + 7.0 * share[9:11], np.float32(2.0 * np.pi) * share[11:13]
    x = 2.0 * np.pi * fx * np.linspace(0.0, 1.0, width, dtype=np.float32) + px
    y = 2.0 * np.pi * fy * np.linspace(0.0, 1.0, height, dtype=np.float32) + py
    # sin(x + y) from sines of one dimension: the picture is then one matrix product.
    left = np.stack([np.sin(y), np.cos(y), np.sign(np.sin(y)), np.ones_like(y)], axis=1)
    right = np.stack([np.cos(x), np.sin(x), np.sign(np.sin(x)), np.ones_like(x)])
    mixed = np.array([weights[0], weights[0], weights[1], weights[0] + weights[1]]) / np.float32(2.0)
    noise = _between(height, CELLS) @ share[13:].reshape(CELLS, CELLS) @ _between(width, CELLS).T
    field = ((left * mixed) @ right + weights[2] * noise) / max(float(weights.sum()), 1e-6)
    return colours[0] + field[..., None].clip(0.0, 1.0) * (colours[1] - colours[0])


def _between(pixels: int, cells: int) -> npt.NDArray[np.floating[Any]]:
    """Weights [pixels, cells] of linear interpolation between cells."""
    at = np.linspace(0.0, cells - 1.0, pixels, dtype=np.float32)[:, None]
    return np.clip(1.0 - np.abs(at - np.arange(cells, dtype=np.float32)), 0.0, 1.0)


KINDS: dict[str, Callable[[Any, str, float], Element]] = {
    "light": _light,
    "camera": _camera,
    "colour": _colour,
    "background": _background,
    "texture": _texture,
    "clutter": _clutter,
}
