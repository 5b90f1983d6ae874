"""The largest singular value of a matrix by power iteration."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize


def power_iteration(weight: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
    """One round v <- W^T u / |.|, u <- W v / |.|, [m, n] and [m] -> new (u [m], v [n]) (Miyato et al. 2018, alg. 1).

    u and v turn towards the singular vectors of the largest singular value.
    """
    right = normalize(weight.T @ left, dim=0, eps=1e-12)
    return normalize(weight @ right, dim=0, eps=1e-12), right


def spectral_norm(weight: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """u^T W v: the largest singular value if u and v are its vectors, otherwise less; gradient u v^T, a scalar."""
    return torch.dot(left, weight @ right)
