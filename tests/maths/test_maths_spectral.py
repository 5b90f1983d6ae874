from __future__ import annotations

import numpy as np
import pytest
import torch

from teb.maths.spectral import power_iteration, spectral_norm


@pytest.mark.parametrize("shape", [(8, 8), (3, 17), (17, 3), (1, 5)])
def test_power_iteration_finds_the_largest_singular_value_and_its_vectors(shape: tuple[int, int]) -> None:
    weight = np.random.default_rng(0).normal(size=shape)
    left = torch.nn.functional.normalize(torch.ones(shape[0], dtype=torch.float64), dim=0)
    right = left
    for _ in range(300):
        left, right = power_iteration(torch.from_numpy(weight), left)
    u, s, v = np.linalg.svd(weight)
    assert spectral_norm(torch.from_numpy(weight), left, right).item() == pytest.approx(s[0], rel=1e-6)
    assert abs(float(left.numpy() @ u[:, 0])) == pytest.approx(1.0, abs=1e-5)
    assert abs(float(right.numpy() @ v[0])) == pytest.approx(1.0, abs=1e-5)


def test_the_estimate_never_exceeds_the_largest_singular_value_and_rises() -> None:
    weight = torch.randn(20, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    left = torch.eye(20, dtype=torch.float64)[0]
    estimates: list[float] = []
    for _ in range(30):
        left, right = power_iteration(weight, left)
        estimates.append(spectral_norm(weight, left, right).item())
    assert max(estimates) <= float(np.linalg.svd(weight.numpy())[1][0]) + 1e-9
    assert all(later >= earlier - 1e-9 for earlier, later in zip(estimates, estimates[1:], strict=False))


def test_gradient_of_the_norm_is_the_outer_product_of_its_vectors() -> None:
    weight = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
    left = torch.nn.functional.normalize(torch.ones(6), dim=0)
    right = torch.zeros(4)
    for _ in range(200):
        left, right = power_iteration(weight.detach(), left)
    spectral_norm(weight, left, right).backward()
    u, _, v = np.linalg.svd(weight.detach().numpy())
    assert weight.grad is not None
    assert np.allclose(weight.grad.numpy(), np.outer(u[:, 0], v[0]), atol=1e-4)


def test_a_zero_matrix_gives_zero_without_dividing_by_it() -> None:
    left, right = power_iteration(torch.zeros(3, 2), torch.ones(3))
    assert spectral_norm(torch.zeros(3, 2), left, right).item() == 0.0
    assert bool(left.isfinite().all()) and bool(right.isfinite().all())
