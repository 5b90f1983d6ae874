"""What an experiment is told, and what it hands back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from matplotlib.figure import Figure

Verdict = Literal["holds", "holds under conditions", "fails", "does not apply", "measured"]


@dataclass(frozen=True)
class Setting:
    """The numbers that the user may set."""

    c_r: float
    c_t: float
    gamma: float
    sigma: float
    seed: int


@dataclass(frozen=True)
class Picture:
    """A figure of a page."""

    name: str
    caption: str
    figure: Figure


@dataclass(frozen=True)
class Statement:
    """The outcome of one experiment."""

    name: str
    """Such as "Lemma 3.2"."""
    claim: str
    """What the paper says, in a sentence."""
    verdict: Verdict
    numbers: str
    """The evidence in one line."""
    table: str = ""
    """Markdown."""
    remarks: tuple[str, ...] = ()
    """What else follows; paragraphs of the page."""
    pictures: tuple[Picture, ...] = ()

    @property
    def line(self) -> str:
        """One line for the terminal."""
        return f"{self.name}: {self.verdict}. {self.numbers}"
