"""A particle estimate of entropy that keeps its own scale."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from teb.maths.particles import neighbour_distances, particle_bonus
from teb.nets.memory import RunningMoments

Unit = Literal["variance", "std"]


class ParticleEntropy(nn.Module):
    """log(1 + mean_j max(d_j / S - clip, 0)) of each row's k nearest, S over all distances so far (CIC, CeSD).

    The released code calls S a standard deviation, but it is the `variance`: multiplying all rows by s then divides
    the distances' part by s. With `std` it does not depend on s.
    """

    def __init__(self, clip: float, unit: Unit) -> None:
        super().__init__()
        self.clip = clip
        self.unit: Unit = unit
        self.moments = RunningMoments()

    def forward(self, rows: Tensor, k: int) -> Tensor:
        """Count the distances of these rows in, then pay by them, [n, D] -> [n]; a row is its own first neighbour."""
        nearest = neighbour_distances(rows, k)
        if nearest.numel() > 1:
            self.moments.take(nearest)
        scale = self.moments.variance if self.unit == "variance" else self.moments.variance.sqrt()
        return particle_bonus(nearest, scale, self.clip)
