from __future__ import annotations

import pytest
import torch
from explorer_setup import generator, policy, random_batch, small_agent

from teb.explorers.none import NoBonus


def test_no_bonus_pays_zero_and_learns_nothing() -> None:
    agent = small_agent("eta0")
    explorer = agent.explorer
    assert isinstance(explorer, NoBonus)
    assert agent.explorer_optimiser is None and explorer.parameter_groups() == []
    reward, metrics, *_ = explorer.reward(random_batch(0, reward_scale=1.0), policy, generator())
    assert torch.equal(reward, torch.zeros(32, 1)) and metrics == {}
    with pytest.raises(NotImplementedError):
        explorer.loss(random_batch(0), policy, generator())
