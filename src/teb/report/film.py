"""Films of episodes: what the agent sees, enlarged, and below it a curve that grows with the frame."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from teb.report import style
from teb.report.maps import draw_ground, draw_walls, map_aspect

Pixels = NDArray[np.uint8]

_DPI = 100
_MARGIN, _TITLE, _CURVE, _BELOW, _LEFT = 16, 78, 150, 48, 66
"""Pixels around the picture, above it, of the curve, below and left of it for the axes' labels."""
_LETTER = 7
"""Width of a small letter."""
_NARROWEST = 528
_LARGEST_PICTURE = 432
_MULTIPLE = 16
"""Encoders work on blocks of so many pixels."""
_SOLVED, _GREY = style.PALETTE[2], "#5a5a5a"
_FLOOR = "#f4f4f4"


class Take(NamedTuple):
    """One episode of T steps as a film shows it."""

    seen: NDArray[Any]
    """Frames [T+1, C, H, W] of bytes, or positions in a maze [T+1, 2]."""
    rewards: NDArray[np.floating]
    """[T]."""
    solved: NDArray[np.bool_]
    """After each step whether the task was solved by then, [T]; empty where the task does not say."""
    values: NDArray[np.floating] | None
    """The curve, [T+1]; None draws the return so far."""


class Words(NamedTuple):
    """What stands above the picture."""

    env: str
    method: str
    trained: str
    """Seed and length of the training."""


