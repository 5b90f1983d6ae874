"""Meta-World: a robot arm manipulates objects, seen through a camera, paid by success (Yu et al. 2019).

Meta-World and MuJoCo are imported only when a task is built, so everything else works without them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from importlib.util import find_spec
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from teb.checks import in_range, one_of_the_choices, positive
from teb.envs.distractors import HARD, KINDS, Distractors
from teb.envs.naming import did_you_mean
from teb.envs.pixels import Frame, FrameStack
from teb.envs.protocol import Task
from teb.envs.rendering import SIZE, Canvas, Quality, choose_backend, load_mujoco, set_quality
from teb.envs.success import SuccessMeter

CAMERA = "corner4"
"""The camera of published pixel agents: `corner2` moved to (0.75, 0.075, 0.7). It hangs upside down."""

TASKS = (
    # those of the paper first
    *("pick-out-of-hole", "pick-place", "push-back", "box-close", "stick-pull", "coffee-push"),
    *("assembly", "basketball", "bin-picking", "button-press", "button-press-topdown"),
    *("button-press-topdown-wall", "button-press-wall", "coffee-button", "coffee-pull", "dial-turn"),
    *("disassemble", "door-close", "door-lock", "door-open", "door-unlock", "drawer-close", "drawer-open"),
    *("faucet-close", "faucet-open", "hammer", "hand-insert", "handle-press", "handle-press-side"),
    *("handle-pull", "handle-pull-side", "lever-pull", "peg-insert-side", "peg-unplug-side"),
    *("pick-place-wall", "plate-slide", "plate-slide-back", "plate-slide-back-side", "plate-slide-side"),
    *("push", "push-wall", "reach", "reach-wall", "shelf-place", "soccer", "stick-push", "sweep"),
    *("sweep-into", "window-close", "window-open"),
)
"""All tasks of the package, without the version behind their names."""


@dataclass(frozen=True)
class MetaWorldConfig:
    """Options of the Meta-World family."""

    reward_mode: Literal["sparse", "sparse_cost", "dense_scaled", "dense"] = "sparse"
    """1 for success; the same minus 1; the package's reward / 10; its sum over the repeats (paper: sparse)."""
    horizon: int = 500
    """Simulator steps of an episode, always ended by truncation; the paper's table says 1000 (DrM)."""
    action_repeat: int = 2
    """Simulator steps per action (paper table 3)."""
    frame_stack: int = 3
    """Frames that make an observation (paper table 3)."""
    render_quality: Quality = "full"
    """full as the package draws it; no_shadows, fast: less of it, several times as fast on a CPU (ours)."""
    distract_light: bool = False
    """Light of another colour from another direction (ours)."""
    distract_camera: bool = False
    """A camera moved, turned and zoomed a little (ours)."""
    distract_colour: bool = False
    """Room and robot in other colours (ours)."""
    distract_background: bool = False
    """A pattern behind the scene (ours)."""
    distract_texture: bool = False
    """Patterns on table, floor and wall (ours)."""
    distract_clutter: bool = False
    """Balls that take no part in the physics (ours)."""
    distract_scale: float = 0.1
    """How far distractors go: 0.1 is easy, 0.2 medium, 0.3 hard (Distracting Control Suite; ours)."""
    distract_dynamic: bool = False
    """Distractors walk at random within an episode instead of staying (ours)."""
    distract_seed: int = 0
    """Seed of the distractors, apart from that of goals and physics (ours)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        one_of_the_choices(self)
        for name in ("horizon", "action_repeat", "frame_stack", "distract_scale"):
            positive(name, getattr(self, name))
        in_range("distract_scale", self.distract_scale, 0.0, HARD)
        in_range("distract_seed", self.distract_seed, 0, 2**63)

    @property
    def distractors(self) -> tuple[str, ...]:
        """The kinds of distractors that are on."""
        return tuple(kind for kind in KINDS if getattr(self, f"distract_{kind}"))


class MetaWorld(gym.Env[np.ndarray, np.ndarray]):
    """A task of the package, observed as its 39 numbers, goal included.

    `reset(seed)` alone decides goal, objects and everything that follows from the actions. The package's own
    `reset` ignores its seed and draws one of few goals; here every episode has a goal of its own (DrM).
    Actions repeat; `info["success"]` says whether the task was solved at any step of the episode so far,
    `info["success_now"]` whether it was during this action. An episode ends by truncation alone, and its last
    action repeats only as often as the horizon allows.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(self, task: str, config: MetaWorldConfig | None = None) -> None:
        """Build the task of this name, one of `TASKS`."""
        self.config = config or MetaWorldConfig()
        self.task = task
        self.package: Any = _package_env(task)
        self.package.max_path_length = self.config.horizon
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (39,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.episode_seed = 0
        self._simulator_steps_left = 0
        self._success = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Start an episode; a seed restarts the generator that episodes' seeds are drawn from."""
        super().reset(seed=seed, options=options)
        self.episode_seed = int(self.np_random.integers(2**31))
        self.package.seed(self.episode_seed)
        state, _ = self.package.reset()
        # The package moves goals in the model and leaves the derived data as they were: without this the
        # first picture would show the goal of a draw that was discarded.
        load_mujoco().mj_forward(self.package.model, self.package.data)
        self._simulator_steps_left, self._success = self.config.horizon, False
        return state.astype(np.float32), {}

    def step(
        self, action: npt.ArrayLike
    ) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Repeat an action, clipped to [-1, 1]; refused once the episode is over."""
        if self._simulator_steps_left == 0:
            raise gym.error.ResetNeeded(
                f"metaworld/{self.task}: call reset() before step(); no episode has begun, or its "
                f"{self.config.horizon} simulator steps are over"
            )
        clipped = _checked(action)
        repeats = min(self.config.action_repeat, self._simulator_steps_left)
        outcomes = [self.package.step(clipped) for _ in range(repeats)]
        self._simulator_steps_left -= repeats
        now = any(info["success"] > 0 for *_, info in outcomes)
        self._success = self._success or now
        reward = paid(self.config.reward_mode, [float(dense) for _, dense, *_ in outcomes], now)
        info = {"success": self._success, "success_now": now}
        return outcomes[-1][0].astype(np.float32), reward, False, self._simulator_steps_left == 0, info


def paid(mode: str, dense: list[float], success: bool) -> float:
    """The reward of one action, from the package's rewards of its repeats and whether any of them succeeded."""
    if mode == "dense":
        return sum(dense)
    if mode == "dense_scaled":
        return sum(dense) / len(dense) / 10.0  # the package pays 10 at most
    return float(success) - (mode == "sparse_cost")


def _checked(action: npt.ArrayLike) -> npt.NDArray[np.float32]:
    values = np.asarray(action, dtype=np.float32)
    if values.shape != (4,):
        raise ValueError(f"action: must have shape (4,), got {values.shape}")
    if np.isnan(values).any():
        raise ValueError(f"action: must not be NaN, got {values.tolist()}")
    return values.clip(-1.0, 1.0)


class MetaWorldPixels(gym.Wrapper[np.ndarray, np.ndarray, np.ndarray, np.ndarray]):
    """A task observed as single frames, bytes [3, 84, 84]: upright, with the robot on the right.

    The camera hangs upside down, and the rows of the picture are reversed, which also mirrors it from left to
    right: this is what the networks of published agents saw.
    """

    def __init__(self, env: MetaWorld) -> None:
        """Look at `env` with a canvas of its own."""
        gym.Wrapper.__init__(self, env)
        self._task = env
        config, model = env.config, env.package.model
        self.observation_space = gym.spaces.Box(0, 255, (3, SIZE, SIZE), np.uint8)
        set_quality(model, config.render_quality)
        self._canvas = Canvas(model, CAMERA)
        self._distractors = Distractors(
            model,
            CAMERA,
            config.distractors,
            config.distract_scale,
            dynamic=config.distract_dynamic,
            seed=config.distract_seed,
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Frame, dict[str, Any]]:
        """Start an episode, see `MetaWorld.reset`."""
        _, info = self._task.reset(seed=seed, options=options)
        self._distractors.reset(self._task.episode_seed)
        return self._frame(), info

    def step(self, action: np.ndarray) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        """Take a step, see `MetaWorld.step`."""
        _, reward, terminated, truncated, info = self._task.step(action)
        self._distractors.advance()
        return self._frame(), reward, terminated, truncated, info

    def _frame(self) -> Frame:
        return self._distractors.draw(self._canvas, self._task.package.data)

    def close(self) -> None:
        """Free the canvas."""
        self._canvas.close()
        super().close()


def _package_env(task: str) -> Any:
    """The package's own environment, told to draw a goal from its seed at every reset and to show it."""
    if task not in TASKS:
        raise ValueError(f"task: unknown name {task!r}{did_you_mean(task, TASKS)} known: {', '.join(TASKS)}")
    if find_spec("metaworld") is None or find_spec("mujoco") is None:
        raise ValueError(f'metaworld/{task} needs Meta-World: pip install "teb[metaworld]"')
    choose_backend()  # now or never: states need no pictures, but another environment of the process may
    load_mujoco()
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    env: Any = ALL_V3_ENVIRONMENTS[f"{task}-v3"]()
    env._set_task_called = True
    env._freeze_rand_vec = False
    env.seeded_rand_vec = True
    env._partially_observable = False
    # The cached space belongs to hidden goals, and states are clipped to it.
    del env.sawyer_observation_space
    return env


def make_metaworld_task(task: str, config: MetaWorldConfig) -> Task:
    """A task as single frames, and its success meter."""
    return Task(MetaWorldPixels(MetaWorld(task, config)), SuccessMeter(), "success", config.frame_stack)


def make_stacked(task: str, **options: Any) -> gym.Env[np.ndarray, np.ndarray]:
    """What `gymnasium.make("teb/MetaWorld-<task>-v0", **options)` builds: stacks of frames [9, 84, 84].

    `options` are those of `MetaWorldConfig`.
    """
    known = [field.name for field in fields(MetaWorldConfig)]
    for name in options:
        if name not in known:
            raise ValueError(f"unknown option {name!r}{did_you_mean(name, known)} known: {', '.join(known)}")
    config = MetaWorldConfig(**options)
    return FrameStack(MetaWorldPixels(MetaWorld(task, config)), config.frame_stack)


def gymnasium_id(task: str) -> str:
    """The Gymnasium id of a task: `teb/MetaWorld-box-close-v0`."""
    return f"teb/MetaWorld-{task}-v0"


def register_metaworld() -> None:
    """Make every task known to `gymnasium.make`; a second call changes nothing."""
    for task in TASKS:
        if gymnasium_id(task) not in gym.registry:
            gym.register(
                gymnasium_id(task), entry_point="teb.envs.metaworld:make_stacked", kwargs={"task": task}
            )
