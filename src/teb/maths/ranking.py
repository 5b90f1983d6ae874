"""The ranking loss of noise-contrastive estimation, and the rows that are no fair contrast."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor


def ranking_loss(logits: Tensor, left_out: Tensor | None = None) -> Tensor:
    """mean_i [log sum_j exp G^k_ij - G^k_ii], [K, B, B] -> [K] (Ma and Collins 2018; Gao et al. 2025).

    Row i has to find column i among those of the batch. Columns that `left_out` [B, B] marks for a row do not count in
    its sum; its own one always does.
    """
    if logits.ndim != 3 or logits.shape[1] != logits.shape[2]:
        raise ValueError(f"ranking_loss: logits must be [K, B, B], got {tuple(logits.shape)}")
    own = torch.diagonal(logits, dim1=1, dim2=2)
    if left_out is not None:
        itself = torch.eye(len(left_out), dtype=torch.bool, device=left_out.device)
        logits = logits.masked_fill(left_out & ~itself, -torch.inf)
    return (torch.logsumexp(logits, 2) - own).mean(1)


def repeated_rows(rows: Tensor) -> Tensor:
    """Which rows are the same as which others, exactly, [B, ...] -> [B, B] booleans; none is an other to itself."""
    found: object = rows.flatten(1).unique(dim=0, return_inverse=True)  # pyright: ignore
    kind = cast("tuple[Tensor, Tensor]", found)[1]
    same = kind.unsqueeze(1) == kind
    return same.fill_diagonal_(fill_value=False)
