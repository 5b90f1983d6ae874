"""The ensemble against all its members evaluated on all rows and masked."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from teb.nets.actor_critic import LatentTwinCritic
from teb.nets.ensemble import EnsembleCritic
from teb.nets.mlp import initialised_from

K, OBS, ACTION, WIDTH, ROWS = 5, 3, 2, 12, 40


def critic(seed: int = 0, compute: torch.dtype = torch.float32, *, latents: bool = False) -> EnsembleCritic:
    with initialised_from(seed):
        return EnsembleCritic(OBS, ACTION, K, WIDTH, compute, latents=latents)


def inputs(seed: int = 0, rows: int = ROWS) -> tuple[Tensor, Tensor, Tensor]:
    """Observations with one-hot skills, actions, and members that are not those of the skills; member 3 has none."""
    rng = torch.Generator().manual_seed(seed)
    skill = torch.eye(K)[torch.randint(K, (rows,), generator=rng)]
    x = torch.cat([torch.randn(rows, OBS, generator=rng), skill], 1)
    member = torch.tensor([0, 1, 2, 4])[torch.randint(4, (rows,), generator=rng)]
    return x, torch.randn(rows, ACTION, generator=rng), member


def dense(critic: EnsembleCritic, x: Tensor, action: Tensor, member: Tensor) -> Tensor:
    """Every member on every row, [K, B, 2], of which a mask leaves one each."""
    h = critic.trunk(torch.cat([x[:, :OBS], action], 1)).float()
    hidden = torch.einsum("bi,koi->kbo", h, critic.hidden_weight) + critic.hidden_bias.unsqueeze(1)
    halves = torch.relu(hidden).unflatten(2, (2, -1))
    if critic.deeper_weight is not None and critic.deeper_bias is not None:
        halves = torch.einsum("kbji,kjoi->kbjo", halves, critic.deeper_weight)
        halves = torch.relu(halves + critic.deeper_bias.squeeze(2).unsqueeze(1))
    values = torch.einsum("kbjh,kjh->kbj", halves, critic.value_weight) + critic.value_bias.unsqueeze(1)
    mask = torch.eye(K)[member].T.unsqueeze(2)
    assert torch.equal(mask.sum(0), torch.ones(len(x), 1)), "each row has exactly one member"
    return (mask * values).sum(0)


def gradients(critic: EnsembleCritic, values: Tensor, action: Tensor) -> list[Tensor]:
    target = torch.linspace(-1, 1, values.numel()).view_as(values)
    return list(torch.autograd.grad((values - target).square().mean(), [*critic.parameters(), action]))


@pytest.mark.parametrize("latents", [False, True])
@pytest.mark.parametrize("named", [True, False])
def test_gathered_rows_equal_masked_ones_in_values_and_all_gradients(named: bool, latents: bool) -> None:
    net, (x, action, member) = critic(latents=latents), inputs()
    action.requires_grad_()
    chosen = member if named else x[:, OBS:].argmax(1)
    found = net(x, action, *((member,) if named else ()))
    expected = dense(net, x, action, chosen)
    assert found.shape == (ROWS, 2) and found.dtype == torch.float32
    assert torch.allclose(found, expected, atol=1e-6)
    for one, other in zip(gradients(net, found, action), gradients(net, expected, action), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_few_rows_of_one_member_are_no_special_case(rows: int) -> None:
    net, (x, action, _) = critic(), inputs(rows=rows)
    member = torch.full((rows,), 3)
    assert torch.allclose(net(x, action, member), dense(net, x, action, member), atol=1e-6)


def test_no_member_reads_the_skill() -> None:
    net, (x, action, member) = critic(), inputs()
    other = torch.cat([x[:, :OBS], x[:, OBS:].roll(1, 1)], 1)
    assert torch.equal(net(x, action, member), net(other, action, member))
    assert not torch.allclose(net(x, action), net(other, action))
    assert net.trunk.get_parameter("linear.weight").shape == (WIDTH // 2, OBS + ACTION)


def test_a_member_learns_from_its_own_rows_alone_and_one_without_rows_not_at_all() -> None:
    net, (x, action, member) = critic(), inputs()

    def head_gradients(x: Tensor) -> Tensor:
        net.zero_grad()
        net(x, action, member).square().mean().backward()
        heads = (net.hidden_weight, net.hidden_bias, net.value_weight, net.value_bias)
        found = [p.grad for p in heads]
        assert all(g is not None for g in found)
        return torch.cat([g.flatten(1) for g in found if g is not None], 1)

    before = head_gradients(x)
    assert not before[3].any()
    for index in (0, 1, 2, 4):
        after = head_gradients(torch.where((member == index).unsqueeze(1), x, x + 1.0))
        assert torch.equal(after[index], before[index])
        moved = [i for i in (0, 1, 2, 4) if i != index]
        assert all(not torch.allclose(after[i], before[i]) for i in moved)


def test_both_values_are_those_of_separate_heads() -> None:
    net, (x, action, member) = critic(), inputs()
    before = net(x, action, member).detach()
    with torch.no_grad():
        net.hidden_weight[1, WIDTH:] *= 2.0
        net.value_bias[1, 1] += 1.0
    after = net(x, action, member).detach()
    assert torch.equal(after[:, 0], before[:, 0])
    assert torch.equal(after[member != 1], before[member != 1])
    assert not torch.isclose(after[member == 1, 1], before[member == 1, 1]).any()


@pytest.mark.parametrize(("init", "bounds"), [("official", (1024, 1)), ("fan_in", (512, 1024))])
def test_heads_start_uniform_within_the_bounds_of_their_kind(init: str, bounds: tuple[int, int]) -> None:
    with initialised_from(0):
        net = EnsembleCritic(2, 2, 4, 1024, init=init)  # pyright: ignore[reportArgumentType]
    assert net.hidden_weight.shape == (4, 2048, 512) and net.value_weight.shape == (4, 2, 1024)
    for parameters, fan in zip(
        ((net.hidden_weight, net.hidden_bias), (net.value_weight, net.value_bias)), bounds, strict=True
    ):
        for parameter in parameters:
            bound = 1 / math.sqrt(fan)
            assert float(parameter.detach().abs().max()) <= bound
            if parameter.numel() > 1000:
                assert float(parameter.detach().std()) == pytest.approx(bound / math.sqrt(3), rel=0.05)


@pytest.mark.parametrize(("init", "spread"), [("official", 3.2), ("fan_in", 0.12)])
def test_first_values_spread_over_members_as_the_initialisation_says(init: str, spread: float) -> None:
    with initialised_from(0):
        net = EnsembleCritic(2, 2, 16, 1024, init=init)  # pyright: ignore[reportArgumentType]
    rng = torch.Generator().manual_seed(0)
    x = torch.cat([2 * torch.randn(64, 2, generator=rng), torch.zeros(64, 16)], 1)
    action = 2 * torch.rand(64, 2, generator=rng) - 1
    with torch.no_grad():
        values = torch.stack([net(x, action, torch.full((64,), i)) for i in range(16)])
    assert float(values.std(0).mean()) == pytest.approx(spread, rel=0.25)


def test_of_latents_one_member_is_the_twin_critic_of_pictures() -> None:
    with initialised_from(0):
        ensemble = EnsembleCritic(OBS, ACTION, 1, WIDTH, init="fan_in", latents=True)
        twin = LatentTwinCritic(nn.Identity(), OBS, OBS + ACTION, WIDTH)
    assert ensemble.deeper_weight is not None and ensemble.deeper_bias is not None
    pairs = [
        (ensemble.hidden_weight[0], twin.first.weight),
        (ensemble.hidden_bias[0], twin.first.bias),
        (ensemble.deeper_weight[0], torch.stack([twin.hidden1.weight, twin.hidden2.weight])),
        (ensemble.deeper_bias[0].squeeze(1), torch.stack([twin.hidden1.bias, twin.hidden2.bias])),
        (ensemble.value_weight[0], torch.cat([twin.value1.weight, twin.value2.weight])),
        (ensemble.value_bias[0], torch.cat([twin.value1.bias, twin.value2.bias])),
    ]
    with torch.no_grad():
        for mine, other in pairs:
            mine.copy_(other)
    x, action, _ = inputs()
    x = torch.cat([x[:, :OBS], torch.ones(ROWS, 1)], 1)
    assert torch.allclose(ensemble(x, action), twin(x[:, :OBS], action), atol=1e-6)


def test_losses_are_means_over_members_too() -> None:
    assert critic().loss_scale == 1 / K


def test_bfloat16_stays_near_the_exact_values() -> None:
    exact, rounded = critic(), critic(compute=torch.bfloat16)
    x, action, member = inputs()
    found, expected = rounded(x, action, member).detach(), exact(x, action, member).detach()
    assert found.dtype == torch.float32 and not torch.equal(found, expected)
    assert float((found - expected).abs().max()) < 0.05
