from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial import distance as scipy_distance
from scipy.special import huber

from teb.maths.distances import (
    LatentDistance,
    angle,
    capped,
    diffuse_distance,
    latent_distance,
    pairwise_diffuse_distance,
    pairwise_distance,
    safe_norm,
    unit,
)
from teb.maths.distances import huber as huber_function

KINDS: tuple[LatentDistance, ...] = get_args(LatentDistance)

vectors = arrays(np.float64, 4, elements=st.floats(-5, 5).map(lambda x: round(x, 3)))


def by_hand(x: np.ndarray, y: np.ndarray, kind: LatentDistance) -> float:
    """The same distance from SciPy and NumPy."""
    if kind == "l2":
        return float(scipy_distance.euclidean(x, y))
    if kind == "l1":
        return float(scipy_distance.cityblock(x, y))
    if kind == "l1_mean":
        return float(scipy_distance.cityblock(x, y)) / len(x)
    if kind == "huber_mean":
        return float(huber(1.0, x - y).mean())
    cosine = np.clip(1.0 - scipy_distance.cosine(x, y), -1.0, 1.0)
    return float(0.5 * (x @ x + y @ y) + 0.1 * math.acos(cosine))


@pytest.mark.parametrize("kind", KINDS)
@given(x=vectors, y=vectors)
def test_latent_distance_is_that_of_scipy(kind: LatentDistance, x: np.ndarray, y: np.ndarray) -> None:
    if kind == "mico" and (np.linalg.norm(x) < 1e-2 or np.linalg.norm(y) < 1e-2):
        return  # SciPy has no cosine with the zero vector
    found = float(latent_distance(torch.from_numpy(x), torch.from_numpy(y), kind))
    # The floors under the square roots: 1e-4 at coinciding points, 0.1 * sqrt(1e-9) in the angle.
    assert found == pytest.approx(by_hand(x, y, kind), abs=1.1e-4, rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@given(x=vectors, y=vectors)
def test_latent_distance_is_symmetric_and_not_negative(
    kind: LatentDistance, x: np.ndarray, y: np.ndarray
) -> None:
    a, b = torch.from_numpy(x), torch.from_numpy(y)
    assert torch.equal(latent_distance(a, b, kind), latent_distance(b, a, kind))
    assert float(latent_distance(a, b, kind)) >= 0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "mico"])
@given(x=vectors, y=vectors, shift=vectors)
def test_translation_changes_no_distance_but_mico(
    kind: LatentDistance, x: np.ndarray, y: np.ndarray, shift: np.ndarray
) -> None:
    a, b, c = (torch.from_numpy(v) for v in (x, y, shift))
    assert float(latent_distance(a + c, b + c, kind)) == pytest.approx(
        float(latent_distance(a, b, kind)), abs=1e-6
    )


@pytest.mark.parametrize("kind", ["l2", "l1", "l1_mean"])
@given(x=vectors, y=vectors, scale=st.floats(0.1, 10))
def test_norms_scale_with_their_arguments(
    kind: LatentDistance, x: np.ndarray, y: np.ndarray, scale: float
) -> None:
    a, b = torch.from_numpy(x), torch.from_numpy(y)
    scaled = float(latent_distance(scale * a, scale * b, kind))
    assert scaled == pytest.approx(scale * float(latent_distance(a, b, kind)), abs=1.1e-3)


