from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_replay import NaiveReplay, check_content, check_sample, new_replay

from teb.replay.ring import Replay


def filled(lengths: list[int], capacity: int = 1000, terminal: bool = False) -> tuple[Replay, NaiveReplay]:
    replay, naive = new_replay(capacity), NaiveReplay(capacity)
    for length in lengths:
        naive.episode(replay, length, terminal)
    return replay, naive


def one_dimensional(episodes: list[list[tuple[float, bool]]]) -> Replay:
    """Episodes of (reward, terminal), o_t = (episode, t)."""
    replay = Replay(100, (2,), np.float32, 1, 0)
    for number, steps in enumerate(episodes):
        replay.begin(np.array([number, 0]))
        for t, (reward, terminal) in enumerate(steps):
            replay.add(np.zeros(1), reward, terminal, np.array([number, t + 1]), np.zeros(0))
        replay.end()
    return replay


def same(left: tuple[np.ndarray, ...], right: tuple[np.ndarray, ...]) -> bool:
    return all(a.tobytes() == b.tobytes() and a.shape == b.shape for a, b in zip(left, right, strict=True))


# --- what a window holds ------------------------------------------------------------------------------


@pytest.mark.parametrize("n_step", [1, 2, 3, 7])
@pytest.mark.parametrize("extra", [0, 1, 20])
@pytest.mark.parametrize("terminal", [False, True])
def test_windows_hold_what_was_stored(n_step: int, extra: int, terminal: bool) -> None:
    replay, naive = filled([9, 7, 50, 3, 12], terminal=terminal)
    for seed in range(5):
        check_sample(replay, naive, n_step, n_step + extra, 0.97, np.random.default_rng(seed))


@pytest.mark.parametrize(("gamma", "discount"), [(0.97, 0.912673), (0.99, 0.970299)])
def test_a_window_of_three_steps_by_hand(gamma: float, discount: float) -> None:
    replay = one_dimensional([[(reward, False) for reward in (1.0, 2.0, 3.0, 4.0)]])
    batch = replay.sample(50, 3, 3, gamma, np.random.default_rng(0))
    first = batch.reward[batch.obs[:, 1] == 0]
    np.testing.assert_allclose(first, np.full_like(first, 1 + 2 * gamma + 3 * gamma**2), rtol=1e-6)
    np.testing.assert_allclose(batch.discount, np.full((50, 1), discount), rtol=1e-6)
    assert 0 < len(first) < 50


def test_reward_and_discount_of_an_episode_cut_by_its_time_limit() -> None:
    replay = one_dimensional([[(float(t), False) for t in range(50)]])
    batch = replay.sample(500, 3, 3, 0.99, np.random.default_rng(0))
    t = batch.obs[:, 1]
    np.testing.assert_allclose(batch.reward[:, 0], t + 0.99 * (t + 1) + 0.99**2 * (t + 2), rtol=1e-6)
    np.testing.assert_allclose(batch.discount, np.full((500, 1), 0.99**3), rtol=1e-7)
    np.testing.assert_array_equal(batch.next_obs, batch.obs + [0, 3])


@pytest.mark.parametrize(("gamma", "discount"), [(0.97, 0.912673), (0.99, 0.970299)])
def test_a_window_of_the_paper_computed_by_hand(gamma: float, discount: float) -> None:
    replay = one_dimensional([[(reward, False) for reward in (1.0, 2.0, 3.0, 4.0)]])
    batch = replay.sample(50, 3, 3, gamma, np.random.default_rng(0))
    first = batch.obs[:, 1] == 0
    np.testing.assert_allclose(batch.discount, discount, rtol=1e-6)
    np.testing.assert_allclose(batch.reward[first, 0], 1 + 2 * gamma + 3 * gamma**2, rtol=1e-6)
    np.testing.assert_allclose(batch.reward[~first, 0], 2 + 3 * gamma + 4 * gamma**2, rtol=1e-6)


def test_rewards_and_discount_stop_at_a_terminal_step_inside_the_window() -> None:
    replay = one_dimensional([[(1.0, False), (2.0, True), (4.0, False), (8.0, False)]])
    batch = replay.sample(64, 3, 4, 0.5, np.random.default_rng(0))
    starts = batch.obs[:, 1]
    expected = {0.0: [1, 2, 0, 0], 1.0: [2, 0, 0, 0]}
    assert set(starts.tolist()) == set(expected)
    for start, rewards, reward in zip(starts.tolist(), batch.rewards, batch.reward, strict=True):
        assert rewards.tolist() == expected[start]
        assert reward.tolist() == [{0.0: 2.0, 1.0: 2.0}[start]]
    assert (batch.discount == 0).all()


