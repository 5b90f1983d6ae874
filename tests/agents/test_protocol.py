from __future__ import annotations

import numpy as np
import pytest
import torch
from agent_setup import random_batch

from teb.agents.protocol import Skills, Traits, one_step_windows, parts


def test_parts_of_a_batch_are_its_rows_in_order() -> None:
    batch = random_batch(size=12, skill=2)
    cut = parts(batch, 3)
    assert [part.obs.shape[0] for part in cut] == [4, 4, 4]
    for name in ("obs", "action", "reward", "discount", "next_obs", "rewards", "window_obs", "skill"):
        assert torch.equal(torch.cat([getattr(part, name) for part in cut]), getattr(batch, name))
    assert all(torch.equal(part.first_obs, batch.first_obs) for part in cut)
    assert parts(batch, 1)[0] is batch


def test_steps_of_a_window_become_windows_of_their_own() -> None:
    batch = random_batch(size=5, n=3, skill=2)
    batch = batch._replace(discount=batch.discount * torch.tensor([[1.0], [0.0], [1.0], [1.0], [1.0]]))
    steps = one_step_windows(batch, gamma=0.9)
    for row in range(5):
        for i in range(3):
            at = 3 * row + i
            assert torch.equal(steps.obs[at], batch.window_obs[row, i])
            assert torch.equal(steps.next_obs[at], batch.window_obs[row, i + 1])
            assert torch.equal(steps.next1_obs[at], steps.next_obs[at])
            assert torch.equal(steps.action[at], batch.window_action[row, i])
            assert torch.equal(steps.window_action[at, 1], batch.window_action[row, i + 1])
            assert float(steps.reward[at]) == float(steps.rewards[at]) == float(batch.rewards[row, i])
            assert torch.equal(steps.skill[at], batch.skill[row])
            terminal = row == 1 and i == 2
            assert float(steps.discount[at]) == pytest.approx(0.0 if terminal else 0.9)
    assert steps.window_obs.shape == (15, 2, 2)


def test_one_hot_skills_are_drawn_uniformly() -> None:
    skills, rng = Skills(4), np.random.default_rng(0)
    drawn = np.stack([skills.draw(rng) for _ in range(4000)])
    assert drawn.dtype == np.float32 and set(drawn.sum(1)) == {1.0} and set(np.unique(drawn)) == {0.0, 1.0}
    assert np.abs(drawn.mean(0) - 0.25).max() < 0.03
    assert skills.one_hot(2).tolist() == [0, 0, 1, 0]


def test_continuous_skills_have_their_distribution() -> None:
    rng = np.random.default_rng(1)
    uniform = np.stack([Skills(3, "uniform").draw(rng) for _ in range(4000)])
    normal = np.stack([Skills(3, "normal").draw(rng) for _ in range(4000)])
    assert uniform.min() >= 0 and uniform.max() <= 1 and uniform.mean() == pytest.approx(0.5, abs=0.02)
    assert normal.mean() == pytest.approx(0.0, abs=0.05) and normal.std() == pytest.approx(1.0, abs=0.03)


def test_without_skills_nothing_is_drawn() -> None:
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    assert Skills().draw(rng).shape == (0,)
    assert rng.bit_generator.state == before


def test_a_skill_is_due_at_resets_and_after_each_period() -> None:
    assert [step for step in range(120) if Skills(2, period=50).due(step)] == [0, 50, 100]
    assert [step for step in range(120) if Skills(2, period=None).due(step)] == [0]


def test_windows_are_shown_as_the_mode_says() -> None:
    assert Traits(eta=2.0).shown("window") == Traits(eta=2.0)
    assert Traits().shown("sum").per_step and Traits().shown("sum").n_step is None
    assert Traits().shown("one").n_step == 1 and not Traits().shown("one").per_step


def test_the_skill_that_earned_most_is_that_of_the_largest_mean_and_not_of_the_largest_sum() -> None:
    rng = np.random.default_rng(0)
    chosen, reward = rng.integers(0, 4, 200), rng.normal(size=200).astype(np.float32)
    chosen[chosen == 3] = 1  # nobody ever took the last one
    reward -= 10.0  # so that one without a step would win, and sums go by how often
    means = [reward[chosen == k].mean() for k in range(3)]
    assert Skills(4).most_paid(np.eye(4, dtype=np.float32)[chosen], reward) == int(np.argmax(means))


@pytest.mark.parametrize("skills", [Skills(3, "uniform"), Skills(3, "normal"), Skills(0), Skills(3)])
def test_without_skills_that_can_be_counted_or_a_step_none_earned_most(skills: Skills) -> None:
    steps = 0 if skills.width and skills.kind == "one-hot" else 5
    assert skills.most_paid(np.ones((steps, skills.width), np.float32), np.ones(steps, np.float32)) is None
