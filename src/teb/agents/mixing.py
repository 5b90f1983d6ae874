"""How a bonus is brought to a size beside the reward of a task that was there before it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from teb.checks import in_range, positive


@dataclass(frozen=True)
class MixingConfig:
    """The size of the bonus at first."""

    calibrate_updates: int = 0
    """First updates over which the bonus is measured to find its factor, kept from then on; 0 for none (ours)."""
    calibrate_to: float = 0.05
    """Mean size of the bonus over these updates, before eta multiplies it (paper: below 0.05 at first)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        in_range("calibrate_updates", self.calibrate_updates, 0, 1e9)
        positive("calibrate_to", self.calibrate_to)

    def calibration(self) -> Calibration | None:
        """What finds the factor, if there is to be one."""
        return Calibration(self.calibrate_updates, self.calibrate_to) if self.calibrate_updates else None


class Calibration(nn.Module):
    """A factor such that values have a mean size of `goal`, found over the first `updates` batches of them.

    Until then it is that of the batches so far. It is a buffer, so that a resumed run keeps it.
    """

    total: Tensor
    seen: Tensor

    def __init__(self, updates: int, goal: float) -> None:
        super().__init__()
        self.updates, self.goal = updates, goal
        self.register_buffer("total", torch.zeros((), dtype=torch.float64))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def factor(self, values: Tensor) -> Tensor:
        """Count the values in while that is due; the factor, a scalar. It is 1 while all were 0."""
        due = self.seen < self.updates
        self.total += torch.where(due, values.abs().mean(), 0.0)
        self.seen += due
        mean = self.total / self.seen
        return torch.where(mean > 0, self.goal / mean, 1.0).float()
