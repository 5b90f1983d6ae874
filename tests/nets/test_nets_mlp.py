from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from teb.nets.mlp import Joined, Linear, Mlp, Trunk, hidden_mlp, initialised_from

BF16_EPS = torch.finfo(torch.bfloat16).eps


@pytest.mark.parametrize(("inputs", "outputs"), [(7, 7), (5, 12), (12, 5), (64, 1), (2, 33)])
@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_each_block_starts_orthogonal_with_gain_one_and_zero_bias(
    inputs: int, outputs: int, blocks: int
) -> None:
    layer = Linear(inputs, outputs, blocks)
    assert layer.weight.shape == (blocks * outputs, inputs)
    assert bool((layer.bias == 0).all()) and layer.bias.shape == (blocks * outputs,)
    for w in layer.weight.detach().numpy().reshape(blocks, outputs, inputs):
        gram = w @ w.T if outputs <= inputs else w.T @ w
        assert np.allclose(gram, np.eye(len(gram)), atol=1e-5)


def test_blocks_are_drawn_independently() -> None:
    first, second = Linear(16, 16, blocks=2).weight.detach().chunk(2)
    assert not torch.allclose(first, second)
    assert float((first * second).sum().abs()) < 12  # the trace of a random rotation, far below 16


def test_blocks_compute_what_separate_layers_would() -> None:
    layer, x = Linear(4, 3, blocks=2), torch.randn(5, 4)
    nn.init.normal_(layer.bias)
    for half, (w, b) in zip(
        layer(x).chunk(2, -1), zip(layer.weight.chunk(2), layer.bias.chunk(2), strict=True), strict=True
    ):
        expected = x.numpy() @ w.detach().numpy().T + b.detach().numpy()
        assert np.allclose(half.detach().numpy(), expected, atol=1e-5)


def test_linear_computes_in_the_precision_of_its_input_and_keeps_float32_parameters() -> None:
    layer = Linear(64, 32)
    nn.init.normal_(layer.bias)
    x = torch.randn(16, 64)
    exact, rounded = layer(x), layer(x.bfloat16())
    assert exact.dtype == torch.float32 and rounded.dtype == torch.bfloat16
    assert layer.weight.dtype == layer.bias.dtype == torch.float32
    scale = x.abs() @ layer.weight.detach().abs().T + layer.bias.detach().abs()
    assert bool(((rounded.float() - exact).abs() <= 3 * BF16_EPS * scale).all())
    rounded.float().sum().backward()
    assert layer.weight.grad is not None and layer.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("inputs", [1, 2, 32, 33, 100])
@pytest.mark.parametrize("rows", [(7,), (3, 5)])
def test_narrow_and_wide_layers_have_the_same_values_and_gradients(
    inputs: int, rows: tuple[int, ...]
) -> None:
    layer, x = Linear(inputs, 6).double(), torch.randn(*rows, inputs, dtype=torch.float64, requires_grad=True)
    nn.init.normal_(layer.bias)
    wanted = torch.randn(*rows, 6, dtype=torch.float64)
    (layer(x) * wanted).sum().backward()
    flat, g = x.detach().reshape(-1, inputs), wanted.reshape(-1, 6)
    assert torch.allclose(layer(x), x @ layer.weight.T + layer.bias)
    for found, expected in ((layer.weight, g.T @ flat), (layer.bias, g.sum(0)), (x, wanted @ layer.weight)):
        assert found.grad is not None and found.grad.shape == found.shape
        assert torch.allclose(found.grad, expected)


def test_trunk_is_linear_norm_tanh() -> None:
    trunk, x = Trunk(3, 8), torch.randn(6, 3)
    nn.init.normal_(trunk.norm.weight)
    nn.init.normal_(trunk.norm.bias)
    h = x.numpy() @ trunk.linear.weight.detach().numpy().T + trunk.linear.bias.detach().numpy()
    h = (h - h.mean(1, keepdims=True)) / np.sqrt(h.var(1, keepdims=True) + 1e-5)
    h = h * trunk.norm.weight.detach().numpy() + trunk.norm.bias.detach().numpy()
    assert np.allclose(trunk(x).detach().numpy(), np.tanh(h), atol=1e-5)


def test_trunk_in_bfloat16_tells_positions_apart_that_bfloat16_cannot() -> None:
    a, b = torch.tensor([[4.500, -3.0]]), torch.tensor([[4.510, -3.0]])
    assert torch.equal(a.bfloat16(), b.bfloat16()), "the two positions are one in bfloat16"
    with initialised_from(0):
        exact, rounded = Trunk(2, 256), Trunk(2, 256, torch.bfloat16)
    rounded.load_state_dict(exact.state_dict())
    # A gain that makes the two outputs differ by more than what handing on in bfloat16 rounds away.
    for trunk in (exact, rounded):
        nn.init.constant_(trunk.norm.weight, 10.0)
    assert rounded(a).dtype == torch.bfloat16
    expected = exact(b) - exact(a)
    found = rounded(b).float() - rounded(a).float()
    assert float((found - expected).norm().detach()) < 0.6 * float(expected.norm().detach())


