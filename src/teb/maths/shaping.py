"""Potential-based shaping (TEB eq. 14) on windows of n steps, and n-step sums."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Shaping = Literal["window_gamma", "window_gamma_n", "sum", "one", "first_step"]


def n_step_sum(rewards: Tensor, gamma: float, n: int) -> Tensor:
    """sum_{k<n} gamma^k r_{t+k}, [B, H] with H >= n -> [B, 1]; the regression target after TEB eq. (8)."""
    if rewards.shape[1] < n:
        raise ValueError(f"n_step_sum: {n} rewards wanted, {rewards.shape[1]} given")
    weights = gamma ** torch.arange(n, dtype=rewards.dtype, device=rewards.device)
    return (rewards[:, :n] * weights).sum(1, keepdim=True)


def end_discount(kind: Shaping, gamma: float, n: int) -> float:
    """The factor of Phi at the end of a window of n steps.

    `window_gamma` writes the printed gamma whatever the window's length; `window_gamma_n` telescopes; with one step,
    and for the first step alone, both agree. `sum` telescopes too where Phi is a function of the state.
    """
    return gamma**n if kind in ("window_gamma_n", "sum") else gamma


def shaping_term(phi: Tensor, phi_end: Tensor, end_factor: float) -> Tensor:
    """F = end_factor * Phi(end) - Phi(start), elementwise (TEB eq. 14 with end_factor = gamma)."""
    if phi.shape != phi_end.shape:
        raise ValueError(f"potentials must have one shape, got {tuple(phi.shape)} and {tuple(phi_end.shape)}")
    return end_factor * phi_end - phi


def summed_shaping(phi: Tensor, phi_next: Tensor, gamma: float) -> Tensor:
    """sum_{i<n} gamma^i (gamma Phi_next,i - Phi_i), [B, n] and [B, n] -> [B].

    Phi_i is the potential at step t+i as the step's start, Phi_next,i that at t+i+1 as its end. Where both come from
    one function of the state, the sum telescopes to gamma^n Phi(s_{t+n}) - Phi(s_t) (Ng, Harada & Russell 1999).
    """
    steps = shaping_term(phi, phi_next, gamma)
    weights = gamma ** torch.arange(phi.shape[1], dtype=phi.dtype, device=phi.device)
    return (steps * weights).sum(1)
