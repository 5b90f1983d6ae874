"""The representation loss: what its target is, whom it trains, and whether latents collapse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from latent_setup import GAMMA, SHAPES, A, B, D, generator, latents, policy

from teb.agents.protocol import Batch
from teb.maths.bisimulation import pair_indices
from teb.nets.mlp import initialised_from
from teb.representations.bisim import LITERAL, THEOREM_FAITHFUL, Bisim, BisimConfig


def bisim(**changes: Any) -> Bisim:
    with initialised_from(0):
        return Bisim(BisimConfig(**{"pred_hidden": 16, **changes}), SHAPES, gamma=GAMMA, n_step=3)


def parts(model: Bisim, batch: Batch) -> dict[str, bool]:
    """Which gradients the loss leaves: on the latent, and on either model."""
    model.zero_grad()
    if batch.obs.grad is not None:
        batch.obs.grad = None
    model.loss(batch, policy, generator())[0].backward()

    def any_of(module: torch.nn.Module) -> bool:
        return any(p.grad is not None and bool(p.grad.any()) for p in module.parameters())

    return {
        "latent": batch.obs.grad is not None and bool(batch.obs.grad.any()),
        "reward": any_of(model.online.reward),
        "transition": any_of(model.online.transition),
    }


# --- the target -----------------------------------------------------------------------------------------------------


def test_target_is_the_operator_on_predictions() -> None:
    model, batch = bisim(delta_r="mean", c_r=0.7, c_t=0.6), latents()
    said = model.predict(batch.obs.detach(), batch.action)
    pairs = pair_indices(B, "perm", generator(3), batch.obs.device)
    target = model.target(said, batch.rewards, pairs, generator()).numpy()
    mean, following = said.reward.detach().numpy()[:, 0], said.next.detach().numpy()
    for k, (i, j) in enumerate(zip(*(index.tolist() for index in pairs), strict=True)):
        expected = 0.7 * abs(mean[i] - mean[j]) + 0.6 * np.sqrt(
            np.square(following[i] - following[j]).sum() + 1e-8
        )
        assert target[k] == pytest.approx(expected, rel=1e-5)


def test_without_transition_term_a_deterministic_predictor_s_target_is_the_difference_of_means() -> None:
    model, batch = bisim(c_t=0.0, delta_r="mean"), latents()
    said = model.predict(batch.obs.detach(), batch.action)
    pairs = pair_indices(B, "perm", generator(3), batch.obs.device)
    difference = (said.reward[pairs[0]] - said.reward[pairs[1]]).abs().squeeze(1)
    assert torch.equal(model.target(said, batch.rewards, pairs, generator()), difference.detach())


@pytest.mark.parametrize("delta_r", ["sample", "folded", "mean", "env_nstep", "env_1"])
def test_swapping_both_of_a_pair_leaves_the_target(delta_r: Any) -> None:
    model, batch = bisim(delta_r=delta_r), latents()
    said = model.predict(batch.obs.detach(), batch.action)
    i, j = pair_indices(B, "perm", generator(3), batch.obs.device)
    one, other = (model.target(said, batch.rewards, pair, generator(5)) for pair in ((i, j), (j, i)))
    assert torch.equal(one, other)


def test_a_pair_of_one_state_with_itself_has_no_sampled_difference() -> None:
    every = torch.arange(B)
    batch = latents()
    for delta_r, zero in (("sample", True), ("mean", True), ("sample_indep", False), ("folded", False)):
        model = bisim(delta_r=delta_r, c_t=0.0)
        said = model.predict(batch.obs.detach(), batch.action)
        target = model.target(said, batch.rewards, (every, every), generator())
        assert bool((target == 0).all()) == zero and (zero or bool((target > 0).any()))


def test_the_exact_differential_is_the_mean_of_independent_draws() -> None:
    batch, pairs = latents(), (torch.arange(B), torch.arange(B).flip(0))
    model, exact = bisim(delta_r="sample_indep", c_t=0.0), bisim(delta_r="folded", c_t=0.0)
    said, rng = model.predict(batch.obs.detach(), batch.action), generator()
    draws = torch.stack([model.target(said, batch.rewards, pairs, rng) for _ in range(4000)])
    assert torch.allclose(draws.mean(0), exact.target(said, batch.rewards, pairs, rng), atol=0.04)


def test_environment_rewards_may_stand_in_for_predictions() -> None:
    batch, pairs = latents(), (torch.arange(B), torch.arange(B).flip(0))
    earned = batch.rewards.numpy()
    total = earned @ GAMMA ** np.arange(3)
    for delta_r, values in (("env_nstep", total), ("env_1", earned[:, 0])):
        model = bisim(delta_r=delta_r, c_t=0.0)
        said = model.predict(batch.obs.detach(), batch.action)
        target = model.target(said, batch.rewards, pairs, generator())
        assert np.allclose(target, np.abs(values - values[::-1]), atol=1e-5)


def test_the_predictor_regresses_the_stored_n_step_return() -> None:
    model, batch = bisim(reward_horizon=2), latents()
    said = model.online(batch.obs, batch.action)
    total = batch.rewards[:, 0] + GAMMA * batch.rewards[:, 1]
    mean, sigma = said.reward.squeeze(1), said.reward_sigma.squeeze(1)
    expected = (((total - mean) / sigma).square() / 2 + sigma.log()).mean()
    _, _, metrics = model.models_loss(batch, generator())
    assert torch.allclose(metrics["reward_nll"], expected)
    assert model.traits.horizon == 2


@pytest.mark.parametrize(("horizon", "step"), [("1", 1), ("n", 3)])
def test_the_next_latent_is_that_of_the_horizon(horizon: Any, step: int) -> None:
    model, batch = bisim(dyn_horizon=horizon, transition="deterministic"), latents()
    _, said, metrics = model.models_loss(batch, generator())
    error = (said.next.detach() - batch.window_obs[:, step]).square().sum(-1).mean().sqrt()
    assert torch.allclose(metrics["transition_rmse"], error)
    assert model.traits.reads == ((0, 1) if horizon == "1" else (0, -1))


def test_actions_behind_the_target_may_be_the_policy_s() -> None:
    batch = latents()
    replay, own = (
        bisim(bisim_action=kind).loss(batch, policy, generator())[1]["metric_target"]
        for kind in ("replay", "policy")
    )
    assert float(replay) != float(own)


# --- gradients ------------------------------------------------------------------------------------------------------


def test_the_metric_loss_reaches_the_latent_alone() -> None:
    only = {"lambda_r": 0.0, "lambda_p": 0.0}
    assert parts(bisim(**only), latents()) == {"latent": True, "reward": False, "transition": False}


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({"lambda_b": 0.0, "lambda_p": 0.0}, {"latent": True, "reward": True, "transition": False}),
        ({"lambda_b": 0.0, "lambda_r": 0.0}, {"latent": True, "reward": False, "transition": True}),
        (
            {"lambda_b": 0.0, "lambda_p": 0.0, "rew_grad_to_encoder": False},
            {"latent": False, "reward": True, "transition": False},
        ),
        (
            {"lambda_b": 0.0, "lambda_r": 0.0, "dyn_grad_to_encoder": False},
            {"latent": False, "reward": False, "transition": True},
        ),
    ],
)
def test_each_model_s_loss_reaches_itself_and_the_latent_where_it_may(
    weights: dict[str, Any], expected: dict[str, bool]
) -> None:
    model = bisim(**weights)
    assert parts(model, latents()) == expected
    assert model.traits.trains_encoder == expected["latent"]


def test_the_next_latent_never_gets_a_gradient() -> None:
    batch = latents()
    window = batch.window_obs.clone().requires_grad_()
    model = bisim(dyn_reward_decoder=True)
    model.loss(batch._replace(window_obs=window), policy, generator())[0].backward()
    assert window.grad is None or not bool(window.grad.any())


def test_the_gradient_runs_through_both_of_a_pair_unless_told_otherwise() -> None:
    only = {"lambda_r": 0.0, "lambda_p": 0.0}
    grads = {}
    for second in (False, True):
        batch = latents()
        bisim(detach_second=second, **only).loss(batch, policy, generator())[0].backward()
        grads[second] = batch.obs.grad
    # Each state is once first and once second of a pair, and the distance is symmetric.
    assert grads[False] is not None and grads[True] is not None
    assert not torch.allclose(grads[False], grads[True])


def test_the_transition_head_may_learn_at_full_weight_while_the_encoder_does_not() -> None:
    only = {"lambda_b": 0.0, "lambda_r": 0.0, "lambda_p": 1e-2}
    found = {}
    for unscaled in (False, True):
        model, batch = bisim(dyn_head_unscaled=unscaled, **only), latents()
        model.loss(batch, policy, generator())[0].backward()
        weight = model.online.transition[0].weight.grad  # pyright: ignore[reportAttributeAccessIssue]
        found[unscaled] = (batch.obs.grad, weight)
    assert torch.allclose(found[True][0], found[False][0], rtol=1e-3, atol=1e-9)
    assert torch.allclose(found[True][1], 100 * found[False][1], rtol=1e-3, atol=1e-9)


def test_a_slow_copy_of_the_models_follows_and_is_what_is_lent() -> None:
    model, batch = bisim(metric_target="ema", metric_tau=0.1), latents()
    assert model.slow is not None and not any(p.requires_grad for p in model.slow.parameters())
    with torch.no_grad():
        for p in model.online.parameters():
            p.add_(1.0)
    before = [p.clone() for p in model.slow.parameters()]
    model.after_step()
    for old, slow, fast in zip(before, model.slow.parameters(), model.online.parameters(), strict=True):
        assert torch.allclose(slow, 0.9 * old + 0.1 * fast)
    said = model.predict(batch.obs, batch.action)
    assert torch.equal(said.next, model.slow(batch.obs, batch.action).next)


@pytest.mark.parametrize(
    "changes",
    [
        THEOREM_FAITHFUL,
        LITERAL,
        *({"latent_dist": kind} for kind in ("l2", "l1", "l1_mean", "huber_mean", "mico")),
        *({"pairing": kind} for kind in ("perm", "derange", "all")),
        *({"w_dist": kind} for kind in ("mean", "rap", "w2", "sample")),
        *({"sigma_param": kind} for kind in ("affine_sigmoid", "clamp", "bounded_log")),
        {"bisim_loss": "huber"},
        {"dyn_reward_decoder": True},
        {"transition": "deterministic"},
        {"nll_scale": 0.5},
    ],
    ids=str,
)
def test_every_option_gives_finite_losses_and_gradients_even_for_equal_latents(
    changes: dict[str, Any],
) -> None:
    model = bisim(**changes)
    for batch in (latents(), latents()._replace(obs=torch.zeros(B, D, requires_grad=True))):
        loss, metrics = model.loss(batch, policy, generator())
        loss.backward()
        assert bool(loss.isfinite()) and batch.obs.grad is not None and bool(batch.obs.grad.isfinite().all())
        assert all(bool(value.isfinite()) and not value.requires_grad for value in metrics.values())


@pytest.mark.parametrize(
    ("field", "value"),
    [("lambda_b", -1.0), ("pred_hidden", 0), ("c_t", 1.0), ("sigma_max", 1e-5), ("metric_tau", 2.0)],
)
def test_impossible_values_are_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"^{field}: .*got "):
        BisimConfig(**{field: value})  # pyright: ignore[reportArgumentType]


# --- collapse -------------------------------------------------------------------------------------------------------


def shrinkage(delta_r: Any, sigma: tuple[float, float] | None, steps: int = 400) -> float:
    """How much of their spread free latents keep under L_bisim, without reward and with noise for dynamics."""
    torch_rng = generator(1)
    latent = torch.randn(64, D, generator=torch_rng).requires_grad_()
    ends = {} if sigma is None else {"sigma_min": sigma[0], "sigma_max": sigma[1]}
    model = bisim(delta_r=delta_r, c_t=0.5, w_dist="mean", lambda_r=0.0, lambda_p=0.0, **ends)
    with torch.no_grad():  # the mean of a reward that is always zero
        last: Any = model.online.reward[-1]
        last.weight[0].zero_()
        last.bias[0] = 0.0
        # Random dynamics: a next latent that is spread as far as latents are.
    optimiser = torch.optim.Adam([latent], 0.02)
    start = float(latent.detach().std(0).mean())
    for step in range(steps):
        order = torch.randperm(64, generator=torch_rng)
        following = latent.detach()[order]
        i, j = pair_indices(64, "perm", torch_rng, latent.device)
        with torch.no_grad():
            said = model.predict(latent, torch.zeros(64, A))
            said = said._replace(next=following, next_sigma=torch.zeros_like(following))
            target = model.target(said, torch.zeros(64, 3), (i, j), generator(step))
        loss = ((latent[i] - latent[j]).square().sum(-1).add(1e-8).sqrt() - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return float(latent.detach().std(0).mean()) / start


def test_latents_collapse_without_reward_unless_predictions_are_noisy() -> None:
    """The honest version of the paper's claim: what keeps latents apart is the predictor's deviation."""
    environment = shrinkage("env_nstep", None)
    noisy = shrinkage("sample", (0.5, 0.5))
    floor = shrinkage("sample", (1e-4, 1e-4))
    assert environment < 0.1 and floor < 0.1
    assert noisy > 3 * max(environment, floor) and noisy > 0.15
