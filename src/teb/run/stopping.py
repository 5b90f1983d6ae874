"""Ctrl-C and SIGTERM as a wish that the loop grants at the end of a step."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopWish:
    """Holds the signal that asked for the end, if one did."""

    signal: int | None = None


@contextmanager
def stop_on_signals() -> Iterator[StopWish]:
    """Turn the first SIGINT or SIGTERM into a wish; a second one acts as if nobody listened."""
    wish = StopWish()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: FrameType | None) -> None:
        wish.signal = number
        restore()

    for number in before:
        signal.signal(number, note)
    try:
        yield wish
    finally:
        restore()