def test_hidden_mlp_is_linear_norm_relu_linear() -> None:
    net = hidden_mlp(4, 16, 3)
    assert [type(layer) for layer in net] == [Linear, nn.LayerNorm, nn.ReLU, Linear]
    assert sum(p.numel() for p in net.parameters()) == 4 * 16 + 16 + 2 * 16 + 16 * 3 + 3
    assert net(torch.zeros(5, 4)).shape == (5, 3)


def test_initialisation_repeats_with_its_seed_and_leaves_the_global_generator_untouched() -> None:
    torch.manual_seed(123)
    before = torch.random.get_rng_state()
    layers: list[Linear] = []
    for seed in (1, 1, 2):
        with initialised_from(seed):
            layers.append(Linear(8, 8))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(layers[0].weight, layers[1].weight)
    assert not torch.equal(layers[0].weight, layers[2].weight)


def test_initialisation_does_not_depend_on_the_global_generator() -> None:
    weights: list[torch.Tensor] = []
    for state in (5, 6):
        torch.manual_seed(state)
        with initialised_from(1):
            weights.append(Linear(8, 8).weight)
    assert torch.equal(*weights)


@pytest.mark.parametrize(
    ("depth", "size"), [(1, 4 * 16 + 16 + 16 * 3 + 3), (2, 4 * 16 + 16 + 16 * 16 + 16 + 16 * 3 + 3)]
)
def test_mlp_is_relu_layers_and_a_linear_one(depth: int, size: int) -> None:
    net, x = Mlp(4, 16, 3, depth), torch.randn(5, 4)
    assert sum(p.numel() for p in net.parameters()) == size
    h = x
    for layer in net.layers:
        h = torch.relu(h @ layer.get_parameter("weight").T)
    assert torch.allclose(net(x), h @ net.last.weight.T, atol=1e-6)


def test_mlp_in_bfloat16_hands_out_float32_and_reads_its_input_exactly() -> None:
    with initialised_from(0):
        exact, rounded, wide = (Mlp(2, 64, 3, 2, c, wide=w) for c, w in
                                ((torch.float32, False), (torch.bfloat16, False), (torch.bfloat16, True)))  # fmt: skip
    for net in (rounded, wide):
        net.load_state_dict(exact.state_dict())
    x = torch.randn(32, 2)
    for net in (rounded, wide):
        assert net(x).dtype == torch.float32
        assert 0 < float((net(x) - exact(x)).abs().max().detach()) < 0.05
    shallow = Mlp(2, 64, 3, 1, torch.float32), Mlp(2, 64, 3, 1, torch.bfloat16)
    shallow[1].load_state_dict(shallow[0].state_dict())
    assert torch.equal(shallow[0](x), shallow[1](x)), "there is no product between hidden layers"


def test_uniform_start_is_that_of_pytorch() -> None:
    layer, bound = Linear(64, 500, blocks=2, init="uniform"), 64**-0.5
    theirs = nn.Linear(64, 1000)
    for parameter, other in ((layer.weight, theirs.weight), (layer.bias, theirs.bias)):
        values = parameter.detach()
        assert parameter.shape == other.shape
        assert 0.95 * bound < float(values.max()) <= bound and -bound <= float(values.min()) < -0.95 * bound
        assert float(values.var()) == pytest.approx(bound**2 / 3, rel=0.1)
        assert float(values.mean()) == pytest.approx(0, abs=0.1 * bound)
        assert float(other.detach().abs().max()) <= bound + 1e-6


def test_all_layers_of_an_mlp_start_alike() -> None:
    for net, biased in (
        (Mlp(4, 16, 3, 2), False),
        (Mlp(4, 16, 3, 2, layer=partial(Linear, init="uniform")), True),
    ):
        assert [bool(p.any()) for n, p in net.named_parameters() if "bias" in n] == [biased] * 3


def test_joined_layer_is_one_layer_on_both_inputs_side_by_side() -> None:
    with initialised_from(0):
        joined = Joined(32, 3, 16, init="uniform")
    with initialised_from(0):
        whole = Linear(35, 16, init="uniform")
    hidden, raw = torch.randn(9, 32), torch.randn(9, 3)
    expected = whole(torch.cat([hidden, raw], 1))
    assert torch.allclose(joined(hidden, raw), expected, atol=1e-5)
    assert sum(p.numel() for p in joined.parameters()) == 35 * 16 + 16
    rounded = joined(hidden.bfloat16(), raw)
    assert rounded.dtype == torch.bfloat16
    assert torch.allclose(rounded.float(), expected, atol=0.05)
    joined(hidden, raw).sum().backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in joined.parameters())


def test_mlp_rounds_an_input_only_if_that_is_not_raw() -> None:
    a, b = torch.tensor([[4.500, -3.0]]), torch.tensor([[4.510, -3.0]])
    for raw in (True, False):
        with initialised_from(0):
            net = Mlp(2, 64, 3, 2, torch.bfloat16, raw=raw)
        assert torch.equal(net(a), net(b)) != raw
        assert net(a).dtype == torch.float32
