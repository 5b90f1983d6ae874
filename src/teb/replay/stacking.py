"""Stacks of frames, oldest first: what an agent sees of a moving picture. The first stands in for those before it."""

from __future__ import annotations

import numpy as np

from teb.replay.sample import Array


def first_stack(frame: Array, count: int) -> Array:
    """The stack at the start of an episode, [C, H, W] -> [count * C, H, W]: its first frame repeated (DrQ-v2)."""
    return frame if count == 1 else np.concatenate([frame] * count)


def next_stack(stack: Array, frame: Array) -> Array:
    """The stack one step later: `frame` [C, H, W] is the newest, the oldest one goes."""
    return frame if stack.shape == frame.shape else np.concatenate((stack[len(frame) :], frame))


def last_stack(frames: Array, count: int) -> Array:
    """The stack after all frames of an episode so far, [T, C, H, W] -> [count * C, H, W]."""
    if count == 1:
        return frames[-1]
    rows = np.maximum(np.arange(len(frames) - count, len(frames)), 0)
    return frames[rows].reshape(-1, *frames.shape[2:])


def windows_of_stacks(frames: Array, count: int) -> Array:
    """All stacks in runs of frames, [B, count - 1 + m, C, H, W] -> [B, m, count * C, H, W], sharing their memory."""
    batch, length, channels, height, width = frames.shape
    shape = (batch, length - count + 1, count * channels, height, width)
    per_run, per_frame, per_channel, *inside = frames.strides
    assert per_frame == channels * per_channel, "frames must lie one behind the other"
    return np.lib.stride_tricks.as_strided(frames, shape, (per_run, per_frame, per_channel, *inside))
