"""Bonuses from prediction: what a model errs by, where models disagree."""

from __future__ import annotations

import torch
from torch import Tensor


def surprise(error: Tensor, scale: float = 1.0) -> Tensor:
    """log(1 + scale e) of a prediction's error e >= 0, elementwise (ICM in URLB).

    Pathak et al. 2017 pay a multiple of the squared error; URLB pays this, of the error's length.
    """
    return torch.log1p(scale * error)


def disagreement(predictions: Tensor) -> Tensor:
    """(1/D) sum_j Var_k f_kj, the unbiased variance over K members, [K, B, D] -> [B, 1] (Pathak et al. 2019)."""
    if predictions.ndim != 3 or predictions.shape[0] < 2:
        raise ValueError(
            f"predictions: expected shape [K, B, D] with at least 2 members, got {tuple(predictions.shape)}"
        )
    return predictions.var(0).mean(-1, keepdim=True)


def distillation_error(prediction: Tensor, target: Tensor) -> Tensor:
    """(1/F) sum_j (q_j - p_j)^2, [B, F] and [B, F] -> [B, 1] (Burda et al. 2019)."""
    if prediction.shape != target.shape:
        raise ValueError(
            f"prediction {tuple(prediction.shape)} and target {tuple(target.shape)} must have one shape"
        )
    return (target - prediction).square().mean(-1, keepdim=True)
