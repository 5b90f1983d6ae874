from __future__ import annotations

import pytest
import torch
from torch import nn

from teb.nets.mlp import Linear, initialised_from
from teb.nets.vae import LOG_VARIANCE_LIMIT, Coded, Vae, code_cost, squared_error


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def vae(inputs: int = 6, hidden: int = 32, code: int = 8) -> Vae:
    with initialised_from(0):
        return Vae(inputs, hidden, code)


def test_layers_are_those_of_the_official_model() -> None:
    net = vae(6, 150, 128)
    sizes = [tuple(m.weight.shape) for m in net.modules() if isinstance(m, Linear)]
    assert sizes == [(150, 6), (150, 150), (256, 150), (150, 128), (150, 150), (6, 150)]
    assert sum(isinstance(m, nn.ReLU) for m in net.encoder) == 2


def test_a_standard_normal_code_costs_nothing() -> None:
    zeros = torch.zeros(3, 128)
    assert torch.allclose(code_cost(Coded(zeros, zeros, torch.empty(0))), torch.zeros(3), atol=1e-4)


def test_code_cost_is_the_sum_over_the_code() -> None:
    mean, log_variance = torch.randn(2, 5, 8, generator=generator()).double()
    expected = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1)
    assert torch.allclose(code_cost(Coded(mean, log_variance, torch.empty(0))), expected)


def test_squared_error_is_summed_over_the_input() -> None:
    coded = Coded(torch.empty(0), torch.empty(0), torch.tensor([[1.0, 2.0]]))
    assert squared_error(torch.tensor([[4.0, 6.0]]), coded).tolist() == [25.0]


def test_the_code_is_drawn_with_its_own_deviation() -> None:
    class Same(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    net = vae()
    net.decoder = Same()  # pyright: ignore[reportAttributeAccessIssue]
    coded = net(torch.ones(1, 6).expand(40_000, -1), generator())
    found = coded.reconstruction.detach()
    assert torch.allclose(found.mean(0), coded.mean[0].detach(), atol=0.05)
    assert torch.allclose(found.std(0), (0.5 * coded.log_variance[0].detach()).exp(), rtol=0.05)


def test_noise_comes_from_the_given_generator() -> None:
    net, x = vae(), torch.ones(4, 6)
    one, same, other = (net(x, generator(seed)).reconstruction for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_far_inputs_overflow_neither_forwards_nor_backwards() -> None:
    net = vae()
    coded = net(torch.full((2, 6), 1e4), generator())
    assert float(coded.log_variance.abs().max().detach()) == LOG_VARIANCE_LIMIT
    (code_cost(coded).mean() + coded.reconstruction.sum()).backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in net.parameters())


def test_the_limit_of_the_variance_is_far_from_the_positions_of_a_maze() -> None:
    coded = vae(6, 150, 128)(torch.cat([torch.full((1, 2), 10.0), torch.eye(4)[:1]], 1), generator())
    assert float(coded.log_variance.abs().max().detach()) < 0.5 * LOG_VARIANCE_LIMIT


def test_encoder_moments_start_as_two_orthogonal_layers() -> None:
    last = vae(6, 150, 128).encoder[-1]
    assert isinstance(last, Linear)
    for half in last.weight.detach().chunk(2):
        assert torch.allclose(half @ half.T, torch.eye(128), atol=1e-5)


@pytest.mark.parametrize("size", [1, 7])
def test_shapes(size: int) -> None:
    coded = vae()(torch.zeros(size, 6), generator())
    assert [tuple(x.shape) for x in coded] == [(size, 8), (size, 8), (size, 6)]
    assert code_cost(coded).shape == squared_error(torch.zeros(size, 6), coded).shape == (size,)
