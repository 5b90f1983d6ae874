"""One look for all figures, and files that are byte-identical when rebuilt from the same data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

INK = "#1a1a1a"
MISSING_GREY = "#8a8a8a"
UNVISITED = "#dcdcdc"
TIME_COLOURS = "viridis"

# Okabe and Ito's colours for colour-blind readers, without yellow, which is too pale on white.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
# No dashes here: dashed is kept for the uniform policy.
STROKES: tuple[Any, ...] = ("solid", (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)), (0, (5, 1.2, 1, 1.2, 1, 1.2)))
JOINED = "+rep"
"""`icm+rep` has the colour of `icm`: what stands beside a representation is told by longer dashes, and hatched."""
JOINED_STROKES: tuple[Any, ...] = tuple(
    (0, dashes) for dashes in ((8, 2), (8, 2, 3, 2), (8, 2, 1, 2), (8, 2, 1, 2, 1, 2))
)
# The place in this list fixes a method's colour in every figure; append only.
KNOWN = (
    "teb", "teb-p", "icm", "rnd", "cesd", "disagreement", "lbs",
    "protorl", "becl", "lsd", "diayn", "smm", "drqv2", "rap",
    "drm", "ctrlsr", "dbc", "mico", "apt", "liberty", "eme",
    "cic", "eta0", "centroid", "teb-no-rep", "teb-no-int", "teb-env-metric",
)  # fmt: skip

_RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#6e6e6e",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e8e8e8",
    "grid.linewidth": 0.8,
    "xtick.color": "#4a4a4a",
    "ytick.color": "#4a4a4a",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "savefig.dpi": 150,
    "svg.fonttype": "path",
    "svg.hashsalt": "teb",
}


@dataclass(frozen=True)
class LineStyle:
    """How one label is drawn everywhere."""

    colour: str
    stroke: Any


def applied() -> AbstractContextManager[None]:
    """Within this context matplotlib draws in the project's style, whatever the user's settings are."""
    return matplotlib.style.context(["default", _RC])


def new_figure(width: float, height: float) -> Figure:
    """A figure in inches with automatic layout, independent of pyplot; call it within `applied()`."""
    layout = ConstrainedLayoutEngine(w_pad=0.07, h_pad=0.07)
    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


def line_styles(labels: Iterable[str]) -> dict[str, LineStyle]:
    """A style per label: fixed for known methods, grey dashed for uniform, else the next free one."""
    names = list(dict.fromkeys(labels))
    taken = {KNOWN.index(name) for name in names if name in KNOWN}
    styles = {}
    for name in names:
        alone = name.removesuffix(JOINED)
        if name.split(" ")[0] == "uniform":
            styles[name] = LineStyle(MISSING_GREY, "dashed")
        elif alone != name and alone in KNOWN:
            styles[name] = _style(KNOWN.index(alone), JOINED_STROKES)
        else:
            free = (place for place in range(len(taken) + 1) if place not in taken)
            place = KNOWN.index(name) if name in KNOWN else next(free)
            taken.add(place)
            styles[name] = _style(place, STROKES)
    return styles


def _style(place: int, strokes: Sequence[Any]) -> LineStyle:
    return LineStyle(PALETTE[place % len(PALETTE)], strokes[place // len(PALETTE) % len(strokes)])


def legend_columns(labels: Sequence[str], width: float) -> int:
    """As many columns as fit side by side into so many inches, judged by the longest label: 13 letters an inch."""
    longest = max(map(len, labels), default=0)
    return max(1, min(len(labels), 5, int(width / (0.6 + longest / 13))))


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write `<stem>.png` and `<stem>.svg` and return their paths."""
    stem = Path(stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    png, svg = (stem.with_name(stem.name + ending) for ending in (".png", ".svg"))
    with applied():
        figure.savefig(png, metadata={"Software": None})
        figure.savefig(svg, metadata={"Date": None, "Creator": None})
    return [png, svg]
