"""What the loop asks of an agent, and what an agent asks of an explorer. Nothing here knows an algorithm by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

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
    """Width of an observation; where pictures are seen, explorers and representations get that of a latent."""
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
    """Windows, those of all batches that the explorer learns from together."""
    n_step: int
    """Length of the critic's window."""
    horizon: int
    """How many rewards from the window's start to deliver; at least `n_step`."""
    gamma: float


class Batch(NamedTuple):
    """One sampled batch of windows o_t ... o_{t+n}, on the device of the agent.

    B is the batch size, n the window's length, H the reward horizon (H >= n), D, A, K the observation, action and
    skill widths. From pixels an observation is a stack of frames, [k * C, H, W] of bytes. What explorers and
    representations are shown then has latents [D] in its place, NaN where they do not read any (`Traits.reads`).
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
    """Move a replay sample to `device`; on the CPU no byte is copied, elsewhere each frame is moved once."""
    named = Sample(*sample)._asdict()
    window = _moved(named.pop("window_obs"), device)
    del named["obs"], named["next_obs"]  # the window holds them
    return Batch(
        obs=window[:, 0],
        next_obs=window[:, -1],
        window_obs=window,
        first_obs=_moved(first_obs[None], device),
        **{name: _moved(array, device) for name, array in named.items()},
    )


def states_batch(
    obs: np.ndarray, action: np.ndarray, skill: np.ndarray, first_obs: np.ndarray, device: torch.device
) -> Batch:
    """States by themselves as a batch: windows of no step, no reward; an action may be NaN where none was taken."""
    zeros, ones = np.zeros((len(obs), 1), np.float32), np.ones((len(obs), 1), np.float32)
    sample = Sample(obs, action, zeros, ones, obs, zeros, obs[:, None], action[:, None], skill)
    return to_batch(sample, first_obs, device)


def _moved(array: np.ndarray, device: torch.device) -> Tensor:
    """The array as a tensor there. Stacks of frames share their memory: what lies below them is moved, once."""
    tensor = torch.from_numpy(array)
    if device.type == "cpu" or tensor.is_contiguous():
        return tensor.to(device, non_blocking=True)
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    below = tensor.as_strided((last + 1,), (1,)).to(device, non_blocking=True)
    return below.as_strided(tensor.shape, tensor.stride())


def parts(batch: Batch, count: int) -> list[Batch]:
    """The batch cut into `count` equal ones; windows are drawn independently, so each is a sample of its own."""
    if count == 1:
        return [batch]
    size = batch.obs.shape[0] // count
    return [
        Batch(*(rows[i * size : (i + 1) * size] for rows in batch[:-1]), first_obs=batch.first_obs)
        for i in range(count)
    ]


def one_step_windows(batch: Batch, gamma: float) -> Batch:
    """The n steps of each window as windows of their own, [B * n, ...], those of one window side by side."""
    n = batch.window_obs.shape[1] - 1
    last = torch.arange(n, device=batch.obs.device) == n - 1
    ended = (batch.discount == 0) & last
    pairs = [torch.stack([rows[:, :-1], rows[:, 1:]], 2).flatten(0, 1)
             for rows in (batch.window_obs, batch.window_action)]  # fmt: skip
    rewards = batch.rewards[:, :n].reshape(-1, 1)
    return Batch(
        obs=pairs[0][:, 0],
        action=pairs[1][:, 0],
        reward=rewards,
        discount=torch.where(ended, 0.0, gamma).view(-1, 1),
        next_obs=pairs[0][:, 1],
        rewards=rewards,
        window_obs=pairs[0],
        window_action=pairs[1],
        skill=batch.skill.repeat_interleave(n, 0),
        first_obs=batch.first_obs,
    )


@dataclass(frozen=True)
class Skills:
    """The skills that a policy is conditioned on, and when a new one is drawn. Width 0: there are none."""

    width: int = 0
    kind: Literal["one-hot", "uniform", "normal"] = "one-hot"
    """One of `width` unit vectors, uniform on [0, 1]^width, or standard normal."""
    period: int | None = 50
    """Environment steps within an episode after which a new one is drawn; None draws at resets alone."""

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """One skill, [width]; without skills nothing is drawn from the generator."""
        if self.width == 0:
            return np.zeros(0, np.float32)
        if self.kind == "one-hot":
            return self.one_hot(int(rng.integers(self.width)))
        drawn = rng.random(self.width) if self.kind == "uniform" else rng.standard_normal(self.width)
        return drawn.astype(np.float32)

    def examples(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """All skills where they can be counted, otherwise `count` of them drawn from the generator, [S, K]."""
        if self.kind == "one-hot":
            return np.eye(self.width, dtype=np.float32)
        return np.stack([self.draw(rng) for _ in range(count)])

    def most_paid(self, skill: np.ndarray, reward: np.ndarray) -> int | None:
        """The number of the skill under which a step earned most on average, the first of equals; [N, K] and [N].

        None where skills cannot be counted, and for no steps.
        """
        steps = skill.sum(0, dtype=np.float64)
        if self.kind != "one-hot" or not steps.any():
            return None
        earned = reward.astype(np.float64) @ skill
        return int(np.argmax(np.where(steps > 0, earned / np.maximum(steps, 1.0), -np.inf)))

    def one_hot(self, index: int) -> np.ndarray:
        """The skill of this number."""
        return np.eye(self.width, dtype=np.float32)[index]

    def due(self, episode_steps: int) -> bool:
        """Whether a new skill is drawn before this step of an episode."""
        return episode_steps == 0 or bool(self.period and episode_steps % self.period == 0)


NStepMode = Literal["window", "sum", "one"]
"""How an explorer of transitions meets windows of n steps.

