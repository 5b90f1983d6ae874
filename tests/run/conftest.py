from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import pytest
from small_runs import SMALL, run_words


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small run of `SMALL`, never interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert run_words(SMALL, folder) == 0
    return folder


@pytest.fixture(autouse=True)
def ask_git_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each checkpoint notes the commit; four processes for that are most of what a small checkpoint costs."""
    monkeypatch.setenv("TEB_COMMIT", "000000000000")


@pytest.fixture(autouse=True)
def forget_environments() -> Iterator[None]:
    """Take environments that a test registers out of Gymnasium again."""
    before = set(gym.registry)
    yield
    for name in set(gym.registry) - before:
        del gym.registry[name]
