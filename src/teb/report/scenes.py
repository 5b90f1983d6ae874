"""Example frames of tasks side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from teb.report import style


def scenes_figure(frames: Mapping[str, NDArray[np.uint8]]) -> Figure:
    """One picture per name, bytes [3, H, W], its pixels as they are."""
    with style.applied():
        figure = style.new_figure(1.9 * len(frames), 2.15)
        axes: Any = figure.subplots(1, len(frames), squeeze=False)[0]
        for ax, (name, frame) in zip(axes, frames.items(), strict=True):
            ax.imshow(frame.transpose(1, 2, 0), interpolation="nearest")
            ax.set_title(name)
            ax.set_axis_off()
    return figure
