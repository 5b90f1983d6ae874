"""Pictures of the theory page: arrays in, figures out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from teb.report import style

Floats = NDArray[np.floating[Any]]

_STROKES = ("solid", (0, (4, 1.5)), (0, (1, 1.2)))


def diameters(
    found: Floats, tight: tuple[float, float], scales: Floats, curves: Mapping[str, Sequence[float]]
) -> Figure:
    """(diameter, bound) of random processes, [N, 2], and of one at the bound; diameters by the scale of the reward."""
    with style.applied():
        figure = style.new_figure(8.6, 3.4)
        left, right = figure.subplots(1, 2)
        top = 1.08 * float(found.max())
        left.plot([0, top], [0, top], color=style.MISSING_GREY, linestyle="dashed", label="bound")
        left.plot(found[:, 1], found[:, 0], "o", ms=4, color=style.PALETTE[0], label="random processes")
        left.plot(tight[1], tight[0], "D", ms=6, color=style.PALETTE[1], label="two rooms that never meet")
        left.set(
            xlabel="bound of the lemma",
            ylabel="diameter",
            title="Classical metric",
            xlim=(0, top),
            ylim=(0, top),
        )
        left.legend(loc="upper left")
        for number, (name, values) in enumerate(curves.items()):
            right.loglog(scales, values, color=style.PALETTE[number], linestyle=_STROKES[number], label=name)
        right.set(xlabel="scale of the rewards", ylabel="diameter", title="Rewards scaled down")
        right.legend(loc="best")
    return figure


def contraction(errors: Mapping[str, Sequence[float]], c_t: float) -> Figure:
    """Errors by applications of the operator, and the geometric bound from each start."""
    with style.applied():
        figure = style.new_figure(5.6, 3.4)
        ax = figure.subplots()
        for number, (name, found) in enumerate(errors.items()):
            steps = np.arange(len(found))
            ax.semilogy(steps, found, color=style.PALETTE[number], label=name)
            allowed = found[0] * c_t**steps
            label = f"allowed, $c_T^k$ ($c_T$ = {c_t:g})" if number == 0 else None
            ax.semilogy(steps, allowed, color=style.INK, linestyle=(0, (1, 1.5)), lw=1.2, label=label)
        ax.set(xlabel="applications k", ylabel="largest error", title="Distance to the fixed point")
        ax.legend()
    return figure


def matrices(distances: Mapping[str, Floats]) -> Figure:
    """Distance matrices side by side, each with its own scale."""
    with style.applied():
        count = len(distances)
        figure = style.new_figure(2.9 * count, 2.6)
        for ax, (name, d) in zip(figure.subplots(1, count, squeeze=False)[0], distances.items(), strict=True):
            top = float(d.max()) or 1.0
            image = ax.imshow(d, cmap=style.TIME_COLOURS, vmin=0.0, vmax=top)
            step = max(1, -(-len(d) // 8))
            ax.set_xticks(range(0, len(d), step))
            ax.set_yticks(range(0, len(d), step))
            ax.grid(False)
            ax.set(title=name, xlabel="state j", ylabel="state i")
            figure.colorbar(image, ax=ax, shrink=0.8, label="d(i, j)")
    return figure


def value_bound(
    ratios: Mapping[str, Floats],
    c_r: Sequence[float],
    c_t: Sequence[float],
    gamma: float,
    errors: Floats,
    excess: Floats,
) -> Figure:
    """Largest |V_i - V_j| / d by weights, [c_R, c_T] for each noise, and the excess under model error, [E, 3]."""
    with style.applied():
        figure = style.new_figure(11.6, 3.7)
        axes = figure.subplots(1, 3, width_ratios=(1, 1, 1.05))
        image: Any = None
        for ax, (noise, ratio) in zip(axes, ratios.items(), strict=False):
            norm = TwoSlopeNorm(vcenter=0.0, vmin=-2.0, vmax=2.0)
            with np.errstate(divide="ignore"):
                image = ax.imshow(np.log10(ratio), cmap="RdBu_r", norm=norm, origin="lower", aspect="auto")
            for (row, column), value in np.ndenumerate(ratio):
                ink = "white" if abs(np.log10(value)) > 1.2 else style.INK
                bold = "bold" if value > 1 + 1e-6 else "normal"
                ax.text(
                    column,
                    row,
                    f"{value:.0f}" if value >= 9.95 else f"{value:.2g}",
                    ha="center",
                    va="center",
                    fontsize=7.5,
                    color=ink,
                    weight=bold,
                )
            ax.set_xticks(range(len(c_t)), [f"{x:.3g}" for x in c_t])
            ax.set_yticks(range(len(c_r)), [f"{x:g}" for x in c_r])
            ax.grid(False)
            first = next(i for i, x in enumerate(c_t) if x >= gamma - 1e-12)
            lowest = next(i for i, x in enumerate(c_r) if x >= 1.0)
            ax.add_patch(
                Rectangle(
                    (first - 0.47, lowest - 0.47),
                    len(c_t) - first - 0.06,
                    len(c_r) - lowest - 0.06,
                    fill=False, ec=style.INK, lw=1.8,
                )
            )  # fmt: skip
            ax.set(
                xlabel=f"$c_T$ (gamma = {gamma:g})",
                ylabel="$c_R$",
                title=f"largest |ΔV| / d, predictor sigma = {noise}",
            )
        figure.colorbar(image, ax=axes[:2], label="log10; above 0 broken", shrink=0.9, pad=0.02)
        ax = axes[2]
        shown = np.maximum(errors, errors[errors > 0].min() / 3)
        ax.plot(
            shown,
            np.maximum(excess[:, 0], 0.0),
            "o-",
            color=style.PALETTE[1],
            label="largest excess of |ΔV| over d",
        )
        ax.plot(
            shown, excess[:, 2], color=style.INK, linestyle=(0, (4, 1.5)), label="covered by the error term"
        )
        ax.set_xscale("log")
        ax.set_yscale("symlog", linthresh=0.01)
        ax.set_ylim(0.0, 30 * float(excess[:, 2].max()))
        ax.set(
            xlabel="model error (leftmost: none)",
            ylabel="value",
            title="Learnt models, $c_R$ = 1, $c_T$ = gamma",
        )
        ax.legend(loc="upper left")
    return figure


def preferences(outward: Mapping[str, Floats], anchor: int) -> Figure:
    """The advantage of the move away over the move toward the anchor, one panel per reading."""
    with style.applied():
        figure = style.new_figure(9.6, 4.6)
        axes = figure.subplots(2, 3, sharex=True, sharey=True)
        top = 1.15 * max(float(np.abs(values).max()) for values in outward.values())
        for ax, (name, values) in zip(axes.flat, outward.items(), strict=True):
            states = np.arange(len(values))
            ax.bar(states, np.maximum(values, 0), width=1.0, color=style.PALETTE[0])
            ax.bar(states, np.minimum(values, 0), width=1.0, color=style.PALETTE[1])
            ax.axvline(anchor, color=style.INK, lw=0.8, linestyle="dashed")
            ax.axhline(0.0, color=style.INK, lw=0.8)
            ax.set(title=name, ylim=(-top, top))
            if float(np.abs(values).max()) < 1e-9:
                ax.text(0.5, 0.62, "all actions equal", transform=ax.transAxes, ha="center", color=style.MISSING_GREY,
                        bbox={"fc": "white", "ec": "none", "pad": 1.5})  # fmt: skip
        for ax in axes[1]:
            ax.set_xlabel("state (dashed: anchor)")
        for ax in axes[:, 0]:
            ax.set_ylabel("Q(away) - Q(toward)")
    return figure


def maze_distances(
    distances: Mapping[str, Floats],
    centres: Floats,
    walls: Sequence[Any],
    bounds: tuple[tuple[float, float], tuple[float, float]],
    chosen: int,
    goal: NDArray[np.bool_],
) -> Figure:
    """Distance from one cell to all, one map per metric."""
    (left, right), (bottom, top) = bounds
    side = float(np.diff(np.unique(centres[:, 0])).min())
    with style.applied():
        height = 3.3 * (top - bottom) / (right - left)
        figure = style.new_figure(8.4, 2 * height + 0.9)
        for ax, (name, values) in zip(figure.subplots(2, 2).flat, distances.items(), strict=True):
            field = np.full((round((right - left) / side), round((top - bottom) / side)), np.nan)
            column, row = np.floor((centres - (left, bottom)) / side).astype(int).T
            field[column, row] = values
            image = ax.imshow(
                field.T, origin="lower", extent=(left, right, bottom, top), cmap=style.TIME_COLOURS, vmin=0.0
            )
            ax.add_collection(
                LineCollection(walls, colors=style.INK, linewidths=1.6, capstyle="projecting", clip_on=False),
                autolim=False,
            )
            ax.plot(*centres[chosen], "o", color="white", mec=style.INK, ms=7)
            low = centres[goal].min(0) - side / 2
            extent = centres[goal].max(0) + side / 2 - low
            ax.add_patch(Rectangle(tuple(low + 0.06), *(extent - 0.12), fill=False, ec="#35d07f", lw=2.2))
            ax.set_axis_off()
            ax.set_title(name)
            figure.colorbar(image, ax=ax, shrink=0.85, label="distance")
    return figure


def scatter_of_values(gaps: Floats, distances: Mapping[str, Floats]) -> Figure:
    """|V_i - V_j| against each metric, over pairs of different states."""
    with style.applied():
        figure = style.new_figure(3.1 * len(distances), 3.4)
        line: Any = None
        for ax, (name, d) in zip(
            figure.subplots(1, len(distances), squeeze=False)[0], distances.items(), strict=True
        ):
            pairs = np.triu_indices(len(d), 1)
            x, y = d[pairs], gaps[pairs]
            ax.plot(x, y, "o", ms=3, alpha=0.6, color=style.PALETTE[0], rasterized=True)
            top = 1.05 * max(float(y.max(initial=0.0)), 1e-12)
            (line,) = ax.plot([0, top], [0, top], color=style.INK, lw=1.0, linestyle="dashed")
            ax.set(title=name, xlabel="d(i, j)", ylabel="|V(i) - V(j)|", ylim=(0, top), xlim=(0, None))
        figure.legend(
            [line], ["|V(i) - V(j)| = d(i, j); points above it break the bound"], loc="outside lower center"
        )
    return figure


def cost(states: Floats, seconds: Floats, growth: float) -> Figure:
    """Seconds by states on logarithmic axes, with the fitted power."""
    with style.applied():
        figure = style.new_figure(4.8, 3.2)
        ax = figure.subplots()
        ax.loglog(states, seconds, "o-", color=style.PALETTE[0], label="measured")
        fitted = np.exp(np.log(seconds).mean()) * (states / np.exp(np.log(states).mean())) ** growth
        ax.loglog(states, fitted, color=style.INK, lw=1.0, linestyle="dashed", label=f"power {growth:.1f}")
        ax.set_xticks(states, [f"{int(n)}" for n in states])
        ax.minorticks_off()
        ax.set(xlabel="states", ylabel="processor seconds", title="Exact metric to 1e-6")
        ax.legend()
    return figure
