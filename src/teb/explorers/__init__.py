"""The explorers by name. Adding one takes its own file, which ends with its entry, and one line here."""

from __future__ import annotations

from teb.explorers import (
    apt,
    becl,
    cesd,
    cic,
    diayn,
    disagreement,
    eme,
    icm,
    lbs,
    liberty,
    lsd,
    none,
    protorl,
    rnd,
    smm,
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
    "diayn": diayn.DIAYN,
    "smm": smm.SMM,
    "lsd": lsd.LSD,
    "becl": becl.BECL,
    "cesd": cesd.CESD,
    "cic": cic.CIC,
    "eta0": none.ETA0,
}
