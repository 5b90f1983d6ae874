"""Suggestions for mistyped names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name most like `word`, letter case aside; the first of equals, None if none comes close."""
    best, best_ratio = None, 0.65
    matcher = SequenceMatcher(b=word.lower())
    for name in known:
        matcher.set_seq1(name.lower())
        ratio = matcher.ratio()
        if ratio > best_ratio:
            best, best_ratio = name, ratio
    return best


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """The middle of a message: "; did you mean 'x'?", or only ";" if no known name comes close."""
    guess = nearest(word, known)
    return f"; did you mean {prefix + guess!r}?" if guess else ";"
