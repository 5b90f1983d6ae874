"""The explorers by name. Adding one takes its own file, which ends with its entry, and one line here."""

from __future__ import annotations

from teb.explorers import (
    apt,
    cesd,
    cic,
    disagreement,
    eme,
    icm,
    lbs,
    liberty,
    none,
    protorl,
    rnd,
    teb,
)
from teb.explorers.entry import Entry

REGISTRY: dict[str, Entry] = {
    "teb": teb.TEB,
    "teb-p": teb.TEB_P,
    "centroid": teb.CENTROID,
    "icm": icm.ICM,
    "rnd": rnd.RND,
    "disagreement": disagreement.DISAGREEMENT,
    "protorl": protorl.PROTORL,
    "lbs": lbs.LBS,
    "apt": apt.APT,
    "liberty": liberty.LIBERTY,
    "eme": eme.EME,
    "cesd": cesd.CESD,
    "cic": cic.CIC,
    "eta0": none.ETA0,
}
