from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from agent_setup import backbone, generator, make_constant, random_batch, values_of

from teb.agents.backbone import BackboneConfig
from teb.agents.protocol import Shapes
from teb.nets.actor_critic import noisy_action


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((name, 0) for name in ("batch_size", "width", "n_step")),
        *((name, bad) for name in ("lr", "noise_clip") for bad in (0.0, -1.0, math.nan)),
        ("gamma", 1.0),
        ("gamma", -0.1),
        ("tau", 1.1),
        ("tau", math.nan),
        ("noise", -0.2),
    ],
)
def test_impossible_values_are_refused_with_field_and_value(field: str, value: float) -> None:
    values: dict[str, Any] = {field: value}
    with pytest.raises(ValueError, match=rf"^{field}: .*got {value}$"):
        BackboneConfig(**values)


def test_defaults_are_those_of_the_paper_s_table() -> None:
    config = BackboneConfig()
    assert (config.batch_size, config.width, config.lr, config.gamma) == (1024, 1024, 1e-4, 0.99)
    assert (config.n_step, config.tau, config.noise, config.noise_clip) == (3, 0.01, 0.2, 0.3)


def test_target_critic_starts_as_an_exact_copy_without_gradient() -> None:
    learner = backbone()
    target = values_of(learner.target_critic)
    for name, value in values_of(learner.critic).items():
        assert torch.equal(value, target[name])
    assert not any(p.requires_grad for p in learner.target_critic.parameters())
    own = {id(p) for p in learner.critic.parameters()}
    assert not own & {id(p) for p in learner.target_critic.parameters()}


@pytest.mark.parametrize("heads", [(2.0, 5.0), (5.0, 2.0)])
def test_target_is_reward_plus_discounted_smaller_value(heads: tuple[float, float]) -> None:
    learner, batch = backbone(), random_batch(reward=1.0)
    make_constant(learner.target_critic, *heads)
    _, metrics = learner.critic_loss(batch, batch.reward, generator())
    assert float(metrics["q_target"]) == pytest.approx(1.0 + 0.97**3 * 2.0, rel=1e-6)


def test_terminal_windows_do_not_bootstrap() -> None:
    learner, batch = backbone(), random_batch(reward=1.0)
    make_constant(learner.target_critic, 7.0, 7.0)
    _, metrics = learner.critic_loss(batch._replace(discount=torch.zeros(16, 1)), batch.reward, generator())
    assert float(metrics["q_target"]) == 1.0


def test_critic_loss_is_the_sum_of_both_heads_mean_squared_errors() -> None:
    learner, batch = backbone(), random_batch()
    loss, _ = learner.critic_loss(batch, batch.reward, generator(3))
    with torch.no_grad():
        rng = generator(3)
        noise = (0.2 * torch.randn(16, 2, generator=rng)).clamp(-0.3, 0.3)
        next_action = (learner.actor(batch.next_obs) + noise).clamp(-1 + 1e-6, 1 - 1e-6)
        next_value = learner.target_critic(batch.next_obs, next_action).numpy().min(1)
        y = batch.reward.numpy()[:, 0] + 0.97**3 * next_value
        q = learner.critic(batch.obs, batch.action).numpy()
    expected = sum(np.square(q[:, head] - y).mean() for head in range(2))
    assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-5)


def test_critic_learns_from_the_reward_that_it_is_handed() -> None:
    learner, batch = backbone(), random_batch(reward=0.0)
    make_constant(learner.target_critic, 0.0, 0.0)
    _, metrics = learner.critic_loss(batch, batch.reward + 4.0, generator())
    assert float(metrics["q_target"]) == 4.0


def test_critic_loss_refuses_a_reward_that_would_broadcast() -> None:
    learner, batch = backbone(), random_batch()
    with pytest.raises(ValueError, match=r"reward: expected shape \(16, 1\), got \(16,\)"):
        learner.critic_loss(batch, batch.reward.squeeze(1), generator())


@pytest.mark.parametrize("heads", [(2.0, 5.0), (5.0, 2.0)])
def test_actor_maximises_the_smaller_value(heads: tuple[float, float]) -> None:
    learner = backbone()
    make_constant(learner.critic, *heads)
    assert float(learner.actor_loss(random_batch(), generator())[0].detach()) == -2.0


def test_actor_loss_of_a_critic_that_varies_is_the_mean_of_minima_at_noisy_actions() -> None:
    learner, batch = backbone(), random_batch()
    with torch.no_grad():
        noise = (0.2 * torch.randn(16, 2, generator=generator(3))).clamp(-0.3, 0.3)
        action = (learner.actor(batch.obs) + noise).clamp(-1 + 1e-6, 1 - 1e-6)
        expected = -learner.critic(batch.obs, action).numpy().min(1).mean()
    assert float(learner.actor_loss(batch, generator(3))[0].detach()) == pytest.approx(
        float(expected), rel=1e-5
    )


