from __future__ import annotations

import copy
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
from teb.explorers.rnd import Rnd, RndConfig
from teb.nets.mlp import initialised_from


def at(points: Tensor) -> Batch:
    """Windows that start and end at these points, [B, 2]."""
    return batch_of(points[:, None].repeat(1, 4, 1), torch.zeros(len(points), 4, 2))


def around(x: float, size: int, seed: int) -> Tensor:
    """Points within half a cell of (x, 0)."""
    rng = torch.Generator().manual_seed(seed)
    return torch.rand(size, 2, generator=rng) - 0.5 + torch.tensor([x, 0.0])


@torch.no_grad()
def errors(explorer: Any, obs: Tensor) -> Tensor:
    """Epsilon at observations, [B]."""
    return explorer.error(obs).squeeze(1)


def test_size_and_start_at_the_width_of_the_paper() -> None:
    explorer = Rnd(RndConfig(), Shapes(2, 2), gamma=0.99, n_step=3)
    for net in (explorer.predictor, explorer.target):
        assert sum(p.numel() for p in net.parameters()) == 1_577_472
        for name, parameter in net.named_parameters():
            if "bias" in name:
                assert not bool(parameter.any())
            else:
                tall = parameter if parameter.shape[0] >= parameter.shape[1] else parameter.T
                assert torch.allclose(tall.T @ tall, torch.eye(tall.shape[1]), atol=1e-4)


def test_target_keeps_its_first_values_and_is_in_no_optimiser() -> None:
    agent = small_agent("rnd")
    explorer: Any = agent.explorer
    before = snapshot(explorer.target)
    for seed in range(20):
        agent.update(batch_for(agent, seed), 0)
    assert not changed(before, snapshot(explorer.target))
    assert not any(p.requires_grad for p in explorer.target.parameters())
    frozen = {id(p) for p in explorer.target.parameters()}
    assert agent.explorer_optimiser is not None
    stepped = [p for group in agent.explorer_optimiser.param_groups for p in group["params"]]
    assert not frozen & {id(p) for p in stepped}
    assert {id(p) for p in stepped} == {id(p) for p in explorer.predictor.parameters()}


def test_networks_start_apart_and_one_that_repeats_its_target_is_paid_nothing() -> None:
    explorer, batch = small_explorer("rnd"), random_batch(0)
    assert float(errors(explorer, batch.obs).mean()) > 1e-3
    explorer.predictor.load_state_dict(explorer.target.state_dict())
    assert torch.equal(pay(explorer, batch), torch.zeros(len(batch.obs)))


def test_error_is_the_mean_square_over_features_of_standardised_observations() -> None:
    explorer, batch = small_explorer("rnd", obs_clip=1.5), random_batch(0)
    obs = batch.obs.numpy()
    x = ((obs - obs.mean(0)) / np.sqrt(obs.var(0) + 1e-5)).clip(-1.5, 1.5)
    outputs: list[np.ndarray] = []
    for net in (explorer.predictor, explorer.target):
        w1, b1, w2, b2, w3, b3 = (p.detach().numpy() for p in net.parameters())
        outputs.append(np.maximum(np.maximum(x @ w1.T + b1, 0) @ w2.T + b2, 0) @ w3.T + b3)
    expected = np.square(outputs[0] - outputs[1]).mean(1)
    assert np.allclose(errors(explorer, batch.obs).numpy(), expected, rtol=1e-4)
    loss, metrics = explorer.loss(batch, policy, generator())
    assert float(loss.detach()) == pytest.approx(expected.mean(), rel=1e-4)
    assert float(metrics["distillation_error"]) == pytest.approx(expected.mean(), rel=1e-4)


def quarters(sign: int, size: int, seed: int) -> Tensor:
    """Points of two opposite quarters of a square: those where x y has this sign. Both pairs have the same moments."""
    rng = torch.Generator().manual_seed(seed)
    x, y = 0.3 + torch.rand(2, size, generator=rng)
    side = torch.randint(0, 2, (size,), generator=rng) * 2 - 1
    return torch.stack([side * x, sign * side * y], 1)


@pytest.mark.parametrize("obs_norm", ["batch", "running"])
def test_a_region_that_was_trained_on_is_paid_less_than_one_that_was_not(obs_norm: str) -> None:
    explorer = small_explorer("rnd", obs_norm=obs_norm)
    everywhere = torch.cat([quarters(1, 100, 999), quarters(-1, 100, 998)])
    before = errors(explorer, everywhere).view(2, 100).mean(1)
    teach(explorer, (at(quarters(1, 128, seed)) for seed in range(150)), lr=1e-3)
    known, unknown = pay(explorer, at(everywhere)).view(2, 100).mean(1).tolist()
    after = errors(explorer, everywhere).view(2, 100).mean(1)
    assert 0.5 < float(before[0] / before[1]) < 2, "one of the regions was harder from the start"
    assert float(after[0]) < 0.1 * float(before[0])
    assert known < 0.3 * unknown


