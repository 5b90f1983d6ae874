"""The losses of the metric's two models, and which parameters they train."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from explorer_setup import (
    GAMMA,
    SHAPES,
    batch_for,
    changed,
    generator,
    policy,
    random_batch,
    small_agent,
    small_teb,
    snapshot,
)
from scipy import stats

from teb.explorers.teb import Teb

BATCH = random_batch(0, reward_scale=1.0, ended=3)
LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)


def parts(explorer: Teb, horizon: int = 3, steps: int = 1) -> tuple[float, float]:
    """L_rew and L_dyn from SciPy's normal density."""
    assert explorer.online is not None
    with torch.no_grad():
        p = {k: v.numpy() for k, v in explorer.online(BATCH.obs, BATCH.action)._asdict().items()}
    returns = BATCH.rewards.numpy()[:, :horizon] @ (GAMMA ** np.arange(horizon))
    reward = -stats.norm.logpdf(returns[:, None], p["reward"], p["reward_sigma"]).mean()
    following = BATCH.window_obs[:, steps].numpy()
    if not explorer.online.transition.gaussian:
        return reward - LOG_ROOT_TWO_PI, 0.5 * np.square(following - p["next"]).mean()
    transition = -stats.norm.logpdf(following, p["next"], p["next_sigma"]).mean()
    return reward - LOG_ROOT_TWO_PI, transition - LOG_ROOT_TWO_PI


def loss(explorer: Teb) -> float:
    return float(explorer.loss(BATCH, policy, generator())[0].detach())


@pytest.mark.parametrize(
    ("options", "reward_weight", "transition_weight"),
    [
        ({}, 0.5, 1e-4),
        ({"lambda_r": 2.0}, 2.0, 1e-4),
        ({"lambda_p": 0.7}, 0.5, 0.7),
        ({"nll_scale": 0.5}, 0.25, 1e-4),
        ({"dyn_head_unscaled": True}, 0.5, 1.0),
        ({"reward_model": "frozen", "lambda_p": 0.7}, 0.0, 0.7),
        ({"reward_model": "off", "lambda_p": 0.7}, 0.0, 0.7),
        ({"transition": "deterministic", "lambda_p": 0.7}, 0.5, 0.7),
        ({"sigma_min": 0.1, "sigma_max": 0.2}, 0.5, 1e-4),
        ({"sigma_param": "bounded_log"}, 0.5, 1e-4),
        ({"sigma_param": "clamp", "sigma_min": 0.01}, 0.5, 1e-4),
    ],
    ids=str,
)
def test_loss_weighs_both_models(
    options: dict[str, Any], reward_weight: float, transition_weight: float
) -> None:
    explorer = small_teb(**options)
    reward, transition = parts(explorer)
    assert loss(explorer) == pytest.approx(reward_weight * reward + transition_weight * transition, rel=1e-4)


@pytest.mark.parametrize("horizon", [1, 2, 3])
def test_predictor_regresses_the_discounted_return_of_its_horizon(horizon: int) -> None:
    explorer = small_teb(reward_horizon=horizon, lambda_p=0.0)
    assert explorer.traits.horizon == horizon
    assert loss(explorer) == pytest.approx(0.5 * parts(explorer, horizon)[0], rel=1e-4)


@pytest.mark.parametrize(("dyn_horizon", "steps"), [("1", 1), ("n", 3)])
def test_transition_model_predicts_the_next_or_the_last_observation(dyn_horizon: str, steps: int) -> None:
    explorer = small_teb(dyn_horizon=dyn_horizon, lambda_r=0.0, lambda_p=1.0)
    assert loss(explorer) == pytest.approx(parts(explorer, steps=steps)[1], rel=1e-4)


def test_metrics_of_the_loss() -> None:
    explorer = small_teb()
    metrics = explorer.loss(BATCH, policy, generator())[1]
    reward, transition = parts(explorer)
    assert float(metrics["reward_nll"]) == pytest.approx(reward, rel=1e-4)
    assert float(metrics["transition_nll"]) == pytest.approx(transition, rel=1e-4)
    assert explorer.online is not None
    with torch.no_grad():
        prediction = explorer.online(BATCH.obs, BATCH.action)
    miss = np.square(prediction.next.numpy() - BATCH.next1_obs.numpy()).sum(1).mean() ** 0.5
    assert float(metrics["transition_rmse"]) == pytest.approx(miss, rel=1e-4)
    assert float(metrics["sigma_mean"]) == pytest.approx(float(prediction.reward_sigma.mean()), rel=1e-5)


