from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from teb.maths.diffusion import noised, retained_signal, sinusoidal_embedding


def test_the_schedule_telescopes() -> None:
    """Each level keeps exp(-0.1 / T - 4.95 (2 k - 1) / T^2) of the one before."""
    k = np.arange(1, 26)
    product = np.cumprod(np.exp(-0.1 / 25 - 4.95 * (2 * k - 1) / 25**2))
    assert np.allclose(retained_signal(25, 0.1, 10.0), product, atol=1e-6)


@given(levels=st.integers(1, 60), low=st.floats(0.0, 5.0), more=st.floats(0.0, 30.0))
def test_the_schedule_telescopes_whatever_its_ends(levels: int, low: float, more: float) -> None:
    k = np.arange(1, levels + 1)
    steps = low / levels + more * (2 * k - 1) / (2 * levels**2)
    assert np.allclose(retained_signal(levels, low, low + more), np.exp(-np.cumsum(steps)), atol=1e-6)


def test_known_values_of_the_schedule() -> None:
    retained = retained_signal(25, 0.1, 10.0)
    assert [float(retained[k - 1]) for k in (1, 5, 13, 25)] == pytest.approx(
        [0.98815, 0.80413, 0.24896, 0.00641], abs=6e-6
    )


def test_noising_preserves_unit_variance_and_keeps_that_much_of_the_signal() -> None:
    rng = torch.Generator().manual_seed(0)
    clean, retained = torch.randn(4000, 3, generator=rng), torch.tensor([1.0, 0.6, 0.01])
    noise = torch.randn(3, 4000, 3, generator=rng)
    found = noised(clean, retained, noise)
    assert found.shape == noise.shape and torch.equal(found[0], clean)
    assert np.allclose(found.flatten(1).var(1), 1.0, atol=0.05)
    for level, kept in enumerate(retained):
        correlation = float(np.corrcoef(found[level].flatten(), clean.flatten())[0, 1])
        assert correlation == pytest.approx(math.sqrt(kept), abs=0.03)


def test_each_level_and_row_has_its_own_draw() -> None:
    noise = torch.arange(2 * 3 * 1, dtype=torch.float32).view(2, 3, 1)
    found = noised(torch.zeros(3, 1), torch.tensor([0.75, 0.0]), noise)
    assert torch.allclose(found, noise * torch.tensor([0.5, 1.0]).view(2, 1, 1))


def test_the_embedding_is_cosines_then_sines() -> None:
    found = sinusoidal_embedding(torch.arange(1, 26), 128).numpy()
    for k in (1, 7, 25):
        angles = [k * 10_000 ** (-i / 63) for i in range(64)]
        expected = [*map(math.cos, angles), *map(math.sin, angles)]
        assert np.allclose(found[k - 1], expected, atol=1e-5)
    assert len(np.unique(found.round(4), axis=0)) == 25


@pytest.mark.parametrize("width", [2, 7])
def test_an_embedding_needs_an_even_width_of_at_least_4(width: int) -> None:
    with pytest.raises(ValueError, match=f"width must be even and at least 4, got {width}"):
        sinusoidal_embedding(torch.arange(3), width)
