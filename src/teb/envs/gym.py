"""Any Gymnasium environment with a vector or a picture to observe and bounded continuous actions, as `gym/<id>`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from teb.checks import positive
from teb.envs.naming import did_you_mean
from teb.envs.nometer import NoMeter
from teb.envs.pixels import Frames, is_image
from teb.envs.protocol import Task
from teb.envs.rendering import misnamed, names_no_backend

_SUPPORTED = "supported are 1-D Box observations and pictures of bytes, with finite 1-D Box actions"


@dataclass(frozen=True)
class GymConfig:
    """Options of the Gymnasium family."""

    max_episode_steps: int | None = None
    """Environment steps until an episode is truncated; None keeps the registered limit (Gymnasium)."""
    frame_stack: int = 3
    """Frames that make an observation where pictures are observed (DrQ-v2; paper table 3)."""

    def __post_init__(self) -> None:
        """Refuse a limit that no episode could have, and empty observations."""
        positive("frame_stack", self.frame_stack)
        if self.max_episode_steps is not None and self.max_episode_steps < 1:
            raise ValueError(f"max_episode_steps: must be at least 1 or none, got {self.max_episode_steps}")


class UnitBox(gym.Wrapper[np.ndarray, np.ndarray, np.ndarray, np.ndarray], gym.utils.RecordConstructorArgs):
    """Actions in [-1, 1]^A, rescaled to the bounds of the wrapped environment; vectors observed as float32."""

    def __init__(self, env: gym.Env[np.ndarray, np.ndarray]) -> None:
        """Wrap an environment that observes a vector or a picture and takes actions within finite bounds."""
        gym.utils.RecordConstructorArgs.__init__(self)  # so that env.spec can build it again
        gym.Wrapper.__init__(self, env)
        seen, acted = env.observation_space, env.action_space
        assert isinstance(seen, gym.spaces.Box) and isinstance(acted, gym.spaces.Box)
        self._dtype: Any = np.uint8 if is_image(seen) else np.float32
        self.observation_space = gym.spaces.Box(
            seen.low.astype(self._dtype), seen.high.astype(self._dtype), dtype=self._dtype
        )
        self.action_space = gym.spaces.Box(-1.0, 1.0, acted.shape, np.float32)
        self._low, self._high = acted.low.astype(np.float64), acted.high.astype(np.float64)
        self._action_dtype = acted.dtype

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode."""
        obs, info = self.env.reset(seed=seed, options=options)
        return np.asarray(obs, dtype=self._dtype), info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Take one step with an action in [-1, 1]^A; values beyond are clipped."""
        unit = np.asarray(action, dtype=np.float64).clip(-1.0, 1.0)
        if unit.shape != self.action_space.shape:
            raise ValueError(f"action: must have shape {self.action_space.shape}, got {unit.shape}")
        if np.isnan(unit).any():
            raise ValueError(f"action: must not be NaN, got {unit.tolist()}")
        scaled = 0.5 * ((1.0 - unit) * self._low + (1.0 + unit) * self._high)
        scaled = scaled.clip(self._low, self._high)  # against rounding beyond the bounds
        obs, reward, terminated, truncated, info = self.env.step(scaled.astype(self._action_dtype))
        return np.asarray(obs, dtype=self._dtype), float(reward), bool(terminated), bool(truncated), info


def make_gym_task(name: str, config: GymConfig) -> Task:
    """Build `gym/<name>`, where the name may be `module:Id-v0` to import the module that registers it first.

    Raises:
        ValueError: if there is no such environment, its simulator is missing, or its spaces do not fit.
    """
    env = _build(name, config)
    problem = _unfit(env)
    if problem:
        env.close()
        raise ValueError(f"gym/{name} has {problem}; {_SUPPORTED}")
    if is_image(env.observation_space):
        return Task(UnitBox(Frames(env)), NoMeter(), "episode_return", config.frame_stack)
    return Task(UnitBox(env), NoMeter(), "episode_return")


def observed_by_gym(name: str) -> Literal["states", "pixels"]:
    """Whether `gym/<name>` shows pictures; it is built for that and closed again."""
    env = _build(name, GymConfig())
    pictures = is_image(env.observation_space)
    env.close()
    return "pixels" if pictures else "states"


def _build(name: str, config: GymConfig) -> gym.Env[Any, Any]:
    try:
        return gym.make(name, max_episode_steps=config.max_episode_steps, disable_env_checker=True)
    except gym.error.UnregisteredEnv:
        guess = did_you_mean(name, gym.registry, prefix="gym/")
        raise ValueError(
            f"gym/{name}: unknown to Gymnasium{guess} gymnasium.pprint_registry() lists all"
        ) from None
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        raise ValueError(
            f"gym/{name} needs something that is not installed: {_first_sentence(error)}"
        ) from error
    except gym.error.Error as error:
        raise ValueError(f"gym/{name} cannot be built: {_first_sentence(error)}") from error
    except RuntimeError as error:
        if not names_no_backend(error):
            raise
        raise ValueError(misnamed()) from error


def _first_sentence(error: Exception) -> str:
    return str(error).split("\n")[0].split(". ")[0].rstrip(".")


def _unfit(env: gym.Env[Any, Any]) -> str:
    """What about the spaces does not fit, in words; empty if they do."""
    seen, acted = env.observation_space, env.action_space
    if not isinstance(seen, gym.spaces.Box):
        return f"{type(seen).__name__} observations"
    if len(seen.shape) != 1 and not is_image(seen):
        return f"Box observations of shape {seen.shape}"
    if not isinstance(acted, gym.spaces.Box):
        return f"{type(acted).__name__} actions"
    if len(acted.shape) != 1:
        return f"Box actions of shape {acted.shape}"
    if acted.dtype.kind != "f":
        return f"Box actions of type {acted.dtype}"
    if not (np.isfinite(acted.low).all() and np.isfinite(acted.high).all()):
        return "Box actions without finite bounds"
    return ""
