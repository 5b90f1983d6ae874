"""The representations by name. Adding one takes its own file, which ends with its entry, and one line here."""

from __future__ import annotations

from teb.explorers.entry import Entry
from teb.representations import bisim, none

REPRESENTATIONS: dict[str, Entry] = {
    "none": none.NONE,
    "bisim": bisim.BISIM,
}