def test_loss_gives_no_gradient_to_the_next_observation() -> None:
    window_obs = BATCH.window_obs.clone().requires_grad_()
    small_teb(dyn_head_unscaled=True).loss(BATCH._replace(window_obs=window_obs), policy, generator())[
        0
    ].backward()
    assert window_obs.grad is None or not bool(window_obs.grad.any())


@pytest.mark.parametrize("reward_model", ["trained", "frozen", "off"])
def test_reward_model_moves_only_if_trained(reward_model: str) -> None:
    agent = small_agent("teb", reward_model=reward_model)
    explorer: Any = agent.explorer
    before = snapshot(explorer)
    for seed in range(3):
        agent.update(batch_for(agent, seed), 0)
    moved = {name.split(".")[1] for name in changed(before, snapshot(explorer))}
    assert moved == ({"reward", "transition"} if reward_model == "trained" else {"transition"})


def test_slow_copy_is_not_declared_for_training() -> None:
    explorer = small_teb(metric_target="ema")
    declared = {id(p) for group in explorer.parameter_groups() for p in group["params"]}
    assert explorer.online is not None and explorer.slow is not None
    assert declared == {id(p) for p in explorer.online.parameters()}


def test_learning_rate_and_clip_are_handed_on() -> None:
    explorer = small_teb(model_lr=0.02, rep_grad_clip=3.0)
    assert [group["lr"] for group in explorer.parameter_groups()] == [0.02]
    assert explorer.traits.grad_clip == 3.0
    agent = small_agent("teb", model_lr=0.02)
    assert agent.explorer_optimiser is not None
    assert [group["lr"] for group in agent.explorer_optimiser.param_groups] == [0.02]


def test_a_first_step_of_adam_is_of_the_size_of_the_learning_rate() -> None:
    moves: list[float] = []
    for rate in (1e-3, 1e-2):
        agent = small_agent("teb", model_lr=rate)
        explorer: Any = agent.explorer
        before = snapshot(explorer)
        agent.update(batch_for(agent, 0, reward_scale=1.0), 0)
        moves.append(
            float(
                (snapshot(explorer)["online.reward.0.weight"] - before["online.reward.0.weight"]).abs().max()
            )
        )
    assert moves == pytest.approx([1e-3, 1e-2], rel=0.01)


@pytest.mark.parametrize("hidden", [16, 48])
def test_hidden_width_of_both_models(hidden: int) -> None:
    explorer = small_teb(pred_hidden=hidden)
    inputs = SHAPES.obs + SHAPES.action
    expected = sum(inputs * hidden + 3 * hidden + hidden * out + out for out in (2, 2 * SHAPES.obs))
    assert sum(p.numel() for p in explorer.parameters()) == expected


def test_models_learn_the_transition_of_a_simple_world() -> None:
    agent = small_agent("teb", model_lr=3e-3, dyn_head_unscaled=True)
    errors: list[float] = []
    for seed in range(150):
        batch = batch_for(agent, seed)
        window_obs = batch.window_obs.clone()
        for step in range(3):
            window_obs[:, step + 1] = window_obs[:, step] + 0.95 * batch.window_action[:, step]
        batch = batch._replace(window_obs=window_obs, next_obs=window_obs[:, -1])
        errors.append(float(agent.update(batch, 0)["transition_rmse"]))
    assert np.mean(errors[-10:]) < 0.4 * np.mean(errors[:10])


def test_reward_decoder_reads_a_draw_of_the_next_latent_and_trains_the_transition_model_only() -> None:
    explorer = small_teb(dyn_reward_decoder=True, lambda_r=0.0, lambda_p=1.0)
    assert explorer.online is not None and explorer.online.decoder is not None
    with torch.no_grad():
        prediction = explorer.online(BATCH.obs, BATCH.action)
        noise = torch.randn(prediction.next.shape, generator=generator())
        decoded = explorer.online.decoder(prediction.next + prediction.next_sigma * noise)
    error = float(np.square(decoded.numpy() - BATCH.rewards.numpy()[:, :1]).mean())
    assert loss(explorer) == pytest.approx(parts(explorer)[1] + error, rel=1e-5)
    explorer.loss(BATCH, policy, generator())[0].backward()
    moved = {
        name.split(".")[1] for name, p in explorer.named_parameters() if p.grad is not None and p.grad.any()
    }
    assert moved == {"transition", "decoder"}