def film_length(takes: Sequence[Take], fps: int) -> int:
    """Frames of a film: those of each episode, and half a second on its last one."""
    return sum(len(take.seen) + fps // 2 for take in takes)


def film(
    takes: Sequence[Take], words: Words, name: str, maze: Mapping[str, Any], fps: int
) -> Iterator[Pixels]:
    """The pictures [H, W, 3] of a film of all episodes; `name` is that of their curves, which share one scale.

    `maze` is the map of a record, for episodes that are positions in a maze.
    """
    limits = _limits([curve_of(take) for take in takes])
    for number, take in enumerate(takes, start=1):
        which = f"episode {number} of {len(takes)}"
        sheet = _Sheet(take, words, which, name, limits, maze)
        last = len(take.seen) - 1
        yield from map(sheet.at, [*range(last), last, *[last] * (fps // 2)])


def save_film(path: Path, pictures: Iterable[Pixels], fps: int) -> None:
    """Write an mp4 that browsers and players open; the file appears once it is whole."""
    import imageio.v2 as imageio

    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".tmp{path.suffix}")
    opened: Any = imageio.get_writer(
        temporary, fps=fps, codec="libx264", pixelformat="yuv420p", quality=8, macro_block_size=_MULTIPLE
    )
    with opened as writer:
        for picture in pictures:
            writer.append_data(picture)
    temporary.replace(path)


def enlarged(frame: Pixels, largest: int = _LARGEST_PICTURE) -> Pixels:
    """A frame [C, H, W] as [h, w, 3]: each pixel a square, as large as fits; grey becomes colour, transparency goes."""
    channels, height, width = frame.shape
    colour = np.repeat(frame, 3, axis=0) if channels == 1 else frame[:3]
    factor = max(1, largest // max(height, width))
    return colour.transpose(1, 2, 0).repeat(factor, axis=0).repeat(factor, axis=1)


def curve_of(take: Take) -> NDArray[np.floating]:
    """What is drawn below an episode, [T+1]."""
    return _returns(take) if take.values is None else take.values


def _returns(take: Take) -> NDArray[np.float64]:
    return np.concatenate([[0.0], np.cumsum(take.rewards, dtype=np.float64)])


def _limits(curves: Sequence[NDArray[np.floating]]) -> tuple[float, float]:
    low, high = min(float(curve.min()) for curve in curves), max(float(curve.max()) for curve in curves)
    margin = 0.06 * (high - low) or 0.5
    return low - margin, high + margin


def _up(pixels: float) -> int:
    return -(-int(pixels) // _MULTIPLE) * _MULTIPLE


class _Sheet:
    """The picture of one episode: what stands still is drawn once, the rest anew for each step."""

    def __init__(
        self,
        take: Take,
        words: Words,
        which: str,
        name: str,
        limits: tuple[float, float],
        maze: Mapping[str, Any],
    ) -> None:
        self.take, self.curve, self.returns, self.which = take, curve_of(take), _returns(take), which
        self.in_maze = take.seen.ndim == 2
        if self.in_maze:
            wide = _NARROWEST - 2 * _MARGIN
            size = (min(int(wide * map_aspect(maze)), _LARGEST_PICTURE), wide)
        else:
            size = enlarged(take.seen[0]).shape[:2]
        self.width = _up(max(_NARROWEST, size[1] + 2 * _MARGIN))
        self.height = _up(_TITLE + size[0] + _MARGIN + _CURVE + _BELOW)
        self.left, self.size = (self.width - size[1]) // 2, size
        with style.applied():
            self.figure = Figure(figsize=(self.width / _DPI, self.height / _DPI), dpi=_DPI)
            self.canvas = FigureCanvasAgg(self.figure)
            self.moving = [*self._titles(words), *self._curve_axes(name, limits)]
            if self.in_maze:
                self.moving += self._maze_axes(maze)
            for artist in self.moving:
                artist.set_animated(True)
            self.canvas.draw()
        self.still = self.canvas.copy_from_bbox(self.figure.bbox)

    def _axes(self, left: int, top: int, width: int, height: int) -> Axes:
        """Axes in pixels from the upper left corner."""
        across, down = self.width, self.height
        return self.figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))

    def _titles(self, words: Words) -> list[Any]:

        def line(top: int, text: str, side: Literal["left", "right"] = "left", **look: Any) -> Any:
            x = _MARGIN / self.width if side == "left" else 1 - _MARGIN / self.width
            return self.figure.text(x, 1 - top / self.height, text, va="top", ha=side, **look)

        letters = (self.width - 2 * _MARGIN) // _LETTER
        line(8, words.env, size=10, weight="bold")
        line(9, words.trained, "right", size=8.5, color=_GREY)
        line(29, textwrap.shorten(words.method, letters, placeholder=" …"), size=8.5)
        self.status = line(51, "", size=9)
        self.verdict = line(51, "", "right", size=9, weight="bold")
        return [self.status, self.verdict]

    def _curve_axes(self, name: str, limits: tuple[float, float]) -> list[Any]:
        top = _TITLE + self.size[0] + _MARGIN
        ax = self._axes(_LEFT, top, self.width - _LEFT - _MARGIN, _CURVE)
        last = len(self.curve) - 1
        ax.set(xlim=(0, max(last, 1)), ylim=limits, xlabel="step of the episode", ylabel=name)
        ax.yaxis.set_major_locator(MaxNLocator(nbins=4))
        ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        (self.line,) = ax.plot([], [], color=style.PALETTE[0])
        (self.dot,) = ax.plot([], [], "o", color=style.PALETTE[1], markersize=6, clip_on=False)
        self.mark = ax.axvline(0, color=_SOLVED, linestyle=(0, (2, 2)), linewidth=1.4, visible=False)
        return [self.mark, self.line, self.dot]

    def _maze_axes(self, maze: Mapping[str, Any]) -> list[Any]:
        ax = self._axes(self.left, _TITLE, self.size[1], self.size[0])
        draw_ground(maze, ax, _FLOOR)
        draw_walls(maze, ax)
        (self.path,) = ax.plot([], [], color=style.PALETTE[0], linewidth=1.4, clip_on=False)
        (self.point,) = ax.plot([], [], "o", color=style.PALETTE[1], markersize=7, clip_on=False)
        return [self.path, self.point]

    def at(self, step: int) -> Pixels:
        """The picture after so many steps."""
        self.canvas.restore_region(self.still)
        solved = np.flatnonzero(self.take.solved[:step])
        last = len(self.take.rewards)
        self.status.set_text(f"{self.which}   step {step} of {last}   return {self.returns[step]:.4g}")
        if len(self.take.solved):
            when = int(solved[0]) + 1 if len(solved) else 0
            self.verdict.set(
                text=f"solved at step {when}" if when else "not solved yet",
                color=_SOLVED if when else _GREY,
            )
            self.mark.set(xdata=[when, when], visible=bool(when))
        self.line.set_data(np.arange(step + 1), self.curve[: step + 1])
        self.dot.set_data([step], [self.curve[step]])
        if self.in_maze:
            self.path.set_data(*self.take.seen[: step + 1].T)
            self.point.set_data(*self.take.seen[step : step + 1].T)
        for artist in self.moving:
            if artist.get_visible():
                self.figure.draw_artist(artist)
        picture = np.asarray(self.canvas.buffer_rgba())[..., :3].copy()
        if not self.in_maze:
            rows, columns = self.size
            picture[_TITLE : _TITLE + rows, self.left : self.left + columns] = enlarged(self.take.seen[step])
        return picture