def test_a_terminal_step_before_or_after_the_window_does_not_matter() -> None:
    replay = one_dimensional([[(1.0, True), (2.0, False), (4.0, False), (8.0, True)]])
    batch = replay.sample(64, 2, 2, 0.5, np.random.default_rng(0))
    found = {
        t: (r, d)
        for t, r, d in zip(batch.obs[:, 1].tolist(), batch.reward[:, 0], batch.discount[:, 0], strict=True)
    }
    assert found == {0.0: (1.0, 0.0), 1.0: (4.0, 0.25), 2.0: (8.0, 0.0)}


def test_a_horizon_beyond_the_end_is_filled_with_zeros_not_with_the_next_episode() -> None:
    replay = one_dimensional([[(1.0, False)] * 3, [(5.0, False)] * 3])
    batch = replay.sample(64, 3, 200, 1.0, np.random.default_rng(0))
    assert batch.rewards.shape == (64, 200)
    for number, rewards in zip(batch.obs[:, 0], batch.rewards, strict=True):
        assert rewards.tolist() == [5.0 if number else 1.0] * 3 + [0.0] * 197


def test_shapes_and_dtypes() -> None:
    replay, _ = filled([10])
    batch = replay.sample(8, 3, 5, 0.9, np.random.default_rng(0))
    shapes = {name: array.shape for name, array in batch._asdict().items()}
    assert shapes == {
        "obs": (8, 2),
        "action": (8, 3),
        "reward": (8, 1),
        "discount": (8, 1),
        "next_obs": (8, 2),
        "rewards": (8, 5),
        "window_obs": (8, 4, 2),
        "window_action": (8, 4, 3),
        "skill": (8, 3),
    }
    assert {array.dtype for array in batch} == {np.dtype(np.float32)}


def test_image_observations_keep_their_shape_and_dtype() -> None:
    replay = Replay(20, (3, 4, 5), np.uint8, 1, 0)
    frames = np.random.default_rng(0).integers(0, 256, size=(7, 3, 4, 5), dtype=np.uint8)
    replay.begin(frames[0])
    for t in range(6):
        replay.add(np.full(1, t), 0.0, False, frames[t + 1], np.zeros(0))
    replay.end()
    batch = replay.sample(50, 2, 2, 0.9, np.random.default_rng(1))
    assert batch.window_obs.dtype == np.uint8
    starts = batch.action[:, 0].astype(int)
    np.testing.assert_array_equal(batch.window_obs, frames[starts[:, None] + np.arange(3)])
    assert batch.skill.shape == (50, 0)


# --- which windows are drawn --------------------------------------------------------------------------


def test_starts_are_uniform_and_the_final_observation_is_reached() -> None:
    replay, _ = filled([10])
    batch = replay.sample(80_000, 3, 3, 0.99, np.random.default_rng(0))
    counts = np.bincount(batch.obs[:, 1].astype(int), minlength=8)
    assert len(counts) == 8
    # 6 standard deviations of a bin that expects 10 000 of 80 000.
    assert np.abs(counts - 10_000).max() < 6 * np.sqrt(10_000 * 7 / 8)
    assert batch.next_obs[:, 1].max() == 10
    assert np.isnan(batch.window_action[batch.next_obs[:, 1] == 10, 3]).all()
    assert not np.isnan(batch.window_action[batch.next_obs[:, 1] < 10]).any()


def test_episodes_are_uniform_however_long_they_are() -> None:
    replay, _ = filled([3, 300, 30])
    batch = replay.sample(60_000, 3, 3, 0.99, np.random.default_rng(0))
    counts = np.bincount(batch.obs[:, 0].astype(int), minlength=3)
    assert np.abs(counts - 20_000).max() < 6 * np.sqrt(20_000 * 2 / 3)


def test_elements_are_drawn_independently() -> None:
    replay, _ = filled([20, 20])
    batch = replay.sample(20_000, 1, 1, 0.99, np.random.default_rng(0))
    number, t = batch.obs[:, 0], batch.obs[:, 1]
    for left, right in ((number, t), (t[1:], t[:-1]), (number[1:], number[:-1])):
        assert abs(np.corrcoef(left, right)[0, 1]) < 0.05


def test_episodes_shorter_than_the_window_are_skipped() -> None:
    replay, _ = filled([2, 3, 1, 4])
    batch = replay.sample(1000, 3, 3, 0.99, np.random.default_rng(0))
    assert set(batch.obs[:, 0].tolist()) == {1.0, 3.0}


