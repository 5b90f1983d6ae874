from __future__ import annotations

import numpy as np
import pytest
import torch

from teb.nets.mlp import Linear, Mlp, initialised_from
from teb.nets.spectral import SpectralLinear, spectral_layers


def largest(layer: SpectralLinear) -> float:
    """The effective weight's largest singular value, exactly."""
    return float(np.linalg.svd(layer.effective_weight().detach().numpy(), compute_uv=False)[0])


def layer(inputs: int = 12, outputs: int = 9, seed: int = 0) -> SpectralLinear:
    with initialised_from(seed):
        return SpectralLinear(inputs, outputs)


def test_a_fresh_layer_is_orthogonal_and_holds_its_bound() -> None:
    fresh = layer()
    assert np.allclose(fresh.weight.detach().numpy() @ fresh.weight.detach().numpy().T, np.eye(9), atol=1e-5)
    assert largest(fresh) == pytest.approx(1.0, abs=1e-4)


def test_the_start_iterations_bound_a_weight_of_any_spectrum() -> None:
    """Two hundred random layers, each with 15 iterations from its random vectors, as when it is made."""
    norms: list[float] = []
    for seed in range(200):
        made = layer(seed=seed)
        torch.nn.init.uniform_(made.weight, -1.0, 1.0, generator=torch.Generator().manual_seed(seed))
        made.iterate(15)
        norms.append(largest(made))
    assert min(norms) >= 0.999
    assert np.median(norms) <= 1.02


def test_iterations_bring_the_exact_norm_to_one_for_a_weight_that_moves() -> None:
    moving, rng = layer(64, 64), torch.Generator().manual_seed(0)
    for _ in range(200):
        moving.iterate()
        moving.weight.data += 1e-3 * torch.randn(64, 64, generator=rng)
    moving.iterate()
    assert 0.98 <= largest(moving) <= 1.02


def test_a_layer_whose_vectors_stand_still_loses_its_bound() -> None:
    """The wrong variant, so that the tests above can fail."""
    moving, rng = layer(64, 64), torch.Generator().manual_seed(0)
    for _ in range(200):
        moving.weight.data += 1e-2 * torch.randn(64, 64, generator=rng)
    assert largest(moving) > 1.1


def test_scaling_the_weight_changes_nothing_and_its_gradient_has_no_such_part() -> None:
    first, second = layer(), layer()
    second.weight.data *= 7.0
    x = torch.randn(5, 12, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(first(x), second(x), atol=1e-5)
    first(x).square().sum().backward()
    assert first.weight.grad is not None
    assert float((first.weight.grad * first.weight).sum().detach()) == pytest.approx(0.0, abs=1e-4)


def test_the_bias_is_free() -> None:
    made = layer()
    made.bias.data.fill_(100.0)
    assert torch.allclose(made(torch.zeros(1, 12)), torch.full((1, 9), 100.0))


def test_vectors_move_only_when_asked_and_are_in_the_state() -> None:
    made = layer()
    made.weight.data += 0.1
    before = {name: value.clone() for name, value in made.state_dict().items()}
    made(torch.ones(2, 12)).sum().backward()
    assert all(torch.equal(value, made.state_dict()[name]) for name, value in before.items())
    made.iterate()
    assert {name for name, value in before.items() if not torch.equal(value, made.state_dict()[name])} == {
        "left",
        "right",
    }


def test_iterating_between_forward_and_backward_does_no_harm() -> None:
    made = layer()
    loss = made(torch.ones(2, 12)).sum()
    made.iterate()
    loss.backward()
    assert made.weight.grad is not None and bool(made.weight.grad.isfinite().all())


def test_it_computes_in_the_precision_of_its_input() -> None:
    made = layer()
    assert made(torch.ones(2, 12).bfloat16()).dtype == torch.bfloat16
    assert torch.allclose(made(torch.ones(2, 12).bfloat16()).float(), made(torch.ones(2, 12)), atol=0.05)


def test_every_layer_of_a_spectral_network_is_held_and_it_stretches_no_distance() -> None:
    with initialised_from(0):
        net = Mlp(2, 32, 16, depth=2, layer=SpectralLinear)
    assert len(spectral_layers(net)) == 3 == sum(isinstance(m, Linear) for m in net.modules())
    x, y = torch.randn(2, 500, 2, generator=torch.Generator().manual_seed(0))
    stretched = (net(x) - net(y)).norm(dim=1) / (x - y).norm(dim=1)
    assert float(stretched.max().detach()) <= 1.001
    assert spectral_layers(Mlp(2, 8, 3)) == []
