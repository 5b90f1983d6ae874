"""Uniform random actions: the row that stands in every coverage table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from teb.agents.protocol import Batch, Metrics, Runtime, Sampling, Shapes, Skills, State
from teb.seeding import numpy_generator


@dataclass(frozen=True)
class UniformConfig:
    """Nothing to choose."""


class UniformAgent:
    """Draws every action uniformly from [-1, 1]^A and learns nothing."""

    sampling: Sampling | None = None
    skills = Skills()

    def __init__(self, shapes: Shapes, runtime: Runtime) -> None:
        self.action_dim = shapes.action
        self.rng = numpy_generator(runtime.seed, "acting")
        self.evaluating = numpy_generator(runtime.seed, "acting without exploring")

    def act(self, obs: np.ndarray, skill: np.ndarray, env_steps: int, *, explore: bool) -> np.ndarray:
        """A fresh draw; there is no other policy to evaluate, but evaluations leave training's numbers alone."""
        rng = self.rng if explore else self.evaluating
        return rng.uniform(-1.0, 1.0, self.action_dim).astype(np.float32)

    def update(self, batch: Batch, env_steps: int) -> Metrics:
        """Never asked for, since nothing is sampled."""
        raise NotImplementedError("the uniform agent does not learn")

    def state(self) -> State:
        """The generators."""
        return {"rng": self.rng.bit_generator.state, "evaluating": self.evaluating.bit_generator.state}

    def load(self, state: State) -> None:
        """Take up the generators."""
        self.rng.bit_generator.state = state["rng"]
        if "evaluating" in state:  # checkpoints from before there were evaluations lack it
            self.evaluating.bit_generator.state = state["evaluating"]
