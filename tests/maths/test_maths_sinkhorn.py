from __future__ import annotations

from typing import Any

import numpy as np
import ot
import pytest
import torch

from teb.maths.sinkhorn import sinkhorn


def scores(seed: int, samples: int = 256, clusters: int = 16, spread: float = 1.0) -> torch.Tensor:
    return spread * (2 * torch.rand(samples, clusters, generator=torch.Generator().manual_seed(seed)) - 1)


def test_assignments_of_each_sample_sum_to_one() -> None:
    for iterations in (0, 1, 3, 50):
        assert torch.allclose(sinkhorn(scores(0), 0.1, iterations).sum(1), torch.ones(256), atol=1e-6)


def test_after_many_iterations_every_cluster_gets_its_share() -> None:
    mass = sinkhorn(scores(1), 0.1, 50).sum(0)
    assert torch.allclose(mass, torch.full((16,), 256 / 16), rtol=0.01)
    unbalanced = torch.softmax(scores(1) / 0.1, 1).sum(0)
    assert not torch.allclose(unbalanced, mass, rtol=0.01)


def test_it_is_entropic_transport_between_uniform_margins() -> None:
    s = scores(2, 40, 8).double()
    plan: Any = ot.sinkhorn(
        np.full(40, 1 / 40), np.full(8, 1 / 8), -s.numpy(), reg=0.3, numItermax=5000, stopThr=1e-14
    )
    assert np.allclose(sinkhorn(s, 0.3, 2000).numpy(), 40 * plan, atol=1e-8)


def test_few_iterations_agree_with_scaling_rows_and_columns_in_the_plain_domain() -> None:
    s = scores(3, 30, 6).double()
    m = np.exp(s.numpy() / 0.1).T
    m /= m.sum()
    for _ in range(3):
        m /= m.sum(1, keepdims=True) * 6
        m /= m.sum(0, keepdims=True) * 30
    assert np.allclose(sinkhorn(s, 0.1, 3).numpy(), (m / m.sum(0, keepdims=True)).T, atol=1e-12)


def test_a_constant_added_to_all_scores_changes_nothing() -> None:
    assert torch.allclose(sinkhorn(scores(4) + 7.0, 0.1, 3), sinkhorn(scores(4), 0.1, 3), atol=1e-5)


def test_equal_scores_are_assigned_uniformly() -> None:
    assert torch.allclose(sinkhorn(torch.zeros(10, 5), 0.1, 3), torch.full((10, 5), 0.2))


@pytest.mark.parametrize("spread", [10.0, 1e4])
def test_large_scores_stay_finite(spread: float) -> None:
    assert bool(sinkhorn(scores(5, spread=spread), 0.1, 3).isfinite().all())


def test_three_iterations_give_well_spread_prototypes_their_share_within_a_few_per_cent() -> None:
    mass = sinkhorn(scores(6, samples=2048, clusters=32, spread=0.3), 0.1, 3).sum(0)
    assert torch.allclose(mass, torch.full((32,), 2048 / 32), rtol=0.03)
