"""Fourier features of a vector."""

from __future__ import annotations

import torch
from torch import Tensor


def fourier_features(angles: Tensor) -> Tensor:
    """Sines, then cosines, of the same angles: [..., m] -> [..., 2 m] (Rahimi and Recht 2007).

    With angles W x, W standard normal, the features of x and y have the product m exp(-||x - y||^2 / 2) on average. On
    unit vectors that is m exp(x^T y) / e, so a sum of such exponentials of x is nearly linear in its features.
    """
    return torch.cat([angles.sin(), angles.cos()], -1)
