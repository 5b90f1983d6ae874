"""EME: what the metric is regressed on, how the ensemble learns and scales, and what is paid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from explorer_setup import GAMMA, SHAPES, batch_for, generator, policy, random_batch, small_agent
from torch import Tensor

from teb.agents.protocol import Batch
from teb.explorers.eme import Eme, EmeConfig
from teb.nets.actor_critic import noisy_action
from teb.nets.mlp import initialised_from

BATCH = random_batch(0, reward_scale=1.0, ended=3)
EVERY = torch.arange(len(BATCH.obs))
ORDER = torch.randperm(len(BATCH.obs), generator=torch.Generator().manual_seed(4))


def explorer(seed: int = 0, **changes: Any) -> Eme:
    values: dict[str, Any] = {"pred_hidden": 16, "ensemble_hidden": 16, "embedding": 5}
    with initialised_from(seed):
        return Eme(EmeConfig(**(values | changes)), SHAPES, gamma=GAMMA, n_step=3)


def last(network: Any) -> Any:
    """The last layer of a model."""
    return network[3]


def paid(module: Eme, batch: Batch) -> Tensor:
    return module.reward(batch, policy, generator()).bonus.squeeze(1)


def embedded(module: Eme, obs: Tensor) -> np.ndarray:
    with torch.no_grad():
        return module.embed(obs).numpy()


def members(module: Eme, obs: Tensor, action: Tensor) -> np.ndarray:
    """Predictions of each member by itself, [B, K]."""
    inputs = torch.cat([obs, action], 1)
    found = []
    weights = module.ensemble.hidden.weight.detach().chunk(module.ensemble.members)
    biases = module.ensemble.hidden.bias.detach().chunk(module.ensemble.members)
    for weight, bias, last in zip(weights, biases, module.ensemble.last, strict=True):
        found.append(last(torch.relu(inputs @ weight.T + bias)).detach().numpy()[:, 0])
    return np.stack(found, 1)


def target_of(module: Eme, reward_gap: np.ndarray, std: float = 0.2) -> np.ndarray:
    """The operator at the pairs (i, ORDER[i]) for a given gap of rewards."""
    following = embedded(module, BATCH.window_obs[:, 1])
    mean = policy(BATCH.obs, BATCH.skill, None).numpy()
    kl = np.square(mean - mean[ORDER]).sum(1) / (2 * std**2)
    return reward_gap + GAMMA * np.linalg.norm(following - following[ORDER], axis=1) + GAMMA * kl


@pytest.mark.parametrize("std", [0.2, 1.0])
def test_metric_is_regressed_on_rewards_next_distances_and_policies(std: float) -> None:
    module = explorer(reward_term="model", kl_std=std)
    rng, mean = generator(7), policy(BATCH.obs, BATCH.skill, None)
    draws = [members(module, BATCH.obs, noisy_action(mean, std, rng)).mean(1) for _ in range(4)]
    expected = np.mean(draws, axis=0)
    found = module.target(BATCH, EVERY, ORDER, policy, generator(7)).numpy()
    assert np.allclose(found, target_of(module, np.abs(expected - expected[ORDER]), std), rtol=1e-4)


def test_identity_takes_variances_off_the_squared_gap_of_replayed_rewards() -> None:
    module = explorer()
    rng, mean = generator(7), policy(BATCH.obs, BATCH.skill, None)
    draws = [members(module, BATCH.obs, noisy_action(mean, 0.2, rng)).mean(1) for _ in range(4)]
    variance, reward = np.var(draws, axis=0, ddof=1), BATCH.rewards[:, 0].numpy()
    gap = np.sqrt(np.maximum(np.square(reward - reward[ORDER]) - variance - variance[ORDER], 0))
    assert (gap < np.abs(reward - reward[ORDER])).any()
    found = module.target(BATCH, EVERY, ORDER, policy, generator(7)).numpy()
    assert np.allclose(found, target_of(module, gap), rtol=1e-4)


def test_without_reward_only_the_policies_tell_states_apart() -> None:
    module = explorer()
    calm = BATCH._replace(rewards=torch.zeros_like(BATCH.rewards))
    found = module.target(calm, EVERY, ORDER, policy, generator()).numpy()
    assert np.allclose(found, target_of(module, np.zeros(len(ORDER))), rtol=1e-4)


def test_loss_is_the_squared_distance_to_the_target_and_the_members_errors_on_their_shares() -> None:
    module = explorer(bootstrap=0.5)
    loss, metrics = module.loss(BATCH, policy, generator(4))
    rng = generator(4)
    torch.randperm(len(BATCH.obs), generator=rng)
    target = module.target(BATCH, EVERY, ORDER, policy, rng).numpy()
    x = embedded(module, BATCH.obs)
    metric_loss = np.square(np.linalg.norm(x - x[ORDER], axis=1) - target).mean()
    errors = np.square(members(module, BATCH.obs, BATCH.action) - BATCH.rewards[:, :1].numpy())
    share = (torch.rand(errors.shape, generator=rng) < 0.5).numpy()
    assert 0.3 < share.mean() < 0.7 and not (share == share[:, :1]).all()
    assert float(metrics["metric_loss"]) == pytest.approx(metric_loss, rel=1e-4)
    assert float(metrics["ensemble_loss"]) == pytest.approx(errors[share].mean(), rel=1e-4)
    assert float(loss.detach()) == pytest.approx(metric_loss + errors[share].mean(), rel=1e-4)


def test_metric_and_ensemble_do_not_train_each_other() -> None:
    calm = BATCH._replace(rewards=torch.zeros_like(BATCH.rewards))
    grads: list[list[Any]] = []
    for scale in (1.0, 0.1):  # without reward the ensemble is not in the metric's target
        module = explorer()
        with torch.no_grad():
            for parameter in module.ensemble.last.parameters():
                parameter.mul_(scale)
        module.loss(calm, policy, generator(4))[0].backward()
        grads.append([p.grad for p in module.embed.parameters()])
    assert all(torch.equal(p, q) and bool(p.any()) for p, q in zip(*grads, strict=True))


def test_target_gives_no_gradient_to_the_embedding_of_next_states() -> None:
    module = explorer()
    batch = BATCH._replace(window_obs=BATCH.window_obs.clone().requires_grad_())
    module.loss(batch, policy, generator())[0].backward()
    assert batch.window_obs.grad is None
    assert not module.target(BATCH, EVERY, ORDER, policy, generator()).requires_grad


def test_bonus_is_the_distance_of_the_windows_ends_while_members_agree() -> None:
    module = explorer()
    expected = np.linalg.norm(embedded(module, BATCH.next_obs) - embedded(module, BATCH.obs), axis=1)
    assert members(module, BATCH.obs, BATCH.action).var(1, ddof=1).max() < 1
    assert np.allclose(paid(module, BATCH).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize(("largest", "zeta_norm"), [(10.0, "clamp"), (3.0, "clamp"), (1.5, "mean")])
def test_bonus_is_scaled_by_the_variance_of_the_members(largest: float, zeta_norm: str) -> None:
    module = explorer(largest=largest, zeta_norm=zeta_norm)
    with torch.no_grad():
        for last in module.ensemble.last:
            for parameter in last.parameters():
                parameter.mul_(3.0)
    zeta = members(module, BATCH.obs, BATCH.action).var(1, ddof=1)
    scale = np.clip(zeta, 1, largest) if zeta_norm == "clamp" else np.minimum(zeta / zeta.mean(), largest)
    assert len(np.unique(scale)) > 5
    distance = np.linalg.norm(embedded(module, BATCH.next_obs) - embedded(module, BATCH.obs), axis=1)
    assert np.allclose(paid(module, BATCH).numpy(), distance * scale, rtol=1e-3, atol=1e-5)


def test_standing_still_pays_nothing() -> None:
    module = explorer()
    assert torch.equal(paid(module, BATCH._replace(next_obs=BATCH.obs)), torch.zeros(len(BATCH.obs)))


def test_members_that_do_not_differ_pay_nothing_if_scaled_by_their_mean() -> None:
    module = explorer(zeta_norm="mean")
    with torch.no_grad():
        for parameter in module.ensemble.parameters():
            parameter.zero_()
    assert torch.equal(paid(module, BATCH), torch.zeros(len(BATCH.obs)))


def test_members_start_apart_and_agree_where_they_have_learnt() -> None:
    agent = small_agent("eme", model_lr=3e-3)
    module: Any = agent.explorer
    batches = [batch_for(agent, seed, obs_scale=1.0, reward_scale=0.0) for seed in range(10)]
    batches = [
        b._replace(rewards=torch.ones_like(b.rewards), reward=torch.ones_like(b.reward)) for b in batches
    ]
    before = members(module, batches[0].obs, batches[0].action)
    assert before.var(1).min() > 0
    for step in range(250):
        agent.update(batches[step % 10], 0)
    after = members(module, batches[0].obs, batches[0].action)
    assert after.var(1).mean() < 0.1 * before.var(1).mean()
    assert abs(after.mean() - 1.0) < 0.2
    far = members(module, 20 * batches[0].obs, batches[0].action)
    assert far.var(1).mean() > 10 * after.var(1).mean()


def test_metric_learns_the_divergence_of_policies() -> None:
    agent = small_agent("eme", model_lr=1e-2, pred_hidden=64, kl_std=1.0)
    module: Any = agent.explorer
    module.gamma = 0.5
    optimiser = torch.optim.Adam(module.embed.parameters(), fused=True)
    rng = generator()
    for step in range(600):
        optimiser.param_groups[0]["lr"] = 1e-2 * (1 - step / 600)
        batch = batch_for(agent, step % 40, obs_scale=1.0)
        # Nothing moves: the fixed point is 0.5 KL / (1 - 0.5) = KL.
        still = batch.obs[:, None].expand(-1, 4, -1)
        batch = batch._replace(window_obs=still, next_obs=batch.obs)
        loss = module.loss(batch, policy, rng)[0]
        optimiser.zero_grad()
        loss.backward(inputs=list(module.embed.parameters()))
        optimiser.step()
    test = batch_for(agent, 3, obs_scale=1.0)
    mean = policy(test.obs, test.skill, None)
    kl = (mean - mean[ORDER]).square().sum(1) / 2
    with torch.no_grad():
        found = (module.embed(test.obs) - module.embed(test.obs)[ORDER]).norm(dim=1)
    assert np.corrcoef(kl.numpy(), found.numpy())[0, 1] > 0.85
    assert float(found.mean()) == pytest.approx(float(kl.mean()), rel=0.35)


def test_slow_copy_stands_behind_the_target_and_follows() -> None:
    module = explorer(metric_target="ema", metric_tau=0.25)
    assert module.slow_embed is not None
    before = module.target(BATCH, EVERY, ORDER, policy, generator())
    with torch.no_grad():
        last(module.embed).weight.add_(torch.randn(last(module.embed).weight.shape, generator=generator()))
    assert torch.equal(module.target(BATCH, EVERY, ORDER, policy, generator()), before)
    kept = last(module.embed).weight.detach().clone()
    gap = kept - last(module.slow_embed).weight.detach()
    module.after_step(BATCH, policy, generator())
    assert torch.allclose(last(module.embed).weight - last(module.slow_embed).weight, 0.75 * gap, atol=1e-6)
    assert torch.equal(last(module.embed).weight, kept), "it is the slow copy that moves"
    declared = {id(p) for group in module.parameter_groups() for p in group["params"]}
    assert not declared & {id(p) for p in module.slow_embed.parameters()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"members": 1}, r"members: must lie in \[2"),
        ({"largest": 0.5}, r"largest: must lie in \[1"),
        ({"bootstrap": 0.0}, "bootstrap: must be above 0"),
        ({"bootstrap": 1.5}, r"bootstrap: must lie in \[0, 1\]"),
        ({"kl_std": 0.0}, "kl_std: must be above 0"),
        ({"policy_samples": 1}, r"policy_samples: must lie in \[2"),
        ({"zeta_norm": "sum"}, "zeta_norm: must be one of clamp, mean"),
    ],
)
def test_impossible_options_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EmeConfig(**changes)
