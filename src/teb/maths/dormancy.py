"""Dormant units and what DrM does with their share (Xu et al. 2024, arXiv 2310.19668)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from teb.maths.schedule import Schedule


def dormant_ratio(outputs: Sequence[Tensor], threshold: float, *, inclusive: bool = False) -> Tensor:
    """Beta = sum_l #{i: s_i < tau mean_i s_i} / sum_l H_l with s_i = mean_b |Y_bi|, of layers Y [B, H_l].

    `inclusive` counts units at the threshold as well, as Sokar et al. 2023 do; then a layer that is all zero is
    dormant, and not active.
    """
    dormant: list[Tensor] = []
    for output in outputs:
        score = output.float().abs().mean(0)
        limit = threshold * score.mean()
        dormant.append((score <= limit if inclusive else score < limit).sum())
    return torch.stack(dormant).sum() / sum(output.shape[-1] for output in outputs)


def dormant_noise(beta: Tensor, target: float, sharpness: float) -> Tensor:
    """s(beta) = 1 / (1 + exp(-sharpness (beta - target))): much noise for an actor that is mostly silent."""
    return torch.sigmoid(sharpness * (beta - target))


def awakened_noise(dormant: Tensor, schedule: Schedule, env_steps: int, awake_step: Tensor) -> Tensor:
    """s(beta) before the actor awoke, max(s(beta), schedule(t - t_a)) after; `awake_step` t_a is negative till then.

    The schedule's clock starts when the actor awakes.
    """
    start, end, steps = schedule
    scheduled = start + ((env_steps - awake_step) / steps).clamp(0.0, 1.0) * (end - start)
    return torch.where(awake_step < 0, dormant, torch.maximum(dormant, scheduled))


def perturb_factor(beta: Tensor, rate: float, low: float, high: float) -> Tensor:
    """Alpha = min(max(low, 1 - rate beta), high): how much of the old weights a perturbation keeps."""
    return (1.0 - rate * beta).clamp(low, high)


def value_share(beta: Tensor, most: float, target: float, sharpness: float = 50.0) -> Tensor:
    """lambda(beta) = most / (1 + exp(sharpness (beta - target))), DrM's on locomotion: trust V once units are awake."""
    return most * torch.sigmoid(-sharpness * (beta - target))


def expectile_loss(error: Tensor, kappa: float) -> Tensor:
    """mean(w e^2) of e = estimate - target, w = kappa where e <= 0 and 1 - kappa elsewhere (Kostrikov et al. 2022).

    With kappa above 1/2 the estimate settles above the targets' mean.
    """
    return (torch.where(error <= 0, kappa, 1.0 - kappa) * error.square()).mean()
