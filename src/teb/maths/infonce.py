"""Noise-contrastive loss between two views of the same items."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Offset = Literal["official", "none"]


def infonce(queries: Tensor, keys: Tensor, temperature: float, offset: Offset = "none") -> Tensor:
    """-mean_b log(u_bb / sum_c u_bc) with u_bc = exp(cos(q_b, k_c) / T), [B, D] and [B, D] -> scalar.

    Each query has to find its own key among those of the batch (van den Oord et al. 2018). `official` subtracts
    exp(1 / T) from the sum, floored at 1e-6, as CIC and CeSD do (Laskin et al. 2022, released code): there it stands
    for an item's similarity to itself, although u_bb is none, which is why `none` leaves it out.
    """
    if queries.shape != keys.shape:
        raise ValueError(f"infonce: shapes differ, {tuple(queries.shape)} and {tuple(keys.shape)}")
    queries, keys = F.normalize(queries, dim=1) / temperature, F.normalize(keys, dim=1)
    own, logits = (queries * keys).sum(1), queries @ keys.T
    if offset == "none":
        return (torch.logsumexp(logits, 1) - own).mean()
    others = (logits.exp_().sum(1) - math.exp(1.0 / temperature)).clamp(min=1e-6) + 1e-6
    return (others.log() - own).mean()
