"""Replays of pictures: every frame stored once, stacks made when windows are sampled."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from teb.replay.ring import Replay
from teb.replay.saved import Pieces, replay_bytes, some_episodes
from teb.replay.stacking import first_stack, last_stack, next_stack


def frame(episode: int, t: int) -> np.ndarray:
    """A frame that says where it belongs, differently in each channel and corner."""
    picture = np.zeros((3, 4, 5), np.uint8)
    picture[:, 0, 0], picture[:, 1, 2] = episode, t
    picture[:, 3, 4] = (1, 2, 3)
    return picture


def stacks(episode: int, length: int, count: int) -> list[np.ndarray]:
    """What a stacking wrapper would have delivered, from the first observation to the last."""
    seen = [frame(episode, 0)] * count
    found = [np.concatenate(seen)]
    for t in range(1, length + 1):
        seen = [*seen[1:], frame(episode, t)]
        found.append(np.concatenate(seen))
    return found


def play(replay: Replay, episode: int, length: int, *, ends: bool = True) -> None:
    replay.begin(frame(episode, 0))
    for t in range(length):
        replay.add(np.array([episode, t], np.float32), float(t), False, frame(episode, t + 1), np.zeros(0))
    if ends:
        replay.end()


def frames_of(lengths: list[int], capacity: int, count: int) -> Replay:
    replay = Replay(capacity, (3, 4, 5), np.uint8, 2, 0, count)
    for episode, length in enumerate(lengths):
        play(replay, episode, length)
    return replay


@pytest.mark.parametrize(
    ("count", "n_step", "lengths", "capacity"),
    [
        (count, n_step, lengths, capacity)
        for count, n_step in itertools.product((1, 2, 3, 5), (1, 3))
        for lengths, capacity in (([9, 4, 7], 100), ([9, 4, 7, 8, 3, 11], 23))
    ],
)
def test_windows_are_stacked_as_a_wrapper_would_have(
    count: int, n_step: int, lengths: list[int], capacity: int
) -> None:
    replay = frames_of(lengths, capacity, count)
    expected = [stacks(episode, length, count) for episode, length in enumerate(lengths)]
    batch = replay.sample(300, n_step, 3 if n_step == 3 else 1, 0.9, np.random.default_rng(0))
    assert batch.window_obs.shape == (300, n_step + 1, 3 * count, 4, 5)
    assert batch.window_obs.dtype == np.uint8
    starts = set()
    for window, action, obs, next_obs in zip(
        batch.window_obs, batch.action, batch.obs, batch.next_obs, strict=True
    ):
        episode, t = action.astype(int)
        starts.add((episode, t))
        assert all(np.array_equal(window[k], expected[episode][t + k]) for k in range(n_step + 1))
        assert np.array_equal(obs, window[0]) and np.array_equal(next_obs, window[-1])
    assert any(t == 0 for _, t in starts) and any(t + n_step == lengths[e] for e, t in starts)


def test_a_sampled_batch_holds_each_frame_once() -> None:
    batch = frames_of([20], 50, 3).sample(64, 3, 3, 0.9, np.random.default_rng(0))
    held = batch.window_obs
    while held.base is not None:
        held = held.base
    assert held.nbytes == 64 * (3 - 1 + 3 + 1) * 3 * 4 * 5
    assert batch.window_obs.size == 64 * 4 * 9 * 4 * 5 > held.size
    assert np.shares_memory(batch.obs, held) and np.shares_memory(batch.next_obs, held)


def test_stacks_of_acting_are_those_of_the_replay() -> None:
    expected = stacks(7, 6, 3)
    stack = first_stack(frame(7, 0), 3)
    assert np.array_equal(stack, expected[0])
    for t in range(1, 7):
        stack = next_stack(stack, frame(7, t))
        assert np.array_equal(stack, expected[t])
        assert np.array_equal(last_stack(np.stack([frame(7, i) for i in range(t + 1)]), 3), expected[t])
    vector = np.array([1.0, 2.0], np.float32)
    assert first_stack(vector, 1) is vector and next_stack(np.zeros(2, np.float32), vector) is vector
    assert np.array_equal(last_stack(np.stack([vector, 2 * vector]), 1), 2 * vector)


def test_the_paper_s_replay_fits_into_four_and_a_half_gigabytes() -> None:
    needed = replay_bytes(200_000, (3, 84, 84), np.uint8)
    assert needed == 200_000 * 21_168 < 4.5e9
    small = frames_of([250] * 4, 1000, 3)
    assert small.nbytes < 1.15 * replay_bytes(1000, (3, 4, 5), np.uint8) + 1000 * (8 + 4 + 1)


@pytest.mark.parametrize("lengths", [[5, 4], [5, 4, 6, 5, 4]])
def test_a_state_of_frames_is_made_of_views_and_loads_elsewhere(lengths: list[int]) -> None:
    replay = frames_of(lengths, 16, 3)
    play(replay, 99, 2, ends=False)
    state = replay.state()
    assert isinstance(state["obs"], Pieces)
    assert len(state["obs"].parts) == (1 if len(lengths) == 2 else 2)
    assert all(part.base is not None for part in state["obs"].parts)
    other = Replay(16, (3, 4, 5), np.uint8, 2, 0, 3)
    other.load(state)
    for first, second in zip(
        replay.sample(64, 3, 3, 0.9, np.random.default_rng(1)),
        other.sample(64, 3, 3, 0.9, np.random.default_rng(1)),
        strict=True,
    ):
        np.testing.assert_array_equal(first, second)
    assert np.array_equal(replay.current_obs(), other.current_obs())


@pytest.mark.parametrize(("shape", "count"), [((2,), 3), ((3, 4, 5), 0)])
def test_what_cannot_be_stacked_is_refused(shape: tuple[int, ...], count: int) -> None:
    with pytest.raises(ValueError, match="frame_stack"):
        Replay(10, shape, np.uint8, 1, 0, count)


@pytest.mark.parametrize(("lengths", "capacity"), [([9, 4, 7], 100), ([9, 4, 7, 8, 3, 11], 23)])
@pytest.mark.parametrize("running", [False, True])
def test_some_episodes_of_a_saved_replay_make_a_replay_of_their_own(
    lengths: list[int], capacity: int, running: bool
) -> None:
    replay = frames_of(lengths, capacity, 3)
    kept = list(range(len(lengths) - replay.episodes, len(lengths)))
    if running:
        play(replay, 99, 2, ends=False)
        kept = kept[len(kept) - replay.episodes :]
    saved = {k: v.joined() if isinstance(v, Pieces) else v for k, v in replay.state().items()}
    rows = np.array([len(kept) - 1, 0])
    some = some_episodes(saved, rows)
    again = Replay(len(some["obs"]), (3, 4, 5), np.uint8, 2, 0, 3)
    again.load(some)
    assert again.episodes == 2 and not again.running
    begin = 0
    for row in rows:
        episode, length = kept[row], lengths[kept[row]]
        slots = slice(begin, begin + length)
        expected = np.stack([frame(episode, t) for t in range(length + 1)])
        np.testing.assert_array_equal(some["obs"][slots], expected[:-1])
        np.testing.assert_array_equal(some["action"][slots, 1], np.arange(length))
        np.testing.assert_array_equal(some["reward"][slots], np.arange(length))
        begin += length
    finals = [frame(kept[row], lengths[kept[row]]) for row in rows]
    np.testing.assert_array_equal(some["final_obs"], np.stack(finals))
