"""Where the finished episodes lie in the ring, from the oldest to the newest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Episode(NamedTuple):
    """Where a finished episode lies."""

    first_slot: int
    length: int
    final_row: int


class Queue:
    """Episodes in order of age, always readable as one contiguous array."""

    def __init__(self) -> None:
        self._rows = np.zeros((64, 3), dtype=np.int64)
        self._begin = 0
        self._end = 0

    def __len__(self) -> int:
        return self._end - self._begin

    def array(self) -> NDArray[np.int64]:
        """The fields of `Episode` in columns, one row per episode, oldest first."""
        return self._rows[self._begin : self._end]

    def append(self, episode: Episode) -> None:
        """Add the newest episode."""
        if self._end == len(self._rows):
            self._make_room()
        self._rows[self._end] = episode
        self._end += 1

    def pop(self) -> Episode:
        """Remove the oldest episode."""
        first_slot, length, final_row = self._rows[self._begin].tolist()
        self._begin += 1
        return Episode(first_slot, length, final_row)

    def _make_room(self) -> None:
        # Twice what is in use, so that the cost of moving is spread over at least as many appends.
        live = self.array()
        rows = np.zeros((max(64, 2 * len(live)), 3), dtype=np.int64)
        rows[: len(live)] = live
        self._rows, self._begin, self._end = rows, 0, len(live)


class Episodes:
    """All finished episodes, and for each window length in use those that are long enough."""

    def __init__(self) -> None:
        self._all = Queue()
        # Kept up to date as episodes come and go, so that sampling never has to search.
        self._long_enough: dict[int, Queue] = {1: self._all}

    def __len__(self) -> int:
        return len(self._all)

    def append(self, episode: Episode) -> None:
        """Add the newest episode."""
        for n_step, queue in self._long_enough.items():
            if episode.length >= n_step:
                queue.append(episode)

    def pop(self) -> Episode:
        """Remove the oldest episode."""
        oldest = self._all.pop()
        for n_step, queue in self._long_enough.items():
            if queue is not self._all and oldest.length >= n_step:
                queue.pop()
        return oldest

    def array(self, n_step: int = 1) -> NDArray[np.int64]:
        """The episodes of at least `n_step` transitions: the fields of `Episode` in columns, oldest first."""
        queue = self._long_enough.get(n_step)
        if queue is None:
            queue = self._long_enough[n_step] = Queue()
            for first_slot, length, final_row in self._all.array().tolist():
                if length >= n_step:
                    queue.append(Episode(first_slot, length, final_row))
        return queue.array()
