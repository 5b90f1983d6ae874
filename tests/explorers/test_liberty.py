"""LIBERTY: what the metric is regressed on, what it is trained by, and the shaping that it pays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from explorer_setup import GAMMA, SHAPES, batch_for, generator, policy, random_batch, small_agent
from scipy import stats
from torch import Tensor

from teb.agents.protocol import Batch
from teb.explorers.liberty import Liberty, LibertyConfig
from teb.maths.shaping import Shaping
from teb.nets.mlp import initialised_from

BATCH = random_batch(0, reward_scale=1.0, ended=3)


def explorer(seed: int = 0, gamma: float = GAMMA, **changes: Any) -> Liberty:
    values: dict[str, Any] = {"pred_hidden": 16, "embedding": 5} | changes
    with initialised_from(seed):
        return Liberty(LibertyConfig(**values), SHAPES, gamma=gamma, n_step=3)


def last(network: Any) -> Any:
    """The last layer of a model."""
    return network[3]


def paid(module: Liberty, batch: Batch, seed: int = 0) -> Tensor:
    return module.reward(batch, policy, generator(seed)).bonus.squeeze(1)


def arrays(module: Liberty, batch: Batch, next_obs: Tensor) -> dict[str, np.ndarray]:
    """Outputs of the parts of the metric, straight from the networks."""
    with torch.no_grad():
        mean, sigma = module.predicted(batch.obs, batch.action)
        found = {
            "embedding": module.embed(batch.obs),
            "mean": mean,
            "sigma": sigma,
            "inverse": torch.tanh(module.inverse(torch.cat([batch.obs, next_obs], 1))),
        }
    return {name: value.numpy() for name, value in found.items()}


@pytest.mark.parametrize(
    ("options", "c_t", "c_inv"),
    [
        ({}, GAMMA, GAMMA),
        ({"c_t": 0.5}, 0.5, GAMMA),
        ({"c_inv": 0.0}, GAMMA, 0.0),
        ({"dyn_horizon": "n"}, GAMMA, GAMMA),
        ({"ground": "obs"}, GAMMA, GAMMA),
    ],
    ids=str,
)
def test_metric_is_regressed_on_rewards_transitions_and_inverse_predictions(
    options: dict[str, Any], c_t: float, c_inv: float
) -> None:
    module = explorer(**options)
    whole = options.get("dyn_horizon") == "n"
    next_obs = BATCH.next_obs if whole else BATCH.window_obs[:, 1]
    reward = (BATCH.reward if whole else BATCH.rewards[:, :1]).numpy()[:, 0]
    x = arrays(module, BATCH, next_obs)
    order = torch.randperm(len(reward), generator=generator(4)).numpy()
    w2 = np.sqrt(
        np.square(x["mean"] - x["mean"][order]).sum(1) + np.square(x["sigma"] - x["sigma"][order]).sum(1)
    )
    inverse = np.abs(x["inverse"] - x["inverse"][order]).sum(1)
    target = np.abs(reward - reward[order]) + c_t * w2 + c_inv * inverse
    distance = np.linalg.norm(x["embedding"] - x["embedding"][order], axis=1)
    metrics = module.loss(BATCH, policy, generator(4))[1]
    assert float(metrics["metric_loss"]) == pytest.approx(np.square(distance - target).mean(), rel=1e-3)
    assert float(metrics["metric_target"]) == pytest.approx(target.mean(), rel=1e-3)
    assert float(metrics["metric_mean"]) == pytest.approx(distance.mean(), rel=1e-3)


@pytest.mark.parametrize("ground", ["embedding", "obs"])
def test_losses_of_transition_and_inverse_model(ground: str) -> None:
    module = explorer(ground=ground, aux_weight=0.3)
    next_obs = BATCH.window_obs[:, 1]
    x = arrays(module, BATCH, next_obs)
    with torch.no_grad():
        following = (next_obs if ground == "obs" else module.embed(next_obs)).numpy()
    nll = -stats.norm.logpdf(following, x["mean"], x["sigma"]).mean() - 0.5 * np.log(2 * np.pi)
    squared = np.square(BATCH.action.numpy() - x["inverse"]).mean()
    loss, metrics = module.loss(BATCH, policy, generator())
    assert float(metrics["transition_nll"]) == pytest.approx(nll, rel=1e-3)
    assert float(metrics["inverse_loss"]) == pytest.approx(squared, rel=1e-4)
    expected = nll + 0.3 * (squared + float(metrics["metric_loss"]))
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-4)
    absolute = explorer(ground=ground, inverse_loss="l1").loss(BATCH, policy, generator())[1]["inverse_loss"]
    assert float(absolute) == pytest.approx(np.abs(BATCH.action.numpy() - x["inverse"]).mean(), rel=1e-4)


@pytest.mark.parametrize("ground", ["embedding", "obs"])
def test_each_part_learns_from_its_own_loss_only(ground: str) -> None:
    alone = explorer(ground=ground, aux_weight=0.0)
    alone.loss(BATCH, policy, generator())[0].backward()
    moved = {n.split(".")[0] for n, p in alone.named_parameters() if p.grad is not None and p.grad.any()}
    assert moved == {"transition"}, "the metric's loss reaches only the embedding, the transition's not"
    light, heavy = explorer(ground=ground, aux_weight=1.0), explorer(ground=ground, aux_weight=2.0)
    for module in (light, heavy):
        module.loss(BATCH, policy, generator())[0].backward()
    for (name, p), (_, q) in zip(light.named_parameters(), heavy.named_parameters(), strict=True):
        assert p.grad is not None and q.grad is not None and bool(p.grad.any()), name
        factor = 1.0 if name.startswith("transition") else 2.0
        assert torch.allclose(q.grad, factor * p.grad, rtol=1e-4, atol=1e-7), name


def test_inverse_model_gets_no_gradient_from_the_metric() -> None:
    module = explorer(aux_weight=1.0)
    plain, _ = module.loss(BATCH, policy, generator())
    plain.backward()
    assert last(module.inverse).weight.grad is not None
    found = last(module.inverse).weight.grad.clone()
    module.zero_grad()
    action = torch.tanh(module.inverse(torch.cat([BATCH.obs, BATCH.next1_obs], 1)))
    (BATCH.action - action).square().mean().backward()
    assert torch.allclose(found, last(module.inverse).weight.grad, rtol=1e-4)


def phi(module: Liberty, obs: Tensor, anchor: Tensor) -> np.ndarray:
    with torch.no_grad():
        return np.linalg.norm((module.embed(obs) - anchor).numpy(), axis=-1)


@pytest.mark.parametrize(
    ("shaping", "step", "factor"),
    [
        ("window_gamma", 3, GAMMA),
        ("window_gamma_n", 3, GAMMA**3),
        ("sum", 3, GAMMA**3),
        ("first_step", 1, GAMMA),
    ],
)
def test_bonus_is_the_shaping_of_the_distance_to_the_first_observation(
    shaping: Shaping, step: int, factor: float
) -> None:
    module = explorer(shaping=shaping)
    with torch.no_grad():
        anchor = module.embed(BATCH.first_obs)
    expected = factor * phi(module, BATCH.window_obs[:, step], anchor) - phi(module, BATCH.obs, anchor)
    assert np.allclose(paid(module, BATCH).numpy(), expected, atol=1e-5)


def test_summed_steps_telescope_to_the_whole_window() -> None:
    whole = explorer(shaping="sum")
    steps = explorer(shaping="first_step")
    total = torch.zeros(len(BATCH.obs))
    for step in range(3):
        window = BATCH.window_obs[:, step : step + 2]
        single = BATCH._replace(obs=window[:, 0], next_obs=window[:, 1], window_obs=window)
        total += GAMMA**step * paid(steps, single)
    assert torch.allclose(paid(whole, BATCH), total, atol=1e-5)


def test_one_step_everywhere() -> None:
    agent = small_agent("liberty", shaping="one")
    assert agent.sampling is not None and agent.sampling.n_step == 1
    module: Any = agent.explorer
    assert module.end_factor == pytest.approx(GAMMA)
    whole = small_agent("liberty").sampling
    assert whole is not None and whole.n_step == 3


def test_a_state_like_the_first_one_has_no_potential() -> None:
    module = explorer()
    still = BATCH.first_obs.expand(len(BATCH.obs), -1)
    bonus = paid(module, BATCH._replace(obs=still, next_obs=still))
    assert torch.allclose(bonus, torch.zeros_like(bonus), atol=1e-6)


def test_anchors() -> None:
    order = torch.randperm(len(BATCH.obs), generator=generator(0))
    for name in ("batch_mean", "random", "ema"):
        module = explorer(anchor=name)
        with torch.no_grad():
            latent = module.embed(BATCH.obs)
        anchor = latent[order] if name == "random" else latent.mean(0)
        expected = GAMMA * phi(module, BATCH.next_obs, anchor) - phi(module, BATCH.obs, anchor)
        assert np.allclose(paid(module, BATCH).numpy(), expected, atol=1e-5), name


def test_moving_anchor_remembers_earlier_batches() -> None:
    module = explorer(anchor="ema", anchor_rate=0.25)
    means = []
    for seed in range(3):
        batch = random_batch(seed)
        with torch.no_grad():
            means.append(module.embed(batch.obs).mean(0))
        module.after_step(batch, policy, generator())
    expected = means[0]
    for mean in means[1:]:
        expected = 0.75 * expected + 0.25 * mean
    other = random_batch(9)
    with torch.no_grad():
        found = module.anchor(module.embed(other.obs), other, generator())
    assert torch.allclose(found[0], expected, atol=1e-6)


@pytest.mark.parametrize("shaping", ["window_gamma", "first_step", "sum"])
def test_terminal_states_have_no_potential_unless_asked_for(shaping: Shaping) -> None:
    batch = random_batch(0, terminal=4)
    zero, raw = (explorer(terminal_potential=kind, shaping=shaping) for kind in ("zero", "raw"))
    with torch.no_grad():
        anchor = zero.embed(batch.first_obs)
    gone = paid(raw, batch) - paid(zero, batch)
    if shaping == "first_step":  # the terminal state lies two steps further on
        assert not bool(gone.any())
        return
    assert bool((gone[:4] > 0).all()) and not bool(gone[4:].any())
    assert np.allclose(paid(zero, batch)[:4].numpy(), -phi(zero, batch.obs[:4], anchor), atol=1e-6)


def test_slow_copy_stands_behind_the_target_and_follows() -> None:
    module = explorer(metric_target="ema", metric_tau=0.25)
    assert module.slow_embed is not None
    with torch.no_grad():
        last(module.embed).weight.add_(0.5)
    kept = last(module.embed).weight.detach().clone()
    gap = kept - last(module.slow_embed).weight.detach()
    assert torch.equal(module.following(BATCH.next1_obs), module.slow_embed(BATCH.next1_obs).detach())
    assert not torch.equal(module.following(BATCH.next1_obs), module.embed(BATCH.next1_obs).detach())
    module.after_step(BATCH, policy, generator())
    assert torch.allclose(last(module.embed).weight - last(module.slow_embed).weight, 0.75 * gap, atol=1e-6)
    assert torch.equal(last(module.embed).weight, kept), "it is the slow copy that moves"
    declared = {id(p) for group in module.parameter_groups() for p in group["params"]}
    assert not declared & {id(p) for p in module.slow_embed.parameters()}


def test_metric_tells_states_apart_by_the_inverse_term_when_there_is_no_reward() -> None:
    agent = small_agent("liberty", model_lr=3e-3, c_t=0.0, pred_hidden=32)
    rows: list[dict[str, Tensor]] = []
    for seed in range(250):
        batch = batch_for(agent, seed)
        # The action follows from the state: its sign is that of the first coordinate.
        action = batch.window_action.clone()
        action[:, 0] = 0.8 * torch.sign(batch.obs[:, :1]).expand(-1, 2)
        window = batch.window_obs.clone()
        window[:, 1] = window[:, 0] + action[:, 0]
        batch = batch._replace(action=action[:, 0], window_action=action, window_obs=window)
        rows.append(agent.update(batch, 0))
    module: Any = agent.explorer
    with torch.no_grad():
        latent = module.embed(torch.tensor([[2.0, 0.0], [2.0, 1.5], [-2.0, 0.0]]))
    same, apart = float((latent[0] - latent[1]).norm()), float((latent[0] - latent[2]).norm())
    assert apart == pytest.approx(GAMMA * 3.2, rel=0.25)
    assert same < 0.4 * apart
    assert float(rows[-1]["inverse_loss"]) < 0.3 * float(rows[0]["inverse_loss"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shaping": "all"}, "shaping: must be one of window_gamma"),
        ({"anchor": "particles"}, "anchor: must be one of s0, batch_mean, random, ema"),
        ({"c_t": 1.0}, r"c_t: must lie in \[0, 1\)"),
        ({"embedding": 0}, "embedding: must be above 0"),
        ({"aux_weight": -1.0}, "aux_weight: must lie in"),
    ],
)
def test_impossible_options_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LibertyConfig(**changes)
