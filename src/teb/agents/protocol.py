"""What the loop asks of an agent, and what an agent asks of an explorer. Nothing here knows an algorithm by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from teb.replay.sample import Sample

Metrics = dict[str, Tensor]
"""Named scalars. They stay tensors on the device until a log row is written, so that nothing waits for them."""

State = dict[str, Any]
"""A nested dictionary of tensors, arrays, numbers and strings: what a checkpoint stores (`teb.run.checkpoint`)."""

Policy = Callable[[Tensor, Tensor, torch.Generator | None], Tensor]
"""The current actor, without gradient: (observations [B, D], skills [B, K], rng) -> actions [B, A].

Without a generator the mean action; with one, a draw with the noise that the losses use.
"""


class Shapes(NamedTuple):
    """The sizes that networks are built from."""

    obs: int
    action: int
    skill: int = 0


class Runtime(NamedTuple):
    """Where and how an agent computes."""

    seed: int
    device: torch.device
    compute: torch.dtype
    """Precision of the large matrix products: float32 or bfloat16."""


class Sampling(NamedTuple):
    """What an agent wants from the replay for one update."""

    batch_size: int
    n_step: int
    """Length of the critic's window."""
    horizon: int
    """How many rewards from the window's start to deliver; at least `n_step`."""
    gamma: float


class Batch(NamedTuple):
    """One sampled batch of windows o_t ... o_{t+n}, on the device of the agent.

    B is the batch size, n the window's length, H the reward horizon (H >= n), D, A, K the observation, action and
    skill widths.
    """

    obs: Tensor
    """o_t, [B, D]."""
    action: Tensor
    """a_t, [B, A]."""
    reward: Tensor
    """sum_{i<n} gamma^i r_{t+i}, cut after a terminal step, [B, 1]."""
    discount: Tensor
    """gamma^n, or 0 where the window ends in a terminal state, [B, 1]."""
    next_obs: Tensor
    """o_{t+n}, [B, D]."""
    rewards: Tensor
    """r_t ... r_{t+H-1}, zero beyond the episode's end, [B, H]."""
    window_obs: Tensor
    """o_t ... o_{t+n}, [B, n+1, D]."""
    window_action: Tensor
    """a_t ... a_{t+n}; the last is NaN where the episode ends with o_{t+n}, [B, n+1, A]."""
    skill: Tensor
    """The skill that chose a_t, [B, K]; K may be 0."""
    first_obs: Tensor
    """The first observation of the run, [1, D]."""

    @property
    def next1_obs(self) -> Tensor:
        """o_{t+1}, [B, D]."""
        return self.window_obs[:, 1]


def to_batch(sample: Sample, first_obs: np.ndarray, device: torch.device) -> Batch:
    """Move a replay sample to `device`; on the CPU no byte is copied."""
    return Batch(
        *(torch.from_numpy(array).to(device, non_blocking=True) for array in (*sample, first_obs[None]))
    )


class Explorer(Protocol):
    """Turns a batch into an intrinsic reward. An `nn.Module`, so that its state is saved without further code."""

    eta: float
    """Weight of the intrinsic reward: r' = r + eta * r_int."""
    n_step: int | None
    """The window length that the explorer insists on; None leaves it to the backbone."""
    horizon: int
    """How many rewards from the start of a window the explorer reads."""
    grad_clip: float
    """Largest norm of the explorer's gradient; 0 for no limit."""

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Adam's parameter groups; an explorer that learns nothing returns an empty list."""
        ...

    def loss(self, batch: Batch, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """The explorer's own loss; only the parameters it declared are stepped on it."""
        ...

    def reward(self, batch: Batch, policy: Policy, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """The intrinsic reward [B, 1] of each window, without gradient, after the explorer's step on this batch."""
        ...

    def after_step(self, batch: Batch, policy: Policy, rng: torch.Generator) -> None:
        """Queues, target copies and running moments, once the whole update is done."""
        ...


class Agent(Protocol):
    """What the loop drives."""

    sampling: Sampling | None
    """What to sample for one update; None for an agent that learns nothing."""
    skill_dim: int

    def act(self, obs: np.ndarray, skill: np.ndarray, env_steps: int, *, explore: bool) -> np.ndarray:
        """Choose an action in [-1, 1]^A."""
        ...

    def update(self, batch: Batch, env_steps: int) -> Metrics:
        """One gradient step of every part."""
        ...

    def state(self) -> State:
        """Everything that the next update depends on."""
        ...

    def load(self, state: State) -> None:
        """Take up a state that `state` gave."""
        ...
