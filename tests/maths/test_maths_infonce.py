from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from teb.maths.infonce import Offset, infonce


def views(seed: int, rows: int, width: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    first, second = torch.randn(2, rows, width, generator=rng, dtype=torch.float64)
    return first, second


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 40), temperature=st.floats(0.2, 2.0))
@pytest.mark.parametrize("offset", ["official", "none"])
def test_it_is_its_formula(offset: Offset, seed: int, rows: int, temperature: float) -> None:
    queries, keys = views(seed, rows)
    terms = []
    for b in range(rows):
        q = queries[b].numpy()
        cosines = [q @ k / (np.linalg.norm(q) * np.linalg.norm(k)) for k in keys.numpy()]
        u = np.exp(np.array(cosines) / temperature)
        others = u.sum()
        if offset == "official":
            others = max(others - math.exp(1 / temperature), 1e-6) + 1e-6
        terms.append(-math.log(u[b] / others))
    found = float(infonce(queries, keys, temperature, offset))
    assert found == pytest.approx(np.mean(terms), abs=1e-6)


def test_without_offset_it_is_the_cross_entropy_of_finding_the_own_key() -> None:
    queries, keys = views(0, 64)
    logits = F.normalize(queries) @ F.normalize(keys).T / 0.5
    assert float(infonce(queries, keys, 0.5)) == pytest.approx(
        float(F.cross_entropy(logits, torch.arange(64)))
    )


def test_lengths_do_not_matter_and_neither_does_a_common_order() -> None:
    queries, keys = views(1, 32)
    loss = infonce(queries, keys, 0.5, "official")
    assert torch.allclose(infonce(7 * queries, keys / 3, 0.5, "official"), loss)
    order = torch.randperm(32, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(infonce(queries[order], keys[order], 0.5, "official"), loss)
    assert not torch.allclose(infonce(queries[order], keys, 0.5, "official"), loss)


def test_queries_look_among_keys_and_not_the_other_way_round() -> None:
    queries, keys = views(2, 16)
    assert not torch.allclose(infonce(queries, keys, 0.5), infonce(keys, queries, 0.5))


@pytest.mark.parametrize("offset", ["official", "none"])
def test_it_has_the_gradient_of_its_formula(offset: Offset) -> None:
    queries, keys = (x.requires_grad_() for x in views(3, 24))
    assert torch.autograd.gradcheck(lambda q, k: infonce(q, k, 0.5, offset), (queries, keys))


def test_at_the_paper_s_batch_the_offset_hardly_matters() -> None:
    queries, keys = (x.float() for x in views(4, 1024, 16))
    official, plain = (float(infonce(queries, keys, 0.5, offset)) for offset in ("official", "none"))
    assert 0 < plain - official < 0.02


def test_views_of_different_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"infonce: shapes differ, \(4, 5\) and \(3, 5\)"):
        infonce(torch.ones(4, 5), torch.ones(3, 5), 0.5)