def test_the_running_episode_is_never_drawn_until_it_ends() -> None:
    replay, naive = filled([5])
    naive.begin(replay)
    for _ in range(200):
        naive.add(replay)
    assert set(replay.sample(500, 3, 3, 0.99, np.random.default_rng(0)).obs[:, 0].tolist()) == {0.0}
    naive.end(replay)
    assert set(replay.sample(500, 3, 3, 0.99, np.random.default_rng(0)).obs[:, 0].tolist()) == {0.0, 1.0}


def test_every_sampled_action_fits_the_skill_it_was_chosen_under() -> None:
    """Skills change at every reset and inside episodes; the label must not slip by a step."""
    rng = np.random.default_rng(0)
    replay = Replay(20_000, (1,), np.float32, 2, 4)
    for _ in range(100):
        replay.begin(np.zeros(1))
        skill = np.zeros(4)
        for t in range(120):
            if t % 50 == 0:
                skill = rng.normal(size=4)
            replay.add(skill[:2] * 2 + skill[2:], 0.0, False, np.zeros(1), skill)
        replay.end()
    batch = replay.sample(5000, 3, 3, 0.99, rng)
    np.testing.assert_allclose(batch.action, batch.skill[:, :2] * 2 + batch.skill[:, 2:], atol=1e-5)


# --- the ring -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capacity", "lengths", "kept"),
    [
        (10, [5], [5]),
        (10, [5, 5], [5, 5]),
        (10, [5, 5, 1], [5, 1]),
        (10, [5, 5, 5], [5, 5]),
        (10, [10], [10]),
        (10, [10, 1], [1]),
        (10, [1] * 25, [1] * 10),
        (10, [3, 3, 3, 3], [3, 3, 3]),
        (10, [3, 3, 3, 2], [3, 3, 2]),
        (10, [2, 2, 2, 2, 7], [2, 7]),
        (10, [2, 8, 9], [9]),
        (1, [1, 1, 1], [1]),
    ],
)
def test_the_oldest_episodes_go_whole(capacity: int, lengths: list[int], kept: list[int]) -> None:
    replay, naive = filled(lengths, capacity)
    assert replay.state()["length"].tolist() == kept
    assert (replay.transitions, replay.episodes) == (sum(kept), len(kept))
    check_content(replay, naive)


def test_an_episode_longer_than_the_capacity_is_refused() -> None:
    replay, naive = filled([4], capacity=10)
    naive.begin(replay)
    for _ in range(10):
        naive.add(replay)
    with pytest.raises(ValueError, match="capacity of 10 transitions"):
        naive.add(replay)
    naive.end(replay)
    check_content(replay, naive)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_random_operations_agree_with_lists(data: st.DataObject) -> None:
    capacity = data.draw(st.integers(1, 24), label="capacity")
    rng = np.random.default_rng(data.draw(st.integers(0, 1000), label="seed"))
    replay, naive = new_replay(capacity), NaiveReplay(capacity)
    for steps in data.draw(st.lists(st.integers(1, 12), max_size=25), label="lengths"):
        naive.begin(replay)
        for _ in range(min(steps, capacity)):
            naive.add(replay, terminal=bool(rng.random() < 0.1))
        check_content(replay, naive)
        if rng.random() < 0.3:
            replay_again = new_replay(capacity)
            replay_again.load(replay.state())
            replay = replay_again
        naive.end(replay)
        n_step = int(rng.integers(1, 5))
        if any(len(episode) >= n_step for episode in naive.finished):
            check_sample(replay, naive, n_step, n_step + int(rng.integers(0, 30)), 0.9, rng)
        else:
            with pytest.raises(ValueError, match="nothing to sample"):
                replay.sample(1, n_step, n_step, 0.9, rng)
    check_content(replay, naive)


def test_the_index_survives_thousands_of_evictions() -> None:
    replay, naive = new_replay(40), NaiveReplay(40)
    rng = np.random.default_rng(0)
    for length in rng.integers(1, 6, size=3000).tolist():
        naive.episode(replay, length)
    for n_step in (1, 3, 5):
        check_sample(replay, naive, n_step, n_step, 0.9, rng)
    check_content(replay, naive)


