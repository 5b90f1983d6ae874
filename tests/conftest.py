"""Settings that must be in place before any test module imports torch or matplotlib."""

from __future__ import annotations

import os

from hypothesis import settings

# Sums over several threads may come out in another order; exact comparisons need one.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["MPLBACKEND"] = "Agg"

# The same examples on every run, and no failures that only say the machine was busy.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
