"""RAP: distance, target and models against loops over pairs, who trains whom, and what the formulas do over time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from latent_setup import GAMMA, SHAPES, A, B, D, generator, latents, policy
from torch import Tensor, nn

from teb.agents.protocol import Batch
from teb.nets.mlp import initialised_from
from teb.representations.rap import Rap, RapConfig

ONLY_METRIC = {"lambda_r": 0.0, "lambda_p": 0.0}


def rap(**changes: Any) -> Rap:
    with initialised_from(0):
        return Rap(RapConfig(**{"pred_hidden": 16, **changes}), SHAPES, gamma=GAMMA, n_step=3)


def said(seed: int = 3, sigma: float = 0.3, rewards: float = 1.0) -> tuple[Tensor, ...]:
    """Rewards and their deviations, means and deviations of next latents, as the models would say them."""
    rng = generator(seed)
    reward, spread = rewards * torch.randn(B, 1, generator=rng), sigma * torch.rand(B, 1, generator=rng)
    mean, deviation = torch.randn(B, D, generator=rng), torch.rand(B, D, generator=rng)
    return reward, spread, mean, deviation


def by_loops(z: Tensor, predicted: tuple[Tensor, ...], beta: float, target: str) -> float:
    """The metric loss over all pairs, one number at a time."""
    points = z.detach().double().numpy()
    reward, sigma, mean, spread = (x.double().numpy() for x in predicted)
    losses = []
    for i in range(B):
        for j in range(B):
            x, y = points[i], points[j]
            cosine = np.clip(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)), -1, 1)
            u = x @ x + y @ y + beta * np.arccos(cosine)
            radii = [
                np.sqrt((mean[i, d] - mean[j, d]) ** 2 + (spread[i, d] - spread[j, d]) ** 2) for d in range(D)
            ]
            t = GAMMA * sum(radii) / D
            rho = (reward[i, 0] - reward[j, 0]) ** 2 - sigma[i, 0] ** 2 - sigma[j, 0] ** 2
            error = (u - t) ** 2 - rho if target == "squared" else u - (np.sqrt(max(rho, 0.0)) + t)
            losses.append(0.5 * error**2 if abs(error) < 1 else abs(error) - 0.5)
    return float(np.mean(losses))


@pytest.mark.parametrize("target", ["squared", "plain"])
@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_the_metric_loss_is_that_of_loops_over_all_pairs(
    target: Any, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batch, predicted = rap(pairing="all", target=target, beta=0.5, **ONLY_METRIC), latents(), said()
    batch = batch._replace(obs=(scale * batch.obs.detach()).requires_grad_())
    learnt = model.models_loss(batch, generator())
    monkeypatch.setattr(model, "models_loss", lambda *_: learnt._replace(said=predicted))
    _, metrics = model.loss(batch, policy, generator())
    assert float(metrics["bisim_loss"]) == pytest.approx(
        by_loops(batch.obs, predicted, 0.5, target), rel=1e-4
    )


def test_the_whole_loss_is_the_weighted_sum_of_its_four_terms() -> None:
    model, batch = rap(), latents()
    loss, metrics = model.loss(batch, policy, generator())
    expected = 0.5 * metrics["bisim_loss"] + 0.5 * 0.5 * metrics["reward_nll"]
    expected = expected + 1e-4 * (metrics["transition_nll"] + metrics["decoder_error"])
    assert torch.allclose(loss, expected)


def test_the_reward_model_s_likelihood_is_that_of_single_rewards_and_reads_no_action() -> None:
    model, batch = rap(), latents()
    mean, sigma = model.predicted_reward(batch.obs)
    nll = (((batch.rewards[:, :1] - mean) / sigma).square() / 2 + sigma.log()).mean()
    metrics = [
        model.loss(batch._replace(action=action), policy, generator())[1]
        for action in (batch.action, -batch.action)
    ]
    assert torch.allclose(metrics[0]["reward_nll"], nll)
    assert torch.equal(metrics[0]["reward_nll"], metrics[1]["reward_nll"])
    assert not torch.equal(metrics[0]["transition_nll"], metrics[1]["transition_nll"])


def test_a_pair_of_one_state_with_itself_is_at_twice_its_squared_norm_and_its_gap_is_never_positive() -> None:
    model, batch, predicted = rap(pairing="all", target="plain"), latents(), said()
    found = model.regressed(batch, predicted, policy, generator())
    every = torch.arange(B) * (B + 1)
    assert torch.allclose(found.distance[every], 2 * batch.obs.square().sum(-1), atol=1e-5)
    assert bool((found.target[every] == 0).all())
    squared = rap(pairing="all").regressed(batch, predicted, policy, generator())
    assert squared.sides is not None and bool((squared.sides[1][every] <= 0).all())


def test_swapping_both_of_a_pair_leaves_distance_and_target() -> None:
    found = rap(pairing="all").regressed(latents(), said(), policy, generator())
    for side in (found.distance, found.target):
        table = side.view(B, B)
        assert torch.allclose(table, table.T)


def test_the_distance_of_predictions_does_not_mind_the_order_of_dimensions() -> None:
    reward, sigma, mean, spread = said()
    order = torch.randperm(D, generator=generator())
    targets = [
        rap().regressed(latents(), (reward, sigma, *latent), policy, generator()).target
        for latent in ((mean, spread), (mean[:, order], spread[:, order]))
    ]
    assert torch.allclose(targets[0], targets[1])
    equal = (torch.zeros(B, 1), torch.zeros(B, 1), mean[:1].expand(B, D), spread[:1].expand(B, D))
    assert bool((rap().regressed(latents(), equal, policy, generator()).target == 0).all())


# --- gradients ------------------------------------------------------------------------------------------------------


def reached(model: Rap, batch: Batch) -> dict[str, bool]:
    """Whom the loss gives a gradient."""
    model.zero_grad()
    window = batch.window_obs.clone().requires_grad_()
    batch = batch._replace(window_obs=window, obs=batch.obs.detach().clone().requires_grad_())
    model.loss(batch, policy, generator())[0].backward()

    def some(parameters: Any) -> bool:
        return any(p.grad is not None and bool(p.grad.any()) for p in parameters)

    decoder = model.dynamics.decoder
    return {
        "latent": some([batch.obs]),
        "reward": some(model.reward.parameters()),
        "transition": some(model.dynamics.transition.parameters()),
        "decoder": decoder is not None and some(decoder.parameters()),
        "next": some([window]),
    }


@pytest.mark.parametrize(
    ("weights", "trained"),
    [
        ({"lambda_r": 0.0, "lambda_p": 0.0}, {"latent"}),
        ({"lambda_b": 0.0, "lambda_p": 0.0}, {"latent", "reward"}),
        ({"lambda_b": 0.0, "lambda_r": 0.0, "reward_decoder": False}, {"latent", "transition"}),
        ({"lambda_b": 0.0, "lambda_r": 0.0}, {"latent", "transition", "decoder"}),
        ({"lambda_b": 0.0, "lambda_r": 0.0, "lambda_p": 0.0}, set[str]()),
    ],
)
def test_each_term_trains_its_model_and_the_latent_and_nobody_else(
    weights: dict[str, Any], trained: set[str]
) -> None:
    model = rap(**weights)
    assert {name for name, there in reached(model, latents()).items() if there} == trained
    assert model.traits.trains_encoder == ("latent" in trained)


def test_the_decoded_reward_alone_reaches_the_latent() -> None:
    """Through mean and deviation of the draw."""
    model, batch = rap(), latents()
    mean, sigma = model.dynamics(batch.obs, batch.action)
    decoder: Any = model.dynamics.decoder
    decoder(mean + sigma).square().mean().backward()
    assert batch.obs.grad is not None and bool(batch.obs.grad.any())


def test_the_metric_loss_pulls_at_both_of_a_pair_unless_told_otherwise() -> None:
    grads = {}
    for second in (False, True):
        batch = latents()
        rap(detach_second=second, **ONLY_METRIC).loss(batch, policy, generator())[0].backward()
        grads[second] = batch.obs.grad
    assert grads[False] is not None and grads[True] is not None
    # U is a sum over both: each latent is once first and once second, with errors of its own.
    assert float(grads[False].norm()) > 1.2 * float(grads[True].norm())


@pytest.mark.parametrize(("horizon", "step"), [("1", 1), ("n", 3)])
def test_next_latents_change_the_transition_loss_and_get_no_gradient(horizon: Any, step: int) -> None:
    model, batch = rap(aux_horizon=horizon), latents()
    batch = batch._replace(reward=batch.rewards.sum(1, keepdim=True))
    moved = batch.window_obs.clone()
    moved[:, step] += 1.0
    changed = batch._replace(window_obs=moved, next_obs=moved[:, -1])
    one, other = (model.loss(seen, policy, generator())[1] for seen in (batch, changed))
    assert float(one["transition_nll"]) != float(other["transition_nll"])
    assert torch.equal(one["bisim_loss"], other["bisim_loss"])
    elsewhere = batch.window_obs.clone()
    elsewhere[:, 2] += 1.0
    same = model.loss(batch._replace(window_obs=elsewhere), policy, generator())[1]
    assert torch.equal(one["transition_nll"], same["transition_nll"])
    assert not reached(model, batch)["next"]
    reward = batch.rewards[:, :1] if horizon == "1" else batch.reward
    assert torch.equal(model.models_loss(batch, generator()).said[0], reward)


# --- ranges and time ------------------------------------------------------------------------------------------------


def test_deviations_stay_in_their_ranges_for_inputs_of_a_million() -> None:
    model = rap()
    latent, action = 1e6 * torch.randn(64, D, generator=generator()), torch.ones(64, A)
    _, sigma = model.predicted_reward(latent)
    mean, spread = model.dynamics(latent, action)
    for last in (model.reward[-1], model.dynamics.transition[-1]):
        nn.init.constant_(last.bias, 1e6)  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]
    _, high = model.predicted_reward(latent)
    _, high_spread = model.dynamics(latent, action)
    for found, low, top in ((sigma, 1e-4, 1.0), (high, 1e-4, 1.0), (spread, 1e-4, 10.0)):
        assert bool(((found >= low) & (found <= top)).all())
    assert bool((high == 1.0).all()) and bool((high_spread == 10.0).all()) and bool(mean.isfinite().all())


def test_without_reward_its_deviation_falls_towards_the_floor() -> None:
    model, batch = rap(lambda_b=0.0, lambda_p=0.0), latents(rewards=0.0)
    optimiser = torch.optim.Adam(model.reward.parameters(), 2e-3)
    sigmas = []
    for _ in range(300):
        loss, metrics = model.loss(batch, policy, generator())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        sigmas.append(float(metrics["sigma_mean"]))
    means = np.array(sigmas).reshape(5, 60).mean(1)
    assert 0.3 < sigmas[0] < 0.7 and sigmas[-1] < 0.05
    assert bool((np.diff(means) < 0).all()), means


@pytest.mark.parametrize("target", ["squared", "plain"])
def test_under_a_layer_norm_the_metric_can_only_shrink_its_gain(target: Any) -> None:
    """Every latent has norm sqrt(D), so U is 2 D for all pairs; the loss takes it down through the gain."""
    norm, model = nn.LayerNorm(D), rap(target=target, **ONLY_METRIC)
    points = 3 * torch.randn(B, D, generator=generator(4))
    start = norm(points).detach()
    assert torch.allclose(start.square().sum(-1), torch.full((B,), float(D)), rtol=1e-3)
    optimiser = torch.optim.Adam(norm.parameters(), 1e-2)
    batch, predicted = latents(rewards=0.0), said(rewards=0.0, sigma=0.0)
    still = (*predicted[:2], 0 * predicted[2], 0 * predicted[3])
    for step in range(400):
        z = norm(points)
        found = model.regressed(batch._replace(obs=z), still, policy, generator(step))
        distance = found.distance if found.sides is None else found.sides[0]
        if step == 0:
            assert float(found.distance.detach().mean()) == pytest.approx(2 * D, rel=1e-3)
        optimiser.zero_grad()
        distance.mean().backward()
        optimiser.step()
    assert float(norm(points).detach().norm(dim=-1).mean()) < 0.2 * D**0.5
    assert float(norm.weight.detach().abs().max()) < 0.3


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lambda_b", -1.0), ("pred_hidden", 0), ("c_t", 1.0), ("sigma_max", 1e-5), ("sigma_min", 0.0),
        ("next_sigma_max", 1e-5), ("beta", -1.0), ("target", "square"), ("aux_horizon", "2"),
    ],
)  # fmt: skip
def test_impossible_values_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{field}: .*got "):
        RapConfig(**{field: value})
