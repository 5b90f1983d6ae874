"""Explorers of transitions on windows of n steps: what each mode shows them, and what it sums."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from explorer_setup import BATCH, GAMMA, batch_for, generator, small_agent

from teb.agents.protocol import Batch
from teb.explorers import REGISTRY

of_transitions = pytest.mark.parametrize(
    "name", [name for name, entry in REGISTRY.items() if hasattr(entry.config, "nstep_mode")]
)


def agent_in(name: str, mode: str) -> Any:
    agent = small_agent(name, nstep_mode=mode)
    for seed in range(3):
        agent.update(batch_for(agent, seed), 0)
    return agent


@of_transitions
def test_a_whole_window_is_one_transition_of_three_steps(name: str) -> None:
    agent = agent_in(name, "window")
    assert agent.sampling.n_step == 3
    batch = batch_for(agent, 7)
    inside = batch.window_obs.clone()
    inside[:, 1:3] += 5.0
    twin = copy.deepcopy(agent)
    same = agent.explorer.reward(batch._replace(window_obs=inside), agent.policy, generator()).bonus
    paid = twin.explorer.reward(batch, twin.policy, generator()).bonus
    assert torch.equal(same, paid)


@of_transitions
def test_single_steps_are_shown_in_turn_and_their_payments_are_summed_with_discount(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_in(name, "sum")
    batch = batch_for(agent, 7)
    shown: list[tuple[Batch, torch.Tensor]] = []
    pay, learn = agent.explorer.reward, agent.explorer.loss

    def spied_reward(batch: Batch, *others: Any) -> Any:
        paid = pay(batch, *others)
        shown.append((batch, paid.bonus))
        return paid

    def spied_loss(batch: Batch, *others: Any) -> Any:
        shown.append((batch, batch.reward))
        return learn(batch, *others)

    monkeypatch.setattr(agent.explorer, "reward", spied_reward)
    monkeypatch.setattr(agent.explorer, "loss", spied_loss)
    agent.update(batch, 0)
    assert len(shown) == 2
    for step, _ in shown:
        assert torch.equal(step.obs.view(BATCH, 3, -1), batch.window_obs[:, :3])
        assert torch.equal(step.next_obs.view(BATCH, 3, -1), batch.window_obs[:, 1:])
    monkeypatch.setattr(agent.explorer, "reward", pay)
    twin = copy.deepcopy(agent)
    each = twin.explorer.reward(shown[1][0], twin.policy, copy.deepcopy(agent.exploring)).bonus
    summed = each.view(BATCH, 3) @ torch.tensor([1.0, GAMMA, GAMMA**2])
    assert torch.allclose(agent.pay(batch).bonus.squeeze(1), summed, atol=1e-5)


@of_transitions
def test_windows_of_one_step_are_asked_for(name: str) -> None:
    agent = agent_in(name, "one")
    assert agent.sampling.n_step == 1
    assert agent.explorer.traits.n_step == 1 and not agent.explorer.traits.per_step
