from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from teb.maths.dormancy import dormant_ratio
from teb.nets.actor_critic import LatentActor
from teb.nets.dormancy import linear_layers, move_to_fresh, responses
from teb.nets.encoder import ConvEncoder, LatentTrunk
from teb.nets.mlp import Linear, Mlp, initialised_from

UNITS = 50 + 1024 + 1024 + 4


def actor(width: int = 1024, features: int = 300, latent: int = 50) -> LatentActor:
    with initialised_from(0):
        return LatentActor(LatentTrunk(features, latent), features, latent, 4, width)


def features(rows: int = 64, width: int = 300) -> torch.Tensor:
    return torch.rand(rows, width, generator=torch.Generator().manual_seed(1))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# --- listening ------------------------------------------------------------------------------------------------------


def test_all_linear_layers_are_heard_before_norm_and_activation() -> None:
    net, x = actor(), features()
    trunk: Any = net.trunk
    raw = [trunk.linear(x)]
    raw.append(net.first(torch.tanh(trunk.norm(raw[0]))))
    raw.append(net.hidden(torch.relu(raw[1])))
    raw.append(net.mean(torch.relu(raw[2])))
    answers = responses(net, x, "pre")
    assert sum(answer.shape[1] for answer in answers) == UNITS == 2102
    for answer, expected in zip(answers, raw, strict=True):
        assert torch.allclose(answer, expected, atol=1e-6) and not answer.requires_grad
    behind = responses(net, x, "post")
    expected = [net.trunk(x), torch.relu(raw[1]), torch.relu(raw[2]), net(x)]
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(behind, expected, strict=True))


def test_nobody_listens_afterwards() -> None:
    net = actor(16)
    for where in ("pre", "post"):
        responses(net, features(), where)
    assert not any(module._forward_hooks for module in net.modules())


@pytest.mark.parametrize("rows", [0, 1, 7, 300])
def test_units_without_weights_are_what_is_counted(rows: int) -> None:
    net, x = actor(), features()
    with torch.no_grad():
        net.hidden.weight[:rows] = 0
        net.hidden.bias[:rows] = 0
    assert float(dormant_ratio(responses(net, x, "pre"), 0.025)) == pytest.approx(rows / UNITS)


@pytest.mark.parametrize("factor", [1e-2, 1.7, 40.0])
@pytest.mark.parametrize("index", range(4))
def test_scaling_a_layer_leaves_its_count(index: int, factor: float) -> None:
    net, x = actor(64), features()
    with torch.no_grad():
        for layer in linear_layers(net):
            loudness = torch.rand(len(layer.weight), generator=generator(2)) ** 6
            layer.weight.mul_(loudness.unsqueeze(1))
            layer.bias.normal_(generator=generator(3)).mul_(loudness)
        before = dormant_ratio([responses(net, x, "pre")[index]], 0.025)
        layer = linear_layers(net)[index]
        layer.weight.mul_(factor)
        layer.bias.mul_(factor)
    assert torch.equal(dormant_ratio([responses(net, x, "pre")[index]], 0.025), before)
    assert float(before) > 0 or index == 3


# --- fresh weights --------------------------------------------------------------------------------------------------


def trained() -> nn.Module:
    with initialised_from(3):
        net = nn.ModuleDict(
            {
                "conv": ConvEncoder((3, 16, 16), 4),
                "trunk": LatentTrunk(20, 6),
                "heads": Linear(6, 16, blocks=2),
                "value": Mlp(6, 12, 1, 2),
            }
        )
    with torch.no_grad():
        for index, parameter in enumerate(net.parameters()):
            parameter.add_(torch.randn(parameter.shape, generator=generator(index)))
    return net


def values_of(net: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in net.named_parameters()}


def test_all_kept_leaves_every_bit() -> None:
    net = trained()
    before = values_of(net)
    move_to_fresh([net], torch.tensor(1.0), generator())
    assert all(torch.equal(before[name], value) for name, value in values_of(net).items())


def test_nothing_kept_makes_linear_layers_orthogonal_and_leaves_all_others() -> None:
    net = trained()
    before = values_of(net)
    move_to_fresh([net], torch.tensor(0.0), generator())
    for layer in linear_layers(net):
        assert not bool(layer.bias.any())
        for block in layer.weight.detach().chunk(layer.blocks):
            wide = block if block.shape[0] <= block.shape[1] else block.T
            assert torch.allclose(wide @ wide.T, torch.eye(len(wide)), atol=1e-5)
    one, other = (block for block in net["heads"].weight.detach().chunk(2))  # pyright: ignore[reportIndexIssue]
    assert not torch.allclose(one, other), "both heads got one draw"
    assert len(linear_layers(net)) == 5
    linear = {f"{name}.{part}" for name, module in net.named_modules() if isinstance(module, Linear)
              for part in ("weight", "bias")}  # fmt: skip
    for name, value in values_of(net).items():
        assert torch.equal(before[name], value) == (name not in linear), name


def test_in_between_weights_are_mixed() -> None:
    net, fresh = trained(), trained()
    before = values_of(net)
    move_to_fresh([net], torch.tensor(0.6), generator())
    move_to_fresh([fresh], torch.tensor(0.0), generator())
    for name, layer in net.named_modules():
        if isinstance(layer, Linear):
            mixed = 0.6 * before[f"{name}.weight"] + 0.4 * fresh.get_parameter(f"{name}.weight")
            assert torch.allclose(layer.weight, mixed, atol=1e-6)
            assert torch.allclose(layer.bias, 0.6 * before[f"{name}.bias"], atol=1e-6)


def test_modules_that_move_together_get_the_same_fresh_weights() -> None:
    one, other = trained(), trained()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.neg_()
    move_to_fresh([one, other], torch.tensor(0.0), generator())
    for first, second in zip(linear_layers(one), linear_layers(other), strict=True):
        assert torch.equal(first.weight, second.weight)
    torch.manual_seed(7)
    state = torch.get_rng_state()
    move_to_fresh([one], torch.tensor(0.0), generator(1))
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(linear_layers(one)[0].weight, linear_layers(other)[0].weight)
