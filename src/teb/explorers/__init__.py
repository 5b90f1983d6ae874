"""The explorers by name. Adding one takes its own file, which ends with its entry, and one line here."""

from __future__ import annotations

from teb.explorers import becl, diayn, lsd, none, smm, teb
from teb.explorers.entry import Entry

REGISTRY: dict[str, Entry] = {
    "teb": teb.TEB,
    "teb-p": teb.TEB_P,
    "centroid": teb.CENTROID,
    "diayn": diayn.DIAYN,
    "smm": smm.SMM,
    "lsd": lsd.LSD,
    "becl": becl.BECL,
    "eta0": none.ETA0,
}
