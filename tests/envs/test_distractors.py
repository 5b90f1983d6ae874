"""Distractors change what is seen, and nothing of what happens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from teb.envs.distractors import KINDS, PATTERN_SIZE, WALK, Distractors, pattern
from teb.envs.metaworld import CAMERA, MetaWorld, MetaWorldConfig, MetaWorldPixels
from teb.envs.rendering import Canvas, load_mujoco, set_quality

TASK = "stick-pull"
Frames = npt.NDArray[np.uint8]

LOOKS = (
    *("light_diffuse", "light_dir", "light_pos", "cam_pos", "cam_quat", "cam_fovy"),
    *("mat_rgba", "geom_rgba", "tex_data", "site_rgba"),
)


class Stage:
    """One task and one canvas; distractors come and go, and the model gets its look back."""

    def __init__(self) -> None:
        self.env = MetaWorld(TASK)
        self.model, self.data = self.env.package.model, self.env.package.data
        set_quality(self.model, "fast")
        self.canvas = Canvas(self.model, CAMERA)
        self.look = {name: getattr(self.model, name).copy() for name in LOOKS}
        self.ambient = self.model.vis.headlight.ambient.copy()

    def restore(self) -> None:
        for name, value in self.look.items():
            getattr(self.model, name)[:] = value
        self.model.vis.headlight.ambient[:] = self.ambient
        self.canvas.upload(range(self.model.ntex))

    def film(
        self,
        *kinds: str,
        scale: float = 0.3,
        dynamic: bool = False,
        seed: int = 0,
        episode: int = 1,
        steps: int = 4,
    ) -> tuple[Frames, list[Any]]:
        """The pictures of an episode, and all physics of it."""
        self.restore()
        distractors = Distractors(self.model, CAMERA, kinds, scale, dynamic=dynamic, seed=seed)
        rng = np.random.default_rng(0)
        self.env.reset(seed=episode)
        distractors.reset(self.env.episode_seed)
        frames, physics = [distractors.draw(self.canvas, self.data)], [self.physics()]
        for _ in range(steps):
            self.env.step(rng.uniform(-1.0, 1.0, 4))
            distractors.advance()
            frames.append(distractors.draw(self.canvas, self.data))
            physics.append(self.physics())
        return np.stack(frames), physics

    def physics(self) -> list[Any]:
        names = ("qpos", "qvel", "act", "mocap_pos", "site_xpos", "xpos", "sensordata", "qacc_warmstart")
        return [getattr(self.data, name).tolist() for name in names]


@pytest.fixture(scope="module")
def shared() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.canvas.close()


@pytest.fixture
def stage(shared: Stage) -> Iterator[Stage]:
    yield shared
    shared.restore()


@pytest.fixture(scope="module")
def plain(shared: Stage) -> tuple[Frames, list[Any]]:
    """The episode without distractors."""
    return shared.film()


drawn = pytest.mark.rendering


@drawn
def test_off_means_the_plain_picture_bit_for_bit(stage: Stage, plain: tuple[Frames, list[Any]]) -> None:
    stage.env.reset(seed=1)
    np.testing.assert_array_equal(stage.canvas.draw(stage.data), plain[0][0])
    for name, value in stage.look.items():
        np.testing.assert_array_equal(getattr(stage.model, name), value)


@drawn
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_physics_stay_and_pixels_change(
    kind: str, dynamic: bool, stage: Stage, plain: tuple[Frames, list[Any]]
) -> None:
    frames, physics = stage.film(kind, dynamic=dynamic)
    assert physics == plain[1]
    changed = (frames != plain[0]).any(axis=1).mean(axis=(1, 2))
    assert (changed > (0.002 if kind == "clutter" else 0.05)).all()


@drawn
@pytest.mark.parametrize("kind", ["light", "camera"])
def test_edits_show_at_once(kind: str, stage: Stage) -> None:
    frames, _ = stage.film(kind, dynamic=True, steps=1)
    load_mujoco().mj_forward(stage.model, stage.data)
    np.testing.assert_array_equal(stage.canvas.draw(stage.data), frames[-1])


@drawn
@pytest.mark.parametrize("kind", KINDS)
def test_the_seeds_decide_the_pictures(kind: str, stage: Stage) -> None:
    frames = [stage.film(kind, dynamic=True, steps=3)[0] for _ in range(2)]
    np.testing.assert_array_equal(frames[0], frames[1])
    other_seed = stage.film(kind, dynamic=True, seed=1, steps=3)[0]
    assert all((one != another).any() for one, another in zip(frames[0], other_seed, strict=True))


@drawn
def test_episodes_are_distracted_differently(stage: Stage) -> None:
    shown: list[npt.NDArray[np.float64]] = []
    for episode in (1, 2):
        stage.film("light", "colour", "camera", episode=episode, steps=0)
        shown.append(np.concatenate([getattr(stage.model, name).ravel() for name in LOOKS[:7]]))
    assert (shown[0] != shown[1]).sum() > 30


@drawn
@pytest.mark.parametrize("kind", KINDS)
def test_static_ones_stay_and_dynamic_ones_walk(kind: str, stage: Stage) -> None:
    """Without actions, so that nothing else moves: the state of the reset is drawn again and again."""
    for dynamic in (False, True):
        distractors = Distractors(stage.model, CAMERA, [kind], 0.3, dynamic=dynamic, seed=0)
        stage.env.reset(seed=1)
        distractors.reset(0)
        frames = [distractors.draw(stage.canvas, stage.data)]
        for _ in range(12):
            distractors.advance()
            frames.append(distractors.draw(stage.canvas, stage.data))
        assert (frames[-1] != frames[0]).any() == dynamic
        stage.restore()


@drawn
def test_a_kind_is_the_same_beside_others_and_edits_never_add_up(stage: Stage) -> None:
    stage.film("camera")
    alone = stage.model.cam_pos.copy()
    assert (alone != stage.look["cam_pos"]).any()
    stage.restore()
    distractors = Distractors(stage.model, CAMERA, KINDS, 0.3, dynamic=False, seed=0)
    for episode in (5, 6, 1):
        stage.env.reset(seed=episode)
        distractors.reset(stage.env.episode_seed)
        distractors.draw(stage.canvas, stage.data)
    np.testing.assert_array_equal(stage.model.cam_pos, alone)


@drawn
@pytest.mark.parametrize("scale", [0.1, 0.3])
def test_the_camera_stays_within_its_limits(scale: float, stage: Stage) -> None:
    mujoco, number = load_mujoco(), stage.model.camera(CAMERA).id
    position, turned = (stage.look[name][number] for name in ("cam_pos", "cam_quat"))
    distractors = Distractors(stage.model, CAMERA, ["camera"], scale, dynamic=False, seed=0)
    shifts, turns, zooms = [], [], []
    for episode in range(60):
        distractors.reset(episode)
        distractors.draw(stage.canvas, stage.data)
        between = np.empty(3)
        mujoco.mju_subQuat(between, stage.model.cam_quat[number], turned)
        shifts.append(np.linalg.norm(stage.model.cam_pos[number] - position))
        turns.append(np.rad2deg(np.linalg.norm(between)))
        zooms.append(abs(stage.model.cam_fovy[number] - stage.look["cam_fovy"][number]))
    share = scale / 0.3
    for seen, limit in ((shifts, 0.05), (turns, 3.0), (zooms, 3.0)):
        assert 0.8 * limit * share < max(seen) <= limit * share + 1e-6
    others = np.arange(stage.model.ncam) != number
    np.testing.assert_array_equal(stage.model.cam_pos[others], stage.look["cam_pos"][others])


@drawn
def test_goals_and_what_a_task_moves_keep_their_colours(stage: Stage) -> None:
    stage.film("colour")
    model = stage.model
    np.testing.assert_array_equal(model.site_rgba, stage.look["site_rgba"])
    roots = np.array([model.body(root).name for root in model.body_rootid])[model.geom_bodyid]
    moved = np.isin(roots, ("stick", "object"))
    assert moved.sum() > 5
    np.testing.assert_array_equal(model.geom_rgba[moved], stage.look["geom_rgba"][moved])
    worn = np.unique(model.geom_matid[moved])
    worn = worn[worn >= 0]
    assert len(worn) and (model.mat_rgba != stage.look["mat_rgba"]).any()
    np.testing.assert_array_equal(model.mat_rgba[worn], stage.look["mat_rgba"][worn])
    np.testing.assert_array_equal(
        model.mat_rgba[:, 3], stage.look["mat_rgba"][:, 3]
    )  # what is clear stays so


@drawn
def test_only_the_named_textures_change(stage: Stage) -> None:
    names = [stage.model.texture(number).name for number in range(stage.model.ntex)]
    edges = [*stage.model.tex_adr.tolist(), len(stage.look["tex_data"])]
    for kind, expected in (("background", {""}), ("texture", {"T_table", "T_floor", "T_wallmetal"})):
        stage.film(kind, steps=0)
        differs = np.split(stage.model.tex_data != stage.look["tex_data"], edges[1:-1])
        shares = dict(zip(names, [of_one.mean() for of_one in differs], strict=True))
        assert {name for name, share in shares.items() if share > 0.5} == expected
        assert {name for name, share in shares.items() if share > 0.0} == expected


@drawn
def test_a_larger_scale_changes_more(stage: Stage, plain: tuple[Frames, list[Any]]) -> None:
    for kind in ("light", "colour", "background", "texture"):
        changes = []
        for scale in (0.1, 0.2, 0.3):
            frame = stage.film(kind, scale=scale, steps=0)[0][0].astype(int)
            changes.append(np.abs(frame - plain[0][0]).mean())
        assert changes[0] < changes[1] < changes[2], kind


def test_a_pattern_is_a_picture_that_follows_its_numbers() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        at = rng.uniform(-1.0, 1.0, PATTERN_SIZE)
        drawn_ = pattern(at, 40, 24)
        assert drawn_.shape == (40, 24, 3) and drawn_.min() >= 0.0 and drawn_.max() <= 1.0
        step = (WALK * rng.standard_normal(PATTERN_SIZE)).clip(-1 - at, 1 - at)
        assert 0.0 < np.abs(pattern(at + step, 40, 24) - drawn_).mean() < 0.2
    flat = rng.uniform(-1.0, 1.0, PATTERN_SIZE)
    flat[3:6], flat[6:9] = -1.0, 1.0  # from black to white
    assert np.ptp(pattern(flat, 40, 24)) > 0.3


@drawn
def test_the_options_of_the_family_reach_the_pictures() -> None:
    assert MetaWorldConfig().distractors == ()
    config = MetaWorldConfig(render_quality="fast", distract_camera=True, distract_clutter=True)
    assert config.distractors == ("camera", "clutter")
    films: list[npt.NDArray[np.uint8]] = []
    easy = MetaWorldConfig(render_quality="fast", distract_light=True)
    for config in (replace(easy, distract_light=False), easy, replace(easy, distract_scale=0.3)):
        env = MetaWorldPixels(MetaWorld("reach", config))
        films.append(np.stack([env.reset(seed=0)[0], env.step(np.ones(4))[0]]))
        env.close()
    assert (films[0] != films[1]).any() and (films[1] != films[2]).any()
