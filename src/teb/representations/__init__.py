"""The representations by name. Adding one takes its own file, which ends with its entry, and one line here."""

from __future__ import annotations

from teb.explorers.entry import Entry
from teb.representations import bisim, dbc, mico, none, rap

REPRESENTATIONS: dict[str, Entry] = {
    "none": none.NONE,
    "bisim": bisim.BISIM,
    "rap": rap.RAP,
    "dbc": dbc.DBC,
    "mico": mico.MICO,
}