def test_gradients_of_the_critic_loss_reach_the_critic_alone() -> None:
    learner, batch = backbone(), random_batch()
    reward = batch.reward.clone().requires_grad_()
    learner.critic_loss(batch, reward, generator())[0].backward()
    assert all(p.grad is not None for p in learner.critic.parameters())
    assert all(p.grad is None for p in (*learner.actor.parameters(), *learner.target_critic.parameters()))
    assert reward.grad is None


def test_on_states_there_is_nothing_to_encode() -> None:
    learner = backbone()
    assert learner.encoder_parameters() == []
    assert {id(p) for p in learner.critic_parameters()} == {id(p) for p in learner.critic.parameters()}


def test_actor_loss_gives_every_actor_parameter_a_gradient_and_none_to_the_target() -> None:
    learner, batch = backbone(), random_batch()
    learner.actor_loss(batch, generator())[0].backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in learner.actor.parameters())
    assert all(p.grad is None for p in learner.target_critic.parameters())


def test_features_carry_the_critic_s_gradient_at_the_first_observation_alone() -> None:
    learner, batch = backbone(), random_batch()
    obs, next_obs = (x.clone().requires_grad_() for x in (batch.obs, batch.next_obs))
    features = batch._replace(obs=obs, next_obs=next_obs)
    learner.actor_loss(features, generator())[0].backward()
    assert obs.grad is None and next_obs.grad is None
    learner.critic_loss(features, batch.reward, generator())[0].backward()
    assert obs.grad is not None and bool(obs.grad.any()) and next_obs.grad is None


def test_noise_inside_updates_is_clipped() -> None:
    learner = backbone(noise=1.0)
    x = torch.zeros(2000, 2)  # an untrained actor answers the origin with 0
    action = learner.sample_action(x, generator()).detach()
    assert float(action.abs().max()) <= float(torch.tensor(0.3))
    assert float((action.abs() == action.abs().max()).float().mean()) > 0.7
    acting = noisy_action(torch.zeros(2000, 2), 1.0, generator())
    assert float(acting.abs().max()) > 0.9


def test_target_follows_with_tau() -> None:
    learner = backbone(tau=0.1)
    with torch.no_grad():
        for parameter in learner.critic.parameters():
            parameter += 1.0
    start = values_of(learner.target_critic)
    for _ in range(5):
        learner.follow()
    for name, parameter in learner.critic.named_parameters():
        gap = parameter - learner.target_critic.get_parameter(name)
        assert torch.allclose(gap, 0.9**5 * (parameter - start[name]), atol=1e-5)


def test_skill_is_appended_to_the_features() -> None:
    learner = backbone(shapes=Shapes(2, 2, 3))
    obs, skill = torch.randn(4, 2), torch.randn(4, 3)
    assert torch.equal(learner.joined(obs, skill), torch.cat([obs, skill], 1))
    assert learner.actor(learner.joined(obs, skill)).shape == (4, 2)
    assert torch.equal(learner.joined(obs, skill[:, :0]), obs)


def test_different_skills_give_different_actions_and_values() -> None:
    learner, batch = backbone(shapes=Shapes(2, 2, 3)), random_batch(skill=3)
    other = batch.skill.flip(0)
    assert not torch.allclose(
        learner.actor(learner.joined(batch.obs, batch.skill)), learner.actor(learner.joined(batch.obs, other))
    )
    losses = [
        learner.critic_loss(batch._replace(skill=z), batch.reward, generator())[0]
        for z in (batch.skill, other)
    ]
    assert float(losses[0].detach()) != float(losses[1].detach())


@pytest.mark.parametrize(("gamma", "value"), [(0.99, 33.67), (0.9, 3.690)])
def test_constant_reward_has_its_fixed_point_at_the_geometric_sum(gamma: float, value: float) -> None:
    learner, batch = backbone(), random_batch(reward=1.0, gamma=gamma)
    exact = 1 / (1 - gamma**3)
    assert exact == pytest.approx(value, rel=1e-3)
    for critic in (learner.critic, learner.target_critic):
        make_constant(critic, exact, exact)
    loss, _ = learner.critic_loss(batch, batch.reward, generator())
    assert float(loss.detach()) == pytest.approx(0.0, abs=1e-7)
    for start in (exact - 1, exact + 1):
        for critic in (learner.critic, learner.target_critic):
            make_constant(critic, start, start)
        learner.zero_grad()
        learner.critic_loss(batch, batch.reward, generator())[0].backward()
        gradient = learner.critic.value1.bias.grad
        assert gradient is not None
        assert float(gradient) == pytest.approx(2 * (start - (1 + gamma**3 * start)), rel=1e-3)
