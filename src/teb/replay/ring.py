"""Experience as whole episodes in one ring of transitions, sampled as n-step windows.

A transition lives in one of `capacity` slots, in order of arrival; slot numbers wrap, so an episode may lie
across the end of the ring and no gap is ever left. Slot t of an episode holds o_t, a_t, r_t, whether the
step was terminal, and the skill that chose a_t. The observation that closes an episode has no action and so
no slot: it has a row of its own behind the slots, and every observation is stored once. While an episode
runs, that row holds its newest observation. There is room for the worst case of one-step episodes, but rows
are reused, so no more of them are ever touched than there are episodes at one time, and memory that is
never touched costs nothing.

Pictures are single frames. What an agent sees are the latest `frame_stack` of them: they are put side by side when
windows are sampled, so each frame is stored once. The first frame of an episode stands in for those before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from teb.replay.episodes import Episode, Episodes
from teb.replay.sample import Array, Sample
from teb.replay.saved import Pieces, check_saved
from teb.replay.stacking import windows_of_stacks


class Replay:
    """Finished episodes, plus one running episode that the sampler does not see.

    `capacity` counts transitions, those of the running episode included: the oldest episodes are dropped,
    each as a whole, when the next transition would not fit. Choose it at least twice the longest episode,
    or there may be nothing to sample while an episode runs.
    """

    def __init__(
        self,
        capacity: int,
        obs_shape: tuple[int, ...],
        obs_dtype: DTypeLike,
        action_dim: int,
        skill_dim: int,
        frame_stack: int = 1,
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1 transition, got {capacity}")
        if frame_stack < 1 or (frame_stack > 1 and len(obs_shape) != 3):
            raise ValueError(
                f"frame_stack: must be 1, or more with frames [C, H, W], got {frame_stack} of {obs_shape}"
            )
        self._capacity = capacity
        self._frame_stack = frame_stack
        self._obs = np.zeros((2 * capacity + 1, *obs_shape), dtype=obs_dtype)
        self._action = np.zeros((capacity, action_dim), dtype=np.float32)
        self._reward = np.zeros(capacity, dtype=np.float32)
        self._terminal = np.zeros(capacity, dtype=np.bool_)
        self._skill = np.zeros((capacity, skill_dim), dtype=np.float32)
        self._clear()

    @property
    def transitions(self) -> int:
        """Transitions of the finished episodes."""
        return self._used_slots - self._running_length

    @property
    def episodes(self) -> int:
        """Finished episodes."""
        return len(self._finished)

    @property
    def running(self) -> bool:
        """Whether an episode has begun and not ended."""
        return self._running_row is not None

    @property
    def nbytes(self) -> int:
        """Bytes of everything stored, the running episode included."""
        final_obs = (self.episodes + int(self.running)) * self._obs[0].nbytes
        return final_obs + self._used_slots * sum(column[0].nbytes for column in self._columns().values())

    def earned(self) -> tuple[Array, Array]:
        """The skill and the reward of every transition, oldest first, [N, K] and [N]."""
        return Pieces(self._used(self._skill)).joined(), Pieces(self._used(self._reward)).joined()

    def current_actions(self) -> Array:
        """Actions of the running episode so far, [t, A]; no rows if none is running."""
        return self._action[self._running_slots()]

    def current_obs(self) -> Array:
        """Observations of the running episode so far, [t+1, *obs]; no rows if none is running."""
        rows = self._running_slots()
        if self._running_row is not None:
            rows = np.append(rows, self._running_row)
        return self._gather_obs(rows)

    def begin(self, obs: Array) -> None:
        """Start an episode with its first observation."""
        if self._running_row is not None:
            raise RuntimeError("an episode is already running: call end() before begin()")
        if not np.can_cast(obs.dtype, self._obs.dtype, casting="same_kind"):
            raise ValueError(f"observations are stored as {self._obs.dtype}, got {obs.dtype}")
        self._check_shape("obs", obs, self._obs)
        row = self._free_rows.pop() if self._free_rows else self._capacity + self.episodes
        self._obs[row] = obs
        self._running_row = row

    def add(self, action: Array, reward: float, terminal: bool, next_obs: Array, skill: Array) -> None:
        """Append what `action`, chosen under `skill`, led to. A time limit is not terminal."""
        row = self._running_row
        if row is None:
            raise RuntimeError("no episode is running: call begin() before add()")
        self._check_shape("action", action, self._action)
        self._check_shape("next_obs", next_obs, self._obs)
        self._check_shape("skill", skill, self._skill)
        if self._used_slots == self._capacity:
            self._evict_oldest()
        slot = self._head
        self._obs[slot] = self._obs[row]
        self._obs[row] = next_obs
        self._action[slot] = action
        self._reward[slot] = reward
        self._terminal[slot] = terminal
        self._skill[slot] = skill
        self._head = slot + 1 if slot + 1 < self._capacity else 0
        self._used_slots += 1
        self._running_length += 1

    def end(self) -> None:
        """Finish the running episode: from now on it can be sampled."""
        row = self._running_row
        if row is None or self._running_length == 0:
            raise RuntimeError("end() needs a running episode with at least one transition")
        first_slot = (self._head - self._running_length) % self._capacity
        self._finished.append(Episode(first_slot, self._running_length, row))
        self._running_row = None
        self._running_length = 0

    def sample(
        self, batch_size: int, n_step: int, horizon: int, gamma: float, rng: np.random.Generator
    ) -> Sample:
        """Draw windows with replacement.

        Each is drawn by itself: an episode, uniformly among those of at least `n_step` transitions however
        long they are, then a start, uniformly among those whose window o_t ... o_{t+n} lies inside the
        episode.
        """
        if not 1 <= n_step <= horizon:
            raise ValueError(f"need 1 <= n_step <= horizon, got n_step {n_step} and horizon {horizon}")
        episodes = self._finished.array(n_step)
        if len(episodes) == 0:
            raise ValueError(f"nothing to sample: none of {self.episodes} episodes has {n_step} transitions")
        chosen = episodes.take(rng.integers(len(episodes), size=batch_size), axis=0)
        first_slot, length, final_row = chosen[:, 0], chosen[:, 1], chosen[:, 2]
        start = (rng.random(batch_size) * (length - (n_step - 1))).astype(np.int64)
        step = start[:, None] + np.arange(max(n_step + 1, horizon))
        slots = (first_slot[:, None] + step) % self._capacity
        window = slots[:, : n_step + 1]
        at_end = step[:, n_step] == length

        window_action = self._action.take(window, axis=0)
        window_action[at_end, n_step] = np.nan
        rewards, over = self._cut_rewards(slots[:, :horizon], step[:, :horizon] >= length[:, None])
        powers = np.power(gamma, np.arange(n_step)).astype(np.float32)
        discount = np.where(over[:, n_step - 1 : n_step], np.float32(0), np.float32(gamma**n_step))
        skill = self._skill.take(slots[:, 0], axis=0)

        window[:, n_step] = np.where(at_end, final_row, window[:, n_step])
        window_obs = self._window_obs(first_slot, start, window)
        return Sample(
            obs=window_obs[:, 0],
            action=window_action[:, 0],
            reward=(rewards[:, :n_step] * powers).sum(axis=1, keepdims=True),
            discount=discount,
            next_obs=window_obs[:, n_step],
            rewards=rewards,
            window_obs=window_obs,
            window_action=window_action,
            skill=skill,
        )

    def _window_obs(self, first_slot: Array, start: Array, window: Array) -> Array:
        """Observations of windows, given the rows of their own frames; stacks share their frames, no byte is copied."""
        if self._frame_stack == 1:
            return self._gather_obs(window)
        back = np.arange(1 - self._frame_stack, 0)
        before = (first_slot[:, None] + np.maximum(start[:, None] + back, 0)) % self._capacity
        frames = self._gather_obs(np.concatenate((before, window), axis=1))
        return windows_of_stacks(frames, self._frame_stack)

    def _cut_rewards(self, slots: Array, outside: Array) -> tuple[Array, Array]:
        """Rewards, zero where the episode is over, and whether each step is a terminal one or follows one."""
        over = np.logical_or.accumulate(self._terminal.take(slots), axis=1)
        outside[:, 1:] |= over[:, :-1]
        rewards = self._reward.take(slots)
        rewards[outside] = 0
        return rewards, over

    def _gather_obs(self, rows: Array) -> Array:
        return self._obs.take(rows, axis=0)

    def state(self) -> dict[str, Any]:
        """Everything stored, oldest first; the running episode, if any, comes last.

        Arrays are independent, except for pictures: a replay of those does not fit into memory twice, so they are
        views, in `Pieces` where they lie across the end of the ring, and must be written down before anything changes.
        """
        episodes = self._finished.array()
        lengths, final_rows = episodes[:, 1], episodes[:, 2]
        if self._running_row is not None:
            lengths = np.append(lengths, self._running_length)
            final_rows = np.append(final_rows, self._running_row)
        pieces = {name: self._used(column) for name, column in self._columns().items()}
        state: dict[str, Any] = {
            name: Pieces(parts).joined() for name, parts in pieces.items() if name != "obs"
        }
        state["obs"] = Pieces(pieces["obs"]) if self._obs.ndim > 2 else Pieces(pieces["obs"]).joined()
        state["final_obs"] = self._gather_obs(final_rows)
        state["length"] = lengths.copy()
        state["running"] = np.array(self.running)
        return state

    def load(self, state: Mapping[str, Any]) -> None:
        """Take up a state that `state` gave, in place of what is here. A bad state changes nothing."""
        state = {
            name: value.joined() if isinstance(value, Pieces) else value for name, value in state.items()
        }
        check_saved(state, self._columns(), self._capacity)
        lengths: list[int] = state["length"].tolist()
        used = sum(lengths)
        self._clear()
        for name, column in self._columns().items():
            column[:used] = state[name]
        self._obs[self._capacity : self._capacity + len(lengths)] = state["final_obs"]
        self._head, self._used_slots = used % self._capacity, used
        first_slot = 0
        for index, length in enumerate(lengths):
            row = self._capacity + index
            if index == len(lengths) - 1 and state["running"]:
                self._running_row, self._running_length = row, length
            else:
                self._finished.append(Episode(first_slot, length, row))
            first_slot += length

    def _clear(self) -> None:
        self._head = 0
        self._used_slots = 0
        self._running_length = 0
        self._running_row: int | None = None
        self._free_rows: list[int] = []
        self._finished = Episodes()

    def _columns(self) -> dict[str, Array]:
        """Everything that has one entry per transition, by its name in a saved state."""
        return {
            "obs": self._obs[: self._capacity],
            "action": self._action,
            "reward": self._reward,
            "terminal": self._terminal,
            "skill": self._skill,
        }

    def _check_shape(self, name: str, value: Array, column: Array) -> None:
        if value.shape != column.shape[1:]:
            raise ValueError(f"{name} must have shape {column.shape[1:]}, got {value.shape}")

    def _evict_oldest(self) -> None:
        if len(self._finished) == 0:
            raise ValueError(f"the running episode exceeds the capacity of {self._capacity} transitions")
        oldest = self._finished.pop()
        self._used_slots -= oldest.length
        self._free_rows.append(oldest.final_row)

    def _running_slots(self) -> NDArray[np.int64]:
        first_slot = self._head - self._running_length
        return (first_slot + np.arange(self._running_length, dtype=np.int64)) % self._capacity

    def _used(self, column: Array) -> list[Array]:
        """Views of the entries in use, oldest first: two where they lie across the end of the ring."""
        first_slot = (self._head - self._used_slots) % self._capacity
        behind = max(0, first_slot + self._used_slots - self._capacity)
        parts = [column[first_slot : first_slot + self._used_slots], column[:behind]]
        return parts if behind else parts[:1]
