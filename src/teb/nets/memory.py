"""What explorers remember across batches. Buffers, so that a checkpoint holds them without further code."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from teb.maths.running import updated_moments


class Ring(nn.Module):
    """The newest `size` rows that were pushed. Replay batches are uniform over the replay, so the ring is as well."""

    stored: Tensor
    pushed: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.register_buffer("stored", torch.zeros(size, width))
        self.register_buffer("pushed", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def push(self, rows: Tensor) -> None:
        """Overwrite the oldest rows, [B, width]; of a batch larger than the ring its first rows stay."""
        size = self.stored.shape[0]
        rows = rows[:size]
        slots = (self.pushed + torch.arange(rows.shape[0], device=rows.device)) % size
        self.stored[slots] = rows
        self.pushed += rows.shape[0]

    def rows(self) -> Tensor:
        """Always `size` rows, [size, width]: slots never written repeat written ones, so that none is invented."""
        size = self.stored.shape[0]
        return self.stored[torch.arange(size, device=self.stored.device) % self.pushed.clamp(1, size)]

    def filled(self) -> Tensor:
        """Whether anything was pushed yet, a boolean scalar."""
        return self.pushed > 0


class MovingAverage(nn.Module):
    """mean <- (1 - rate) mean + rate value, starting at the first value."""

    mean: Tensor
    moves: Tensor

    def __init__(self, width: int, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.register_buffer("mean", torch.zeros(1, width))
        self.register_buffer("moves", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def move(self, value: Tensor) -> None:
        """Take in one value, [1, width]."""
        self.mean.lerp_(value, torch.where(self.moves > 0, self.rate, 1.0))
        self.moves += 1

    def value(self, before_first: Tensor) -> Tensor:
        """The average, or `before_first` while there is none, [1, width]."""
        return torch.where(self.moves > 0, self.mean, before_first)


class RunningMoments(nn.Module):
    """Mean and variance of all values so far, without decay (URLB): of scalars, or of each of `width` columns."""

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, width: int | None = None) -> None:
        super().__init__()
        shape = () if width is None else (width,)
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("variance", torch.ones(shape))
        self.register_buffer("count", torch.full((), 1e-4, dtype=torch.float64))

    @torch.no_grad()
    def take(self, values: Tensor) -> None:
        """Count the values in; at least two, or their variance would be undefined."""
        mean, variance, count = updated_moments(self.mean, self.variance, self.count, values)
        self.mean.copy_(mean)
        self.variance.copy_(variance)
        self.count.copy_(count)

    def deviation(self) -> Tensor:
        """Root of the variance, kept above zero so that one may divide by it."""
        return self.variance.sqrt() + 1e-8


@torch.no_grad()
def follow(slow: nn.Module, fast: nn.Module, rate: float) -> None:
    """Slow <- (1 - rate) slow + rate fast, all parameters in one fused call."""
    torch._foreach_lerp_(  # pyright: ignore[reportPrivateImportUsage]
        list(slow.parameters()), list(fast.parameters()), rate
    )
