"""What the replay hands out."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

Array = NDArray[Any]


class Sample(NamedTuple):
    """One sampled batch of windows o_t ... o_{t+n}.

    B is the batch size, n the window's length, H the reward horizon, A and K the action and skill widths.
    Everything is float32, except observations: they have the dtype that they are stored in. `obs`,
    `next_obs` and `action` are views of the windows.
    """

    obs: Array
    """o_t, [B, *obs]."""
    action: Array
    """a_t, [B, A]."""
    reward: Array
    """sum_{i<n} gamma^i r_{t+i}, cut after a terminal step, [B, 1]."""
    discount: Array
    """gamma^n, or 0 where a step of the window is terminal, [B, 1]."""
    next_obs: Array
    """o_{t+n}, [B, *obs]."""
    rewards: Array
    """r_t ... r_{t+H-1}, zero beyond the episode's end and after a terminal step, [B, H]."""
    window_obs: Array
    """o_t ... o_{t+n}, [B, n+1, *obs]."""
    window_action: Array
    """a_t ... a_{t+n}; the last is NaN where the episode ends with o_{t+n}, [B, n+1, A]."""
    skill: Array
    """The skill that chose a_t, [B, K]; K may be 0."""