@pytest.mark.parametrize(("place", "index"), [("obs", 0), ("next_obs", -1)])
def test_bonus_and_loss_depend_on_one_state_of_the_window_and_on_no_action(place: str, index: int) -> None:
    explorer, batch, other = small_explorer("rnd", reward_on=place), random_batch(0), random_batch(1)
    window_obs = other.window_obs.clone()
    window_obs[:, index] = batch.window_obs[:, index]
    altered = batch_of(window_obs, other.window_action)
    moved = batch_of(other.window_obs, batch.window_action)
    paid = [pay(copy.deepcopy(explorer), b) for b in (batch, altered, moved)]
    losses = [explorer.loss(b, policy, generator())[0].item() for b in (batch, altered, moved)]
    assert torch.equal(paid[0], paid[1]) and losses[0] == losses[1]
    assert not torch.equal(paid[0], paid[2]) and losses[0] != losses[2]
    assert float(paid[0].min()) >= 0


def test_errors_are_divided_by_their_deviation_over_all_batches_so_far() -> None:
    explorer = small_explorer("rnd")
    mean, variance, count = 0.0, 1.0, 1e-4
    for seed in range(6):
        batch = random_batch(seed, obs_scale=1.0 + seed)
        bonus = pay(explorer, batch).double().numpy()
        error = errors(explorer, batch.obs).double().numpy()
        m, delta = len(error), error.mean() - mean
        variance *= count
        variance += error.var(ddof=1) * m + delta**2 * count * m / (count + m)
        mean, count = mean + delta * m / (count + m), count + m
        variance /= count
        assert np.allclose(bonus, error / np.sqrt(variance), rtol=1e-4)


def test_what_enters_the_networks_is_clipped_and_standardised() -> None:
    explorer, obs = small_explorer("rnd"), random_batch(0, size=400).obs
    obs = obs * torch.tensor([1.0, 30.0]) + torch.tensor([7.0, -40.0])
    x = explorer.normalised(obs)
    assert np.allclose(x.mean(0), 0, atol=1e-5) and np.allclose(x.var(0, correction=0), 1, atol=1e-4)
    obs[0] = 1e4
    clipped = explorer.normalised(obs)
    assert torch.equal(clipped[0], torch.full((2,), 5.0)) and float(clipped.abs().max()) == 5.0


@pytest.mark.parametrize("obs_norm", ["batch", "running"])
def test_the_rest_of_the_batch_matters_only_with_moments_of_the_batch(obs_norm: str) -> None:
    explorer = small_explorer("rnd", obs_norm=obs_norm)
    for seed in range(3):
        explorer.after_step(random_batch(seed), policy, generator())
    obs = random_batch(5).obs
    among_others = torch.cat([obs[:1], random_batch(6).obs[1:]])
    first, second = (float(errors(explorer, rows)[0]) for rows in (obs, among_others))
    assert (first == pytest.approx(second, rel=1e-5)) == (obs_norm == "running")


def test_running_moments_are_those_of_the_states_that_are_paid() -> None:
    for place, index in (("obs", 0), ("next_obs", 3)):
        agent = small_agent("rnd", obs_norm="running", reward_on=place)
        batches = [batch_for(agent, seed) for seed in range(4)]
        for batch in batches:
            agent.update(batch, 0)
        seen = torch.cat([batch.window_obs[:, index] for batch in batches])
        explorer: Any = agent.explorer
        assert torch.allclose(explorer.obs_moments.mean, seen.mean(0), atol=1e-4)
        assert torch.allclose(explorer.obs_moments.variance, seen.var(0), rtol=0.05)


def test_rounding_adds_next_to_nothing_to_an_error_of_the_size_that_learning_starts_with() -> None:
    config = RndConfig(hidden=64, features=64)
    with initialised_from(0):
        exact = Rnd(config, Shapes(2, 2), gamma=0.99, n_step=3)
    rounded = Rnd(config, Shapes(2, 2), gamma=0.99, n_step=3, compute=torch.bfloat16)
    start = float(errors(exact, around(0.0, 256, 1)).mean())
    teach(exact, (at(around(0.0, 64, seed)) for seed in range(300)), lr=1e-3)
    rounded.load_state_dict(exact.state_dict())
    obs = around(0.0, 256, 1)
    one, other = (errors(net, obs) for net in (exact, rounded))
    assert float(one.mean()) < 0.02 * start, "it has learnt little"
    assert 0 < float((other - one).abs().max()) < 1e-3 * start


def test_positions_that_are_one_in_bfloat16_are_told_apart_in_it() -> None:
    config = RndConfig(hidden=64, features=64, obs_norm="running")
    with initialised_from(0):
        explorer = Rnd(config, Shapes(2, 2), gamma=0.99, n_step=3, compute=torch.bfloat16)
    near = torch.tensor([[4.500, -3.0], [4.510, -3.0]])
    assert torch.equal(*near.bfloat16())
    one, other = errors(explorer, near).tolist()
    assert one != other


@pytest.mark.parametrize(
    "wrong",
    [{"features": 0}, {"obs_clip": 0.0}, {"reward_on": "both"}, {"obs_norm": "none"}, {"eta": -1.0}],
    ids=str,
)
def test_values_that_cannot_work_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RndConfig(**wrong)
