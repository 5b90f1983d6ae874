"""The one place that clears gradients, runs backward, clips and steps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def descend(
    loss: Tensor,
    optimisers: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
    max_norm: float = 0.0,
    also: Sequence[Tensor] = (),
) -> Tensor | None:
    """One step on `loss` for exactly the optimisers' parameters: no gradient is computed for, or left in, any other.

    `also` are tensors that get their gradient without being stepped; it counts for the norm. Returns the norm before
    clipping, if there is a limit.
    """
    steps = [optimisers] if isinstance(optimisers, torch.optim.Optimizer) else optimisers
    parameters = [p for optimiser in steps for group in optimiser.param_groups for p in group["params"]]
    for optimiser in steps:
        optimiser.zero_grad(set_to_none=True)
    loss.backward(inputs=[*parameters, *also])
    norm = nn.utils.clip_grad_norm_([*parameters, *also], max_norm) if max_norm else None
    for optimiser in steps:
        optimiser.step()
    return norm
