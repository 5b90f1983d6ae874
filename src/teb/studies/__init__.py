"""Tables and figures as data: which runs each needs, and how it is drawn."""

from __future__ import annotations

from teb.studies import maze2d, shaping
from teb.studies.plan import Study

STUDIES: dict[str, Study] = {
    "methods": maze2d.METHODS_STUDY,
    "shaping": shaping.GRID_STUDY,
    "shaping-long": shaping.LONG,
    "particles": shaping.PARTICLES,
    "shaping-paper-size": shaping.PAPER_SIZE,
    "readings": shaping.READINGS,
    "precision": shaping.PRECISION,
}
