from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from teb.nets.dynamics import ForwardInverse


def models(compute: torch.dtype = torch.float32) -> ForwardInverse:
    """Models of three-dimensional latents and two actions, with biases that are not zero."""
    torch.manual_seed(0)
    net = ForwardInverse(3, 2, 16, compute)
    for name, parameter in net.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter, std=0.1)
    return net


def transition(size: int = 20) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(1)
    x, a, y = (torch.randn(size, width, generator=rng) for width in (3, 2, 3))
    return x, a.clamp(-1, 1), y


def numpy_mlp(net: nn.Module, x: np.ndarray) -> np.ndarray:
    w1, b1, w2, b2 = (p.detach().numpy() for p in net.parameters())
    return np.maximum(x @ w1.T + b1, 0) @ w2.T + b2


def test_errors_are_euclidean_lengths_of_what_each_model_misses() -> None:
    net, (x, a, y) = models(), transition()
    xa, xy = (np.concatenate([t.numpy() for t in pair], 1) for pair in ((x, a), (x, y)))
    forward = np.linalg.norm(y.numpy() - numpy_mlp(net.following, xa), axis=1)
    inverse = np.linalg.norm(a.numpy() - np.tanh(numpy_mlp(net.inverse, xy)), axis=1)
    for found, expected in ((net.forward_error(x, a, y), forward), (net.inverse_error(x, a, y), inverse)):
        assert found.shape == (20, 1) and found.dtype == torch.float32
        assert np.allclose(found.detach().numpy()[:, 0], expected, atol=1e-5)


def test_predicted_actions_lie_inside_the_box() -> None:
    net, (x, _, y) = models(), transition(200)
    actions = net.predicted_action(3 * x, 3 * y).detach()
    assert float(actions.abs().max()) < 1
    assert float(actions.abs().max()) > 0.9, "the transitions were too small to try it"
    assert float(net.predicted_action(1e3 * x, 1e3 * y).abs().max().detach()) <= 1


def test_gradient_of_an_error_of_zero_is_zero() -> None:
    net, (x, a, _) = models(), transition()
    x.requires_grad_()
    exact = net.predicted_latent(x, a).detach()
    net.forward_error(x, a, exact).sum().backward()
    gradients = [x.grad, *(p.grad for p in net.following.parameters())]
    assert all(g is not None and torch.equal(g, torch.zeros_like(g)) for g in gradients)


def test_the_two_models_share_no_parameter() -> None:
    net, (x, a, y) = models(), transition()
    net.inverse_error(x, a, y).sum().backward()
    assert all(p.grad is None for p in net.following.parameters())
    assert all(p.grad is not None for p in net.inverse.parameters())


def test_lower_precision_stays_near_and_hands_out_float32() -> None:
    exact, rounded = models(), models(torch.bfloat16)
    x, a, y = transition()
    for one, other in zip(exact.parameters(), rounded.parameters(), strict=True):
        assert torch.equal(one, other)
    for name in ("forward_error", "inverse_error"):
        found, expected = getattr(rounded, name)(x, a, y), getattr(exact, name)(x, a, y)
        assert found.dtype == torch.float32
        assert 0 < float((found - expected).abs().max().detach()) < 0.05


@pytest.mark.parametrize(("latent", "size"), [(2, 14_340), (5, 1024 * (7 + 5 + 10 + 2 + 2) + 7)])
def test_size_at_the_width_of_the_paper(latent: int, size: int) -> None:
    assert sum(p.numel() for p in ForwardInverse(latent, 2, 1024).parameters()) == size