# --- saving -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [[], [5], [5, 5], [7, 2, 9, 4, 8, 3, 6], [20, 1]])
@pytest.mark.parametrize("mid_episode", [None, 0, 1, 6])
def test_a_loaded_replay_continues_identically(lengths: list[int], mid_episode: int | None) -> None:
    replay, naive = filled(lengths, capacity=20)
    if mid_episode is not None:
        naive.begin(replay)
        for _ in range(mid_episode):
            naive.add(replay)
    other = new_replay(20)
    other.begin(np.ones(2))
    other.add(np.ones(3), 1.0, True, np.ones(2), np.ones(3))
    other.load(replay.state())
    check_content(other, naive)
    twin = NaiveReplay(20)
    twin.finished, twin.begun = list(naive.finished), naive.begun
    if naive.running is not None:
        twin.running = type(naive.running)(naive.running.number, list(naive.running.terminal))
    for one, lists in ((replay, naive), (other, twin)):
        if lists.running is None:
            lists.begin(one)
        for length in (4, 11, 2, 5):
            for _ in range(length):
                lists.add(one)
            lists.end(one)
            lists.begin(one)
        check_content(one, lists)
    left, right = (one.sample(64, 2, 6, 0.9, np.random.default_rng(3)) for one in (replay, other))
    assert same(left, right)


def test_sampling_after_load_gives_the_same_bits() -> None:
    replay, _ = filled([7, 2, 9, 4, 8, 3, 6], capacity=20)
    other = new_replay(20)
    other.load(replay.state())
    rngs = np.random.default_rng(5), np.random.default_rng(5)
    for n_step in (1, 3, 2):
        assert same(
            *(one.sample(64, n_step, 6, 0.9, rng) for one, rng in zip((replay, other), rngs, strict=True))
        )


def test_a_saved_state_does_not_change_afterwards() -> None:
    replay, naive = filled([5, 5], capacity=10)
    state = replay.state()
    before = {name: array.copy() for name, array in state.items()}
    for _ in range(6):
        naive.episode(replay, 3)
    assert all((state[name] == before[name]).all() for name in state)


def test_a_bad_state_is_refused_and_changes_nothing() -> None:
    replay, naive = filled([3, 4], capacity=10)
    good = filled([5, 4], capacity=20)[0].state()
    bad = {
        "lacks": {name: array for name, array in good.items() if name != "skill"},
        "12 transitions": filled([6, 6], capacity=20)[0].state(),
        "action must be": good | {"action": good["action"][:, :2]},
        "reward must be": good | {"reward": good["reward"].astype(np.float64)},
        "final_obs must be": good | {"final_obs": good["final_obs"][:1]},
        "without transitions": good | {"length": np.array([9, 0])},
        "int64": good | {"length": np.array([5.0, 4.0])},
    }
    for message, state in bad.items():
        with pytest.raises(ValueError, match=message):
            replay.load(state)
        check_content(replay, naive)


# --- misuse -------------------------------------------------------------------------------------------


def test_calls_out_of_order_are_refused() -> None:
    replay = new_replay(10)
    obs, action, skill = np.zeros(2), np.zeros(3), np.zeros(3)
    with pytest.raises(RuntimeError, match="begin"):
        replay.add(action, 0.0, False, obs, skill)
    with pytest.raises(RuntimeError, match="running episode"):
        replay.end()
    replay.begin(obs)
    with pytest.raises(RuntimeError, match="already running"):
        replay.begin(obs)
    with pytest.raises(RuntimeError, match="at least one transition"):
        replay.end()


def test_wrong_shapes_are_refused_rather_than_broadcast() -> None:
    replay = new_replay(10)
    with pytest.raises(ValueError, match=r"obs must have shape \(2,\), got \(1,\)"):
        replay.begin(np.zeros(1))
    replay.begin(np.zeros(2))
    good = {"action": np.zeros(3), "next_obs": np.zeros(2), "skill": np.zeros(3)}
    for name in good:
        with pytest.raises(ValueError, match=name):
            replay.add(reward=0.0, terminal=False, **(good | {name: np.zeros(1)}))
    assert len(replay.current_actions()) == 0


def test_observations_that_would_lose_their_meaning_are_refused() -> None:
    with pytest.raises(ValueError, match="uint8"):
        Replay(10, (2,), np.uint8, 1, 0).begin(np.zeros(2, dtype=np.float32))


@pytest.mark.parametrize(("n_step", "horizon"), [(0, 3), (3, 2)])
def test_impossible_windows_are_refused(n_step: int, horizon: int) -> None:
    replay, _ = filled([10])
    with pytest.raises(ValueError, match="n_step"):
        replay.sample(1, n_step, horizon, 0.9, np.random.default_rng(0))


def test_a_capacity_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="capacity"):
        new_replay(0)
