from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from explorer_setup import (
    batch_for,
    batch_of,
    changed,
    generator,
    pay,
    policy,
    random_batch,
    small_agent,
    small_explorer,
    snapshot,
    teach,
)
from torch import Tensor

from teb.agents.protocol import Batch, Shapes
from teb.explorers.icm import Icm, IcmConfig
from teb.nets.mlp import Linear

REACH = 0.95


def predict_nothing(explorer: Any) -> None:
    """Let the forward model expect the observation 0 everywhere."""
    with torch.no_grad():
        for parameter in explorer.models.following.parameters():
            parameter.zero_()


def test_size_and_start_at_the_width_of_the_paper() -> None:
    explorer = Icm(IcmConfig(), Shapes(2, 2), gamma=0.99, n_step=3)
    assert sum(p.numel() for p in explorer.parameters()) == 14_340
    for layer in explorer.modules():
        if isinstance(layer, Linear):
            assert not bool(layer.bias.any())
            tall = layer.weight if layer.weight.shape[0] >= layer.weight.shape[1] else layer.weight.T
            assert torch.allclose(tall.T @ tall, torch.eye(tall.shape[1]), atol=1e-5)


def test_it_is_paid_for_what_it_did_not_expect_at_the_end_of_the_window() -> None:
    explorer, batch = small_explorer("icm"), random_batch(0)
    predict_nothing(explorer)
    window_obs = batch.window_obs.clone()
    window_obs[0, -1] = 0.0
    window_obs[1, -1] = torch.tensor([3.0, 4.0])
    bonus = pay(explorer, batch_of(window_obs, batch.window_action))
    assert float(bonus[0]) == 0.0
    assert float(bonus[1]) == pytest.approx(math.log(6))
    expected = np.log1p(np.linalg.norm(window_obs[:, 3].numpy(), axis=1))
    assert np.allclose(bonus.numpy(), expected, atol=1e-6)


def test_the_scale_of_errors_stands_inside_the_logarithm() -> None:
    batch = random_batch(0)
    once, thrice = (pay(small_explorer("icm", error_scale=scale), batch) for scale in (1.0, 3.0))
    assert torch.allclose(thrice, torch.log1p(3 * once.expm1()), atol=1e-5)


def test_loss_is_the_mean_length_of_both_errors_weighed() -> None:
    batch = random_batch(0)
    for weight in (0.0, 1.0, 4.0):
        explorer = small_explorer("icm", inverse_weight=weight)
        loss, metrics = explorer.loss(batch, policy, generator())
        with torch.no_grad():
            after = explorer.models.predicted_latent(batch.obs, batch.action)
            taken = explorer.models.predicted_action(batch.obs, batch.next_obs)
        forward = np.linalg.norm((batch.window_obs[:, 3] - after).numpy(), axis=1).mean()
        inverse = np.linalg.norm((batch.action - taken).numpy(), axis=1).mean()
        assert float(loss.detach()) == pytest.approx(forward + weight * inverse, rel=1e-5)
        assert float(metrics["forward_error"]) == pytest.approx(forward, rel=1e-5)
        assert float(metrics["inverse_error"]) == pytest.approx(inverse, rel=1e-5)


def test_on_states_the_inverse_model_cannot_influence_any_bonus() -> None:
    with_it, without = (small_agent("icm", inverse_weight=weight) for weight in (1.0, 0.0))
    for seed in range(30):
        for agent in (with_it, without):
            agent.update(batch_for(agent, seed), 0)
        batch = batch_for(with_it, 100 + seed)
        assert torch.equal(pay(with_it.explorer, batch), pay(without.explorer, batch))
    one, other = (snapshot(small.explorer) for small in (with_it, without))  # pyright: ignore[reportArgumentType]
    assert {name.split(".")[1] for name in changed(one, other)} == {"inverse"}


@pytest.mark.parametrize("silenced", ["forward_error", "inverse_error"])
def test_each_loss_trains_the_latent_of_the_start_and_none_that_of_the_end(
    silenced: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    explorer = small_explorer("icm")
    monkeypatch.setattr(explorer.models, silenced, lambda x, a, y: torch.zeros(len(x), 1))
    batch = random_batch(0)
    latent, next_latent = (rows.clone().requires_grad_() for rows in (batch.obs, batch.next_obs))
    explorer.loss(batch._replace(obs=latent, next_obs=next_latent), policy, generator())[0].backward()
    assert latent.grad is not None and bool(latent.grad.any(1).all())
    assert next_latent.grad is None


def walks(n: int, seed: int) -> Iterator[Batch]:
    """Windows of n free moves, o' = o + 0.95 a, with uniform actions."""
    rng = torch.Generator().manual_seed(seed)
    while True:
        start = 2 * torch.rand(256, 1, 2, generator=rng) - 1
        action = 2 * torch.rand(256, n + 1, 2, generator=rng) - 1
        moves = REACH * action[:, :n].cumsum(1)
        yield batch_of(torch.cat([start, start + moves], 1), action)


def taught_to_walk(n: int) -> tuple[Tensor, Tensor]:
    """The bonus on windows of n moves before and after learning from such windows."""
    explorer, lessons, fresh = small_explorer("icm", hidden=64), walks(n, 0), next(walks(n, 1))
    before = pay(explorer, fresh)
    teach(explorer, (next(lessons) for _ in range(400)))
    teach(explorer, (next(lessons) for _ in range(200)), lr=3e-4)
    return before, pay(explorer, fresh)


def test_what_can_be_predicted_is_paid_less_and_less() -> None:
    before, after = taught_to_walk(1)
    assert float(after.mean()) < float(before.mean()) / 10


def test_of_windows_the_actions_that_are_not_seen_stay_a_surprise() -> None:
    _, after = taught_to_walk(3)
    hidden = REACH * np.random.default_rng(0).uniform(-1, 1, (200_000, 2, 2)).sum(1)
    floor = np.log1p(np.linalg.norm(hidden, axis=1)).mean()
    assert floor == pytest.approx(0.66, abs=0.01)
    assert 0.95 * floor < float(after.mean()) < 1.1 * floor


@pytest.mark.parametrize(
    "wrong",
    [{"hidden": 0}, {"model_lr": -1.0}, {"error_scale": 0.0}, {"inverse_weight": -0.1}, {"nstep_mode": "x"}],
    ids=str,
)
def test_values_that_cannot_work_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        IcmConfig(**wrong)
