from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

from teb.nets.actor_critic import LatentTwinCritic
from teb.nets.dropout import Dropout, DropoutNorm, draw_from
from teb.nets.encoder import LatentTrunk
from teb.nets.mlp import initialised_from


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def dropout(rate: float, seed: int = 0) -> Dropout:
    layer = Dropout(rate)
    draw_from(layer, generator(seed))
    return layer


def test_a_share_is_dropped_and_the_rest_scaled_so_that_the_mean_stays() -> None:
    out = dropout(0.25)(torch.full((400, 500), 3.0))
    assert sorted(set(out.flatten().tolist())) == pytest.approx([0.0, 4.0])
    assert float((out == 0).float().mean()) == pytest.approx(0.25, abs=0.005)
    assert float(out.mean()) == pytest.approx(3.0, abs=0.02)


def test_it_draws_from_its_generator_and_from_no_other() -> None:
    torch.manual_seed(5)
    untouched, x = torch.get_rng_state(), torch.ones(20, 30)
    one, same, other = (dropout(0.5, seed) for seed in (1, 1, 2))
    first = one(x)
    assert torch.equal(first, same(x)) and not torch.equal(first, other(x))
    assert not torch.equal(first, one(x)), "each call drops other units"
    assert torch.equal(torch.get_rng_state(), untouched)


@pytest.mark.parametrize("how", ["no rate", "evaluation"])
def test_without_dropping_the_input_itself_comes_back_and_nothing_is_drawn(how: str) -> None:
    layer, rng = Dropout(0.0 if how == "no rate" else 0.5), generator()
    draw_from(layer, rng)
    before, x = rng.get_state(), torch.randn(4, 5)
    if how == "evaluation":
        layer.eval()
    assert layer(x) is x
    assert torch.equal(rng.get_state(), before)


def test_a_critic_and_its_copy_share_one_generator() -> None:
    first = DropoutNorm(6, 1, 0.5)
    second = copy.deepcopy(first)
    rng = generator()
    for layer in (first, second):
        draw_from(layer, rng)
    assert first.dropout.rng is second.dropout.rng is rng


def test_the_gradient_is_that_of_the_kept_units() -> None:
    x = torch.ones(3, 8, requires_grad=True)
    out = dropout(0.5)(x)
    out.sum().backward()
    assert x.grad is not None and torch.equal(x.grad, out.detach())


def test_heads_that_lie_side_by_side_are_normed_each_by_itself() -> None:
    layer, x = DropoutNorm(7, 2, 0.0), torch.randn(5, 14, generator=generator())
    assert layer.gain is not None and layer.shift is not None
    with torch.no_grad():
        layer.gain.normal_(generator=generator(1))
        layer.shift.normal_(generator=generator(2))
    expected = [
        F.layer_norm(part, (7,), layer.gain[head], layer.shift[head])
        for head, part in enumerate(x.chunk(2, -1))
    ]
    assert torch.allclose(layer(x), torch.cat(expected, -1), atol=1e-6)


def test_units_are_dropped_before_they_are_normed() -> None:
    layer = DropoutNorm(50, 1, 0.5)
    draw_from(layer, generator())
    out = layer(torch.rand(6, 50) + 1)
    assert torch.allclose(out.mean(-1), torch.zeros(6), atol=1e-5)
    assert float((out < -0.5).float().mean()) == pytest.approx(0.5, abs=0.1), "about half were dropped"
    assert not bool((out == 0).any()), "norms were dropped"


def test_it_keeps_the_precision_of_its_input() -> None:
    layer, x = DropoutNorm(16, 2, 0.0), torch.randn(5, 32)
    rounded = layer(x.bfloat16())
    assert rounded.dtype == torch.bfloat16
    assert torch.allclose(rounded.float(), layer(x), atol=0.05)
    bare = DropoutNorm(16, 2, 0.0, normalise=False)
    assert list(bare.parameters()) == [] and torch.equal(bare(x.bfloat16()), x.bfloat16())


def test_in_a_critic_it_stands_before_every_relu_of_the_heads() -> None:
    with initialised_from(0):
        critic = LatentTwinCritic(
            LatentTrunk(30, 5), 30, 7, 16, before_relu=lambda w, h: DropoutNorm(w, h, 0.0)
        )
    with initialised_from(0):
        plain = LatentTwinCritic(LatentTrunk(30, 5), 30, 7, 16)
    for name, value in plain.named_parameters():
        assert torch.equal(critic.get_parameter(name), value)
    x, action = torch.randn(4, 30), torch.rand(4, 2)
    values = []
    h = plain.first(torch.cat([plain.trunk(x), action], -1)).chunk(2, -1)
    for part, hidden, value in zip(
        h, (plain.hidden1, plain.hidden2), (plain.value1, plain.value2), strict=True
    ):
        inner = torch.relu(F.layer_norm(part, (16,)))
        values.append(value(torch.relu(F.layer_norm(hidden(inner), (16,)))))
    assert torch.allclose(critic(x, action), torch.cat(values, -1), atol=1e-5)
    assert len([*critic.parameters()]) - len([*plain.parameters()]) == 6
