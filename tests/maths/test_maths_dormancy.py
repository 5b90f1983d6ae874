"""Dormant units, noise, perturbation and expectiles, against numbers worked out otherwise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from teb.maths.dormancy import (
    awakened_noise,
    dormant_noise,
    dormant_ratio,
    expectile_loss,
    perturb_factor,
    value_share,
)
from teb.maths.schedule import parse_schedule

SCHEDULE = parse_schedule("linear(1.0,0.1,500000)")
NEVER = torch.tensor(-1)


def scalar(value: float) -> torch.Tensor:
    return torch.tensor(value)


def layers(seed: int = 0) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return [
        torch.randn(32, width, generator=rng) * torch.rand(width, generator=rng) ** 4 for width in (5, 40, 3)
    ]


@pytest.mark.parametrize("threshold", [0.0, 0.025, 0.3, 1.0])
def test_the_ratio_is_that_of_counting(threshold: float) -> None:
    dormant = 0
    for layer in layers():
        score = [np.mean([abs(v) for v in column]) for column in layer.numpy().T]
        dormant += sum(s < threshold * np.mean(score) for s in score)
    assert float(dormant_ratio(layers(), threshold)) == pytest.approx(dormant / 48)
    assert dormant > 0 or threshold < 0.3


def test_layers_are_pooled_by_their_units_and_not_averaged() -> None:
    small, large = torch.ones(4, 2), torch.ones(4, 98)
    small[:, 0] = 0
    assert float(dormant_ratio([small, large], 0.025)) == pytest.approx(0.01)


def test_signs_do_not_cancel_over_the_batch() -> None:
    layer = torch.tensor([[5.0, 1.0], [-5.0, 1.0]])
    assert float(dormant_ratio([layer], 0.5)) == 0.5


@pytest.mark.parametrize(("inclusive", "expected"), [(False, 0.0), (True, 1.0)])
def test_a_silent_layer_is_dormant_only_if_the_threshold_counts(inclusive: bool, expected: float) -> None:
    assert float(dormant_ratio([torch.zeros(4, 7)], 0.025, inclusive=inclusive)) == expected


@pytest.mark.parametrize("factor", [1e-3, 0.7, 3.7, 1e3])
def test_the_scale_of_a_layer_does_not_matter(factor: float) -> None:
    for layer in layers():
        assert dormant_ratio([factor * layer], 0.3).equal(dormant_ratio([layer], 0.3))


@pytest.mark.parametrize(("beta", "noise"), [(0.2, 0.5), (0.0, 0.11920), (1.0, 0.99966)])
def test_noise_grows_with_dormancy(beta: float, noise: float) -> None:
    assert float(dormant_noise(scalar(beta), 0.2, 10.0)) == pytest.approx(noise, abs=1e-5)


def test_before_the_actor_awakes_noise_is_that_of_dormancy_alone() -> None:
    assert float(awakened_noise(scalar(0.3), SCHEDULE, 10**6, NEVER)) == pytest.approx(0.3)
    assert float(awakened_noise(scalar(0.3), SCHEDULE, 0, NEVER)) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("env_steps", "noise"), [(70_000, 1.0), (320_000, 0.55), (570_000, 0.1192), (10**7, 0.1192)]
)
def test_the_schedule_starts_when_the_actor_awakes_and_has_a_floor(env_steps: int, noise: float) -> None:
    awake, floor = torch.tensor(70_000), dormant_noise(scalar(0.0), 0.2, 10.0)
    assert float(awakened_noise(floor, SCHEDULE, env_steps, awake)) == pytest.approx(noise, abs=1e-4)


def test_after_awakening_noise_never_falls_below_its_floor() -> None:
    for beta in np.linspace(0, 1, 21):
        least = dormant_noise(scalar(beta), 0.2, 10.0)
        for step in range(0, 2_000_000, 99_000):
            assert float(awakened_noise(least, SCHEDULE, step, torch.tensor(0))) >= 0.1192


@pytest.mark.parametrize(
    ("beta", "alpha"), [(0.0, 0.95), (0.025, 0.95), (0.1, 0.8), (0.2, 0.6), (0.4, 0.2), (1.0, 0.2)]
)
def test_a_perturbation_keeps_less_the_more_is_dormant(beta: float, alpha: float) -> None:
    assert float(perturb_factor(scalar(beta), 2.0, 0.2, 0.95)) == pytest.approx(alpha)


@pytest.mark.parametrize(("beta", "expected"), [(0.2, 0.3), (0.0, 0.6 / (1 + math.exp(-10))), (1.0, 0.0)])
def test_the_share_of_the_value_fades_with_dormancy(beta: float, expected: float) -> None:
    assert float(value_share(scalar(beta), 0.6, 0.2)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("value", "loss"), [(-1.0, 0.9), (1.0, 0.1), (0.0, 0.0), (-2.0, 3.6)])
def test_the_expectile_loss_of_a_constant(value: float, loss: float) -> None:
    error = torch.full((5, 1), value) - torch.zeros(5, 1)
    assert float(expectile_loss(error, 0.9)) == pytest.approx(loss)


@pytest.mark.parametrize(("kappa", "expectile"), [(0.9, 0.75), (0.5, 0.5), (0.1, 0.25)])
def test_regression_on_uniform_samples_settles_at_their_expectile(kappa: float, expectile: float) -> None:
    """With (1 - kappa) e^2 / 2 = kappa (1 - e)^2 / 2: e = 1 / (1 + sqrt((1 - kappa) / kappa))."""
    assert 1 / (1 + math.sqrt((1 - kappa) / kappa)) == pytest.approx(expectile)
    samples = (torch.arange(10_000) + 0.5) / 10_000
    estimate = torch.zeros((), requires_grad=True)
    optimiser = torch.optim.SGD([estimate], lr=1.0)
    for _ in range(200):
        optimiser.zero_grad()
        expectile_loss(estimate - samples, kappa).backward()
        optimiser.step()
    assert float(estimate.detach()) == pytest.approx(expectile, abs=1e-3)
