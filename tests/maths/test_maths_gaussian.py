from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from teb.maths.gaussian import (
    SigmaParam,
    bounded_sigma,
    equal_spread_kl,
    folded_normal_mean,
    gaussian_kl,
    gaussian_nll,
    surprise_loss,
)

KINDS: tuple[SigmaParam, ...] = get_args(SigmaParam)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("low", "high"), [(1e-4, 1.0), (1e-4, 10.0), (0.5, 0.5), (1e-2, 0.3)])
def test_sigma_stays_in_its_interval_for_raw_outputs_up_to_a_thousand(
    kind: SigmaParam, low: float, high: float
) -> None:
    raw = torch.cat([torch.linspace(-1e3, 1e3, 4001), torch.linspace(-20, 20, 4001)])
    sigma = bounded_sigma(raw, low, high, kind)
    ulp = 2.0 * torch.finfo(torch.float32).eps * high
    assert sigma.dtype == torch.float32
    assert bool((sigma >= low - torch.finfo(torch.float32).eps * low).all())
    assert bool((sigma <= high + ulp).all())


@settings(max_examples=60)
@given(
    raw=st.floats(-1e3, 1e3, width=32),
    low=st.floats(1e-6, 0.5),
    span=st.floats(0.0, 10.0),
    kind=st.sampled_from(KINDS),
)
def test_sigma_stays_in_any_interval(raw: float, low: float, span: float, kind: SigmaParam) -> None:
    sigma = float(bounded_sigma(torch.tensor(raw), low, low + span, kind))
    assert low * (1 - 1e-6) <= sigma <= (low + span) * (1 + 1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_sigma_reaches_both_ends_and_never_falls_with_the_raw_output(kind: SigmaParam) -> None:
    sigma = bounded_sigma(torch.linspace(-100, 100, 2001), 1e-4, 1.0, kind)
    assert float(sigma[0]) == pytest.approx(1e-4, rel=1e-5)
    assert float(sigma[-1]) == pytest.approx(1.0, rel=1e-6)
    assert bool((sigma.diff() >= 0).all())


def test_sigma_at_raw_zero_is_the_middle_of_the_scale_that_the_kind_uses() -> None:
    zero = torch.zeros(())
    assert float(bounded_sigma(zero, 1e-4, 1.0, "affine_sigmoid")) == pytest.approx(0.50005)
    assert float(bounded_sigma(zero, 1e-4, 1.0, "bounded_log")) == pytest.approx(1e-2)
    assert float(bounded_sigma(zero, 1e-4, 1.0, "clamp")) == pytest.approx(1e-4)
    assert float(bounded_sigma(zero + 0.3, 1e-4, 1.0, "clamp")) == pytest.approx(0.3)


def test_clamped_sigma_has_no_gradient_outside_its_interval_and_the_others_have() -> None:
    for kind in KINDS:
        raw = torch.tensor([-3.0, 3.0], requires_grad=True)
        (gradient,) = torch.autograd.grad(bounded_sigma(raw, 1e-4, 1.0, kind).sum(), raw)
        assert bool((gradient == 0).all()) == (kind == "clamp")


@given(
    target=st.floats(-5, 5, width=32),
    mean=st.floats(-5, 5, width=32),
    sigma=st.floats(0.0625, 5, width=32),
)
def test_negative_log_likelihood_is_that_of_scipy_without_the_constant(
    target: float, mean: float, sigma: float
) -> None:
    nll = gaussian_nll(*(torch.tensor(x, dtype=torch.float64) for x in (target, mean, sigma)))
    expected = -stats.norm.logpdf(target, mean, sigma) - 0.5 * math.log(2 * math.pi)
    assert float(nll) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def fitted(targets: torch.Tensor, kind: SigmaParam) -> tuple[float, float]:
    """Mean and sigma that minimise the likelihood's negative logarithm, found by SciPy."""

    def objective(x: np.ndarray) -> float:
        mean, raw = torch.from_numpy(x)
        return float(gaussian_nll(targets, mean, bounded_sigma(raw, 1e-4, 1.0, kind)).mean())

    start = np.array([0.3, 0.5])
    options = {"xatol": 1e-7, "fatol": 1e-12, "maxiter": 1000}
    best = optimize.minimize(objective, start, method="Nelder-Mead", options=options)
    return float(best.x[0]), float(bounded_sigma(torch.tensor(best.x[1]), 1e-4, 1.0, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_likelihood_of_constant_targets_is_best_at_the_constant_and_the_smallest_sigma(
    kind: SigmaParam,
) -> None:
    mean, sigma = fitted(torch.full((64,), 0.7, dtype=torch.float64), kind)
    assert mean == pytest.approx(0.7, abs=1e-4)
    assert sigma < 2e-4


@pytest.mark.parametrize("kind", KINDS)
def test_likelihood_of_noisy_targets_is_best_at_their_standard_deviation(kind: SigmaParam) -> None:
    targets = torch.from_numpy(np.random.default_rng(0).normal(0.0, 0.3, 20_000))
    mean, sigma = fitted(targets, kind)
    assert mean == pytest.approx(float(targets.mean()), abs=1e-3)
    assert sigma == pytest.approx(0.3, abs=0.01)


@pytest.mark.parametrize(
    ("mean", "variance"), [(0.0, 0.5), (0.3, 0.02), (-1.2, 2.0), (4.0, 0.5), (-0.1, 1.0)]
)
def test_folded_normal_mean_agrees_with_monte_carlo_to_three_decimals(mean: float, variance: float) -> None:
    # Antithetic draws: a million of them, with the odd part of the error removed.
    xi = np.random.default_rng(1).standard_normal(500_000)
    spread = math.sqrt(variance) * np.concatenate([xi, -xi])
    estimate = np.abs(mean + spread).mean()
    exact = folded_normal_mean(torch.tensor(mean), torch.tensor(variance))
    assert float(exact) == pytest.approx(estimate, abs=2e-3 * max(1.0, math.sqrt(variance)))


@given(mean=st.floats(-3, 3), deviation=st.floats(0.05, 3))
def test_folded_normal_mean_is_that_of_scipy(mean: float, deviation: float) -> None:
    exact = folded_normal_mean(
        torch.tensor(mean, dtype=torch.float64), torch.tensor(deviation**2, dtype=torch.float64)
    )
    assert float(exact) == pytest.approx(
        stats.foldnorm.mean(abs(mean) / deviation, scale=deviation), rel=1e-6
    )


def test_equal_means_give_two_over_root_pi_times_the_common_deviation() -> None:
    exact = folded_normal_mean(torch.tensor(0.0), torch.tensor(2 * 0.25))
    assert float(exact) == pytest.approx(1.12838 * 0.5, abs=1e-5)


def test_folded_normal_mean_without_variance_is_the_absolute_value() -> None:
    mean = torch.tensor([-2.0, 0.0, 0.5])
    assert torch.equal(folded_normal_mean(mean, torch.zeros(3)), mean.abs())
    nearly = folded_normal_mean(mean, torch.full((3,), 1e-30))
    assert torch.allclose(nearly, mean.abs(), atol=1e-12)
    assert bool(nearly.isfinite().all())


def normals(seed: int, rows: int = 6, width: int = 3) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    means = [torch.randn(rows, width, generator=rng, dtype=torch.float64) for _ in range(2)]
    sigmas = [0.3 + torch.rand(rows, width, generator=rng, dtype=torch.float64) for _ in range(2)]
    return [means[0], sigmas[0], means[1], sigmas[1]]


@pytest.mark.parametrize("seed", range(5))
def test_kl_is_that_of_torch_s_distributions(seed: int) -> None:
    mean_q, sigma_q, mean_p, sigma_p = normals(seed)
    q, p = torch.distributions.Normal(mean_q, sigma_q), torch.distributions.Normal(mean_p, sigma_p)
    expected = torch.distributions.kl_divergence(q, p).sum(-1)
    assert torch.allclose(gaussian_kl(mean_q, sigma_q, mean_p, sigma_p), expected)


def test_kl_is_the_mean_log_ratio_of_draws() -> None:
    mean_q, sigma_q, mean_p, sigma_p = (x[0].numpy() for x in normals(7))
    draws = np.random.default_rng(0).normal(mean_q, sigma_q, (400_000, 3))
    ratio = stats.norm.logpdf(draws, mean_q, sigma_q) - stats.norm.logpdf(draws, mean_p, sigma_p)
    found = float(gaussian_kl(*(x[0] for x in normals(7))))
    assert found == pytest.approx(ratio.sum(1).mean(), rel=0.01)


def test_kl_is_zero_only_for_equal_normals_and_half_a_squared_distance_for_unit_ones() -> None:
    mean, sigma, other, _ = normals(3)
    assert torch.allclose(gaussian_kl(mean, sigma, mean, sigma), torch.zeros(6, dtype=torch.float64))
    assert bool((gaussian_kl(*normals(4)) > 0).all())
    one = torch.ones_like(sigma)
    assert torch.allclose(gaussian_kl(mean, one, other, one), 0.5 * (mean - other).square().sum(-1))


def test_kl_of_equal_spreads_is_the_general_one() -> None:
    mean_q, _, mean_p, _ = normals(5)
    spread = torch.full_like(mean_q, 0.2)
    found = equal_spread_kl(mean_q, mean_p, 0.2)
    assert torch.allclose(found, gaussian_kl(mean_q, spread, mean_p, spread))
    assert torch.allclose(found, equal_spread_kl(mean_p, mean_q, 0.2))


def test_surprise_loss_is_the_divergence_and_the_density_of_scipy() -> None:
    kl = torch.tensor([0.5, 2.0], dtype=torch.float64)
    target, decoded = (torch.randn(2, 3, generator=torch.Generator().manual_seed(s)).double() for s in (0, 1))
    expected = 0.3 * kl.numpy() - stats.norm.logpdf(target.numpy(), decoded.numpy(), 1.0).sum(1)
    assert np.allclose(surprise_loss(kl, target, decoded, 0.3).numpy(), expected)


@pytest.mark.parametrize(
    ("variance", "beta", "nats"), [(0.6, 0.1, 0.896), (0.072, 0.1, 0.0), (0.6, 1.0, 0.0), (2.0, 1.0, 0.347)]
)
def test_best_linear_model_encodes_what_exceeds_beta(variance: float, beta: float, nats: float) -> None:
    """Grid search over gain and spread of the posterior and the decoder, the expectation taken exactly."""
    gain, sigma = np.meshgrid(np.linspace(0.0, 3.0, 151), np.linspace(0.02, 1.2, 119), indexing="ij")
    prior = np.sqrt(gain**2 * variance + sigma**2)  # the best prior matches the mean posterior
    weight = gain * variance / prior**2  # the best decoder is regression
    missed = (1 - weight * gain) ** 2 * variance + weight**2 * sigma**2
    divergence = np.log(prior / sigma)
    root = torch.from_numpy(np.sqrt(missed)).unsqueeze(-1)
    loss = surprise_loss(torch.from_numpy(divergence), root, torch.zeros_like(root), beta).numpy()
    assert divergence.ravel()[loss.argmin()] == pytest.approx(nats, abs=0.02)