`window`: the whole window is one transition (o_t, a_t, o_{t+n}), paid once (URLB). `sum`: each of its n steps is one,
and their payments are summed with discount. `one`: windows of one step, for the critic as well.
"""


class Traits(NamedTuple):
    """What an explorer asks of the agent that it becomes a part of."""

    eta: float = 1.0
    """Weight of the intrinsic reward: r' = r + eta * r_int."""
    n_step: int | None = None
    """The window length that the explorer insists on; None leaves it to the backbone."""
    per_step: bool = False
    """Whether it is shown the single steps of each window, and its payments for them are summed with discount."""
    horizon: int = 0
    """How many rewards from the start of a window it reads; with 0 the task's reward teaches it nothing."""
    grad_clip: float = 0.0
    """Largest norm of its gradient; 0 for no limit."""
    batches: int = 1
    """Batches that it learns from in one update, a step on each; the last one is paid and learnt from by the critic."""
    pays_first: bool = False
    """Whether a batch is paid before the explorer's step on it rather than after."""
    skills: Skills = Skills()
    critic: Callable[[Shapes, int, torch.dtype], Any] | None = None
    """Builds the critic it needs, (shapes, width, precision) -> module; None takes the backbone's own."""
    reads: tuple[int, ...] | None = (0, -1)
    """Whose latents it reads from pixels: steps of a window, 0 for o_t, 1 for o_{t+1}, -1 for o_{t+n}; None for all."""
    trains_encoder: bool | None = False
    """Whether, from pixels, its loss trains the encoder as well, through o_t; no other latent carries a gradient. None
    where it never could: no loss of its own depends on o_t."""
    borrows_metric: bool = False
    """Whether the models of its metric are the representation's; `borrow` is called with that before anything else."""
    joint: bool = False
    """Of a representation: its gradient reaches the encoder together with the critic's, through one encoding."""
    after_critic: bool = False
    """Of a representation: its step comes right after the critic's, on pictures encoded anew, and not first of all."""
    slow_tau: float = 0.0
    """Of a representation: rate of a slow copy of the encoder. With one, the latents of the window it is shown are the
    copy's, o_t's among them, and `obs` alone is the encoder's; 0 for none."""

    def shown(self, mode: NStepMode) -> Traits:
        """These traits with windows in the given mode."""
        every = None if mode == "sum" else self.reads
        return self._replace(n_step=1 if mode == "one" else self.n_step, per_step=mode == "sum", reads=every)


class Paid(NamedTuple):
    """What an explorer pays for a batch."""

    bonus: Tensor
    """The intrinsic reward of each window, [B, 1]."""
    metrics: Metrics
    member: Tensor | None = None
    """Of a critic with several members, the one that learns from each window, [B]."""
    next_skill: Tensor | None = None
    """The skill that acts at o_{t+n} in the critic's target, [B, K]; None means the replayed one."""

    @classmethod
    def of(cls, bonus: Tensor, metrics: Metrics) -> Paid:
        """A bonus [B, 1] and, beside `metrics`, what logs say of it: mean, smallest and largest."""
        low, high = bonus.aminmax()
        return cls(bonus, metrics | {"bonus_mean": bonus.mean(), "bonus_min": low, "bonus_max": high})


class Measured(NamedTuple):
    """Numbers about states for people to look at, and what a picture calls them."""

    name: str
    values: Tensor


class Explorer(Protocol):
    """Turns a batch into an intrinsic reward. An `nn.Module`, so that its state is saved without further code.

    It may offer two more, for pictures of a trained agent; both look at o_t = `batch.obs` alone:

    - `potentials(batch, over, policy, rng)` -> [B]: its potential, where the anchor is taken over the batch `over`;
    - `distances(batch, policy, rng)` -> `Measured` [B, B] or None: how far it holds each from each other.
    """

    traits: Traits

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Adam's parameter groups; an explorer that learns nothing returns an empty list."""
        ...

    def loss(self, batch: Batch, policy: Policy, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """The explorer's own loss; only the parameters it declared are stepped on it."""
        ...

    def reward(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Paid:
        """What it pays for each window, without gradient, after its step on this batch. May move buffers."""
        ...

    def after_step(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Tensor | None:
        """Queues, target copies and running moments, once the whole update is done.

        A loss that it returns is stepped like the first one: for what must learn after critic and actor.
        """
        ...


class Representation(Protocol):
    """Shapes the latents of pictures. An `nn.Module` that is shown what explorers are, and steps nothing itself.

    Of `Traits` it states `reads`, `horizon`, `grad_clip`, `trains_encoder`, and from `joint` on. It may offer
    `distances`, see `Explorer`.
    """

    traits: Traits

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Adam's parameter groups of its own models, if it has any."""
        ...

    def loss(self, batch: Batch, policy: Policy, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        """Its loss, for its own models and, through `batch.obs`, for the encoder; never called if it trains neither."""
        ...

    def after_step(self) -> None:
        """Slow copies, once the whole update is done."""
        ...


class Agent(Protocol):
    """What the loop drives.

    It may offer two more, for films and pictures of a trained agent:

    - `appraise(batch, over)` -> `Measured` [B]: what it makes of each o_t, beside a sample `over` of its experience;
    - `distances(batch)` -> `Measured` [B, B]: how far it holds each o_t from each other.
    """

    sampling: Sampling | None
    """What to sample for one update; None for an agent that learns nothing."""
    skills: Skills

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
