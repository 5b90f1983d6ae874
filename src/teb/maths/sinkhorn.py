"""Balanced soft assignment of samples to clusters."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def sinkhorn(scores: Tensor, temperature: float, iterations: int) -> Tensor:
    """Assignments [B, K] of B samples to K clusters: each sample's sum to 1, the clusters' masses are nearly equal.

    exp(scores / T), then `iterations` times: scale each cluster's column to mass 1/K, each sample's row to 1/B
    (Cuturi 2013; Caron et al. 2020). In the logarithmic domain, so no score over- or underflows.
    """
    logits = scores / temperature
    samples, clusters = logits.shape
    logits = logits - torch.logsumexp(logits.flatten(), 0)
    for _ in range(iterations):
        logits = logits - torch.logsumexp(logits, 0, keepdim=True) - math.log(clusters)
        logits = logits - torch.logsumexp(logits, 1, keepdim=True) - math.log(samples)
    return torch.softmax(logits, 1)
