from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from teb.nets.actor_critic import Actor, TwinCritic, noisy_action
from teb.nets.mlp import Linear


def size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_parameter_counts_at_the_width_of_the_paper() -> None:
    with torch.device("meta"):
        assert size(Actor(2, 2, 1024)) == 1_056_770
        assert size(TwinCritic(4, 1024)) == 2_108_418


def test_every_layer_starts_orthogonal_with_zero_bias_and_plain_norms() -> None:
    for net in (Actor(2, 2, 48), TwinCritic(4, 48)):
        for module in net.modules():
            if isinstance(module, Linear):
                assert bool((module.bias == 0).all())
                for block in module.weight.detach().split(min(48, module.weight.shape[0])):
                    gram = block @ block.T if block.shape[0] <= block.shape[1] else block.T @ block
                    assert torch.allclose(gram, torch.eye(gram.shape[0]), atol=1e-5)
            if isinstance(module, nn.LayerNorm):
                assert bool((module.weight == 1).all() and (module.bias == 0).all())
                assert module.eps == 1e-5


def test_untrained_actor_sees_the_direction_of_a_position_and_hardly_its_length() -> None:
    actor, x = Actor(2, 2, 64), torch.nn.functional.normalize(torch.randn(32, 2), dim=1) * 4
    assert torch.allclose(actor(x), actor(2 * x), atol=0.01)


def test_actor_is_trunk_hidden_tanh() -> None:
    actor, x = Actor(3, 2, 16), torch.randn(5, 3)
    h = actor.trunk(x).detach().numpy()
    h = np.maximum(h @ actor.hidden.weight.detach().numpy().T, 0)
    expected = np.tanh(h @ actor.mean.weight.detach().numpy().T)
    assert np.allclose(actor(x).detach().numpy(), expected, atol=1e-5)


def test_value_heads_share_the_trunk_and_nothing_else() -> None:
    critic = TwinCritic(4, 16)
    x, action = torch.randn(5, 2), torch.randn(5, 2)
    before = critic(x, action).detach()
    assert before.shape == (5, 2)
    with torch.no_grad():
        critic.hidden.weight[16:].mul_(2.0)  # the second head's half
        critic.value2.bias.add_(1.0)
    after = critic(x, action).detach()
    assert torch.equal(after[:, 0], before[:, 0])
    assert not torch.allclose(after[:, 1], before[:, 1])
    value1 = critic.value1(torch.relu(critic.hidden(critic.trunk(torch.cat([x, action], 1))))[:, :16])
    assert torch.allclose(value1.squeeze(1), after[:, 0])


@pytest.mark.parametrize("build", [lambda c: Actor(2, 2, 64, c), lambda c: TwinCritic(4, 64, c)])
def test_bfloat16_computation_hands_out_float32_near_the_exact_result(
    build: Callable[[torch.dtype], nn.Module],
) -> None:
    exact, rounded = build(torch.float32), build(torch.bfloat16)
    rounded.load_state_dict(exact.state_dict())
    rng = torch.Generator().manual_seed(0)
    arguments = [torch.randn(64, 2, generator=rng) for _ in range(1 if isinstance(exact, Actor) else 2)]
    found, expected = rounded(*arguments).detach(), exact(*arguments).detach()
    assert found.dtype == torch.float32
    assert float((found - expected).abs().max()) < 0.05
    assert not torch.equal(found, expected), "nothing was computed in bfloat16"


def test_large_values_come_in_fine_steps_although_the_layers_before_are_in_bfloat16() -> None:
    critic = TwinCritic(4, 64, torch.bfloat16)
    with torch.no_grad():
        for head in (critic.value1, critic.value2):
            head.bias.fill_(50.0)
    values = critic(torch.randn(64, 2), torch.randn(64, 2)).detach()
    assert not torch.equal(values.bfloat16().float(), values)
    assert len(values.unique()) > 100


def test_noise_of_acting_is_not_clipped_and_noise_of_updates_is() -> None:
    rng = torch.Generator().manual_seed(0)
    mean = torch.zeros(4000, 2)
    acting = noisy_action(mean, 1.0, rng)
    assert float((acting.abs() > 0.3).float().mean()) == pytest.approx(0.764, abs=0.02)  # 2 (1 - Phi(0.3))
    update = noisy_action(mean, 1.0, rng, 0.3)
    assert float(update.abs().max()) <= float(torch.tensor(0.3))
    assert float((update.abs() == torch.tensor(0.3)).float().mean()) == pytest.approx(0.764, abs=0.02)


@pytest.mark.parametrize("sigma", [0.1, 1.0])
def test_actions_of_updates_stay_near_a_mean_that_is_not_at_the_edge(sigma: float) -> None:
    mean = torch.linspace(-0.7 + 1e-6, 0.7 - 1e-6, 4000)
    action = noisy_action(mean, sigma, torch.Generator().manual_seed(0), 0.3)
    assert float((action - mean).abs().max()) <= 0.3 + 1e-6
    assert torch.equal(action, noisy_action(mean, torch.tensor(sigma), torch.Generator().manual_seed(0), 0.3))


def test_noise_has_the_wanted_deviation() -> None:
    noise = noisy_action(torch.zeros(20_000), 0.2, torch.Generator().manual_seed(1))
    assert float(noise.std()) == pytest.approx(0.2, rel=0.03)
    assert float(noise.mean()) == pytest.approx(0.0, abs=0.005)


def test_actions_stay_just_inside_the_box_and_the_gradient_is_one_also_where_they_were_clamped() -> None:
    mean = torch.tensor([-1.0, -0.999, 0.0, 0.999, 1.0]).repeat(200).requires_grad_()
    action = noisy_action(mean, 0.5, torch.Generator().manual_seed(0))
    assert float(action.detach().abs().max()) == pytest.approx(1 - 1e-6, abs=1e-7)
    assert float(action.detach().abs().max()) < 1
    weights = torch.arange(1000.0)
    (action * weights).sum().backward()
    assert mean.grad is not None and torch.equal(mean.grad, weights)
