"""Settings that must be in place before any test module imports torch or matplotlib; which tests cannot run here."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import settings

# Sums over several threads may come out in another order; exact comparisons need one.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["MPLBACKEND"] = "Agg"

# The same examples on every run, and no failures that only say the machine was busy.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

UNABLE = "cannot run here: "


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs Meta-World or pictures where there are none."""
    needs = {mark.name for mark in item.iter_markers()} & {"metaworld", "rendering"}
    if not needs:
        return
    if find_spec("metaworld") is None or find_spec("mujoco") is None:
        pytest.skip(UNABLE + "Meta-World is not installed")
    from teb.envs.rendering import choose_backend

    problem = choose_backend()  # before any test imports MuJoCo
    if problem and "rendering" in needs:
        pytest.skip(UNABLE + problem)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where Chromium is; without it or what drives it, tests of the browser are skipped."""
    if find_spec("playwright") is None:
        pytest.skip(UNABLE + "playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip(UNABLE + f"no Chromium, looked for {', '.join(names)}")
    return path


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say at the end what was skipped for want of something, and what to install."""
    reasons = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", [])]
    for reason in sorted(set(reasons)):
        if UNABLE in reason:
            said = reason.partition(UNABLE)[2]
            terminalreporter.write_line(f"{reasons.count(reason)} tests skipped: {said}", yellow=True)