def test_self_distance_is_zero_except_under_mico() -> None:
    x = torch.tensor([[1.0, 2.0, -2.0]])
    for kind in ("l1", "l1_mean", "huber_mean"):
        assert float(latent_distance(x, x, kind)) == 0.0
    assert float(latent_distance(x, x, "l2")) == pytest.approx(1e-4)
    assert float(latent_distance(x, x, "mico")) == pytest.approx(9.0, abs=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_at_coinciding_points_are_finite(kind: LatentDistance) -> None:
    x = torch.randn(64, 5, generator=torch.Generator().manual_seed(0))
    left, right = x.clone().requires_grad_(), x.clone().requires_grad_()
    latent_distance(left, right, kind).sum().backward()
    assert left.grad is not None and bool(left.grad.isfinite().all())
    assert right.grad is not None and bool(right.grad.isfinite().all())


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_pairwise_distances_are_finite_on_the_diagonal(kind: LatentDistance) -> None:
    x = torch.randn(40, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    pairwise_distance(x, x, kind).sum().backward()
    assert x.grad is not None and bool(x.grad.isfinite().all())


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(
    seed=st.integers(0, 10_000), rows=st.integers(1, 40), columns=st.integers(1, 40), width=st.integers(1, 9)
)
def test_pairwise_distance_is_the_elementwise_one_of_every_pair(
    kind: LatentDistance, seed: int, rows: int, columns: int, width: int
) -> None:
    rng = torch.Generator().manual_seed(seed)
    x, y = torch.randn(rows, width, generator=rng), 2 + torch.randn(columns, width, generator=rng)
    found = pairwise_distance(x, y, kind)
    assert found.shape == (rows, columns)
    for i in range(rows):
        each = latent_distance(x[i].expand(columns, -1), y, kind)
        assert torch.allclose(found[i], each, atol=2e-3, rtol=1e-5)


def test_pairwise_euclidean_distance_keeps_its_digits_far_from_the_origin() -> None:
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(64, 2, generator=rng), torch.randn(64, 2, generator=rng)
    far = torch.tensor([1000.0, -1000.0])
    near = pairwise_distance(x, y)
    assert torch.allclose(pairwise_distance(x + far, y + far), near, atol=5e-3)


def test_angles_of_parallel_perpendicular_and_opposite_vectors() -> None:
    x = torch.tensor([[1.0, 0.0]]).expand(3, 2)
    y = torch.tensor([[5.0, 0.0], [0.0, 0.1], [-2.0, 0.0]])
    assert angle(x, y).tolist() == pytest.approx([0.0, math.pi / 2, math.pi], abs=1e-4)


@given(vectors)
def test_safe_norm_is_the_norm(x: np.ndarray) -> None:
    found = safe_norm(torch.from_numpy(x)[None])
    assert found.shape == (1, 1)
    assert float(found) == pytest.approx(float(np.linalg.norm(x)), rel=1e-12)


def test_safe_norm_has_a_finite_gradient_at_zero_and_the_unit_vector_elsewhere() -> None:
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    safe_norm(x).sum().backward()
    assert x.grad is not None and torch.allclose(x.grad, torch.tensor([[0.0, 0.0], [0.6, 0.8]]))


def test_unit_vectors_have_length_one_and_zero_stays_with_a_finite_gradient() -> None:
    x = torch.tensor([[3.0, -4.0], [0.0, 0.0], [1e-6, 0.0]], requires_grad=True)
    found = unit(x)
    assert torch.allclose(found, torch.tensor([[0.6, -0.8], [0.0, 0.0], [1.0, 0.0]]))
    found[:2].sum().backward()
    assert x.grad is not None and bool(x.grad.isfinite().all()) and float(x.grad[:2].abs().max()) <= 1.0


# --- diffuse distances, caps --------------------------------------------------------------------------------------

RAP, MICO = (1.0, 1e-6), (0.5, 0.1)


@pytest.mark.parametrize(("share", "beta"), [RAP, MICO, (1.0, 2.0)])
@given(x=vectors, y=vectors)
def test_diffuse_distance_is_squared_norms_and_an_angle(
    share: float, beta: float, x: np.ndarray, y: np.ndarray
) -> None:
    if np.linalg.norm(x) < 1e-2 or np.linalg.norm(y) < 1e-2:
        return  # SciPy has no cosine with the zero vector
    theta = math.acos(np.clip(1.0 - scipy_distance.cosine(x, y), -1.0, 1.0))
    a, b = torch.from_numpy(x), torch.from_numpy(y)
    found = diffuse_distance(a, b, share, beta)
    assert float(found) == pytest.approx(share * (x @ x + y @ y) + beta * theta, abs=1e-4, rel=1e-9)
    assert torch.equal(found, diffuse_distance(b, a, share, beta))


def test_a_diffuse_distance_to_itself_is_the_squared_norm_or_twice_it() -> None:
    x = torch.tensor([[1.0, 2.0, -2.0]])
    assert float(diffuse_distance(x, x, *RAP)) == pytest.approx(18.0)
    assert float(diffuse_distance(x, x, 0.5, 0.0)) == pytest.approx(9.0)


@pytest.mark.parametrize(("share", "beta"), [RAP, MICO])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e3])
def test_all_pairs_of_diffuse_distances_are_those_of_single_pairs(
    share: float, beta: float, scale: float
) -> None:
    rng = torch.Generator().manual_seed(0)
    x, y = (scale * torch.randn(rows, 5, generator=rng, dtype=torch.float64) for rows in (7, 4))
    every = pairwise_diffuse_distance(x, y, share, beta)
    assert torch.allclose(every, diffuse_distance(x[:, None], y[None], share, beta), atol=1e-9)


@pytest.mark.parametrize("scale", [0.0, 1e-6, 1.0, 1e3])
def test_gradients_of_diffuse_distances_are_finite_where_points_coincide(scale: float) -> None:
    start = scale * torch.randn(32, 5, generator=torch.Generator().manual_seed(0))
    for distance in (diffuse_distance, pairwise_diffuse_distance):
        x = start.clone().requires_grad_()
        distance(x, x, 1.0, 1.0).sum().backward()
        assert x.grad is not None and bool(x.grad.isfinite().all())


@given(x=vectors, radius=st.floats(0.1, 20))
def test_a_cap_is_the_identity_inside_its_ball_and_its_radius_outside(x: np.ndarray, radius: float) -> None:
    found = capped(torch.from_numpy(x), radius).numpy()
    if np.linalg.norm(x) <= radius:
        assert np.array_equal(found, x)
    else:
        assert np.linalg.norm(found) == pytest.approx(radius, rel=1e-12)
        assert np.allclose(found / radius, x / np.linalg.norm(x), rtol=1e-12)
    assert torch.equal(capped(torch.from_numpy(x), math.inf), torch.from_numpy(x))


@given(vectors)
def test_the_huber_function_is_that_of_scipy(x: np.ndarray) -> None:
    assert np.allclose(huber_function(torch.from_numpy(x)), huber(1.0, x), rtol=1e-12)
