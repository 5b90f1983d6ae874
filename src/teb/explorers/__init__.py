"""The explorers by name. Adding one takes its own file, which ends with its entry, and one line here."""

from __future__ import annotations

from teb.explorers import cesd, cic, none, teb
from teb.explorers.entry import Entry

REGISTRY: dict[str, Entry] = {
    "teb": teb.TEB,
    "teb-p": teb.TEB_P,
    "centroid": teb.CENTROID,
    "cesd": cesd.CESD,
    "cic": cic.CIC,
    "eta0": none.ETA0,
}
