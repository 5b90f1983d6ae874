from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from agent_setup import random_batch
from scipy import stats

from teb.agents.protocol import Runtime, Shapes
from teb.agents.uniform import UniformAgent


def uniform(seed: int = 0, action: int = 3) -> UniformAgent:
    return UniformAgent(Shapes(2, action), Runtime(seed, torch.device("cpu"), torch.float32))


def draws(agent: UniformAgent, count: int, explore: bool = True) -> np.ndarray:
    obs, skill = np.zeros(2, np.float32), np.zeros(0, np.float32)
    return np.array([agent.act(obs, skill, step, explore=explore) for step in range(count)])


@pytest.mark.parametrize("explore", [True, False])
def test_actions_are_uniform_on_the_box_in_every_dimension(explore: bool) -> None:
    actions = draws(uniform(), 4000, explore)
    assert actions.dtype == np.float32 and actions.shape == (4000, 3)
    assert np.abs(actions).max() <= 1
    for column in actions.T:
        assert stats.kstest(column, stats.uniform(-1, 2).cdf).pvalue > 1e-3


def test_dimensions_and_successive_actions_are_uncorrelated() -> None:
    actions = draws(uniform(), 4000)
    assert np.abs(np.corrcoef(actions.T)[np.triu_indices(3, 1)]).max() < 0.06
    assert abs(np.corrcoef(actions[:-1, 0], actions[1:, 0])[0, 1]) < 0.06


def test_same_seed_same_actions_and_another_seed_others() -> None:
    first, again, other = (draws(uniform(seed), 10) for seed in (4, 4, 5))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_state_continues_the_stream_in_a_fresh_agent() -> None:
    first, fresh = uniform(0), uniform(1)
    draws(first, 17)
    state = copy.deepcopy(first.state())
    expected = draws(first, 10)
    fresh.load(state)
    assert np.array_equal(draws(fresh, 10), expected)


def test_there_is_nothing_to_sample_and_nothing_to_update() -> None:
    agent = uniform()
    assert agent.sampling is None and agent.skills.width == 0
    with pytest.raises(NotImplementedError):
        agent.update(random_batch(), 0)
