"""Resolve pyproject.toml afresh and write lock.txt beside this file: `make lock`.

The pins are the complete set for the extras `log`, `metaworld`, `cluster` and `dev`. Packages that torch itself pins
exactly and that only its CUDA build needs are left out, so that one lock serves CPU and GPU machines alike.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
OLDEST = (3, 11)
EXTRAS = ("log", "metaworld", "cluster", "dev")
UNPINNED = re.compile(r"pip|wheel|teb|triton|(?:nvidia|cuda)-.*")

HEADER = """\
# Every package of the core and of the extras `log`, `metaworld`, `cluster` and `dev`, for Python 3.11 to 3.13.
# From `make lock`.
# torch's own CUDA packages are not listed: torch pins them itself where its build needs them.
"""


def wishes() -> list[str]:
    """What pyproject.toml asks for: to build, to run, and for the extras."""
    text = (HERE.parent / "pyproject.toml").read_text(encoding="utf-8")
    pyproject = tomllib.loads(text)
    extras = pyproject["project"]["optional-dependencies"]
    return [
        *pyproject["build-system"]["requires"],
        *pyproject["project"]["dependencies"],
        *(wish for extra in EXTRAS for wish in extras[extra]),
    ]


def resolve() -> list[tuple[str, str]]:
    """Install the wishes into a throw-away environment and read what came with them."""
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
        constraints = str(HERE / "constraints.txt")
        subprocess.run([*pip, "install", "-qq", "--upgrade", "-c", constraints, *wishes()], check=True)
        listed = subprocess.run([*pip, "list", "--format=json"], check=True, capture_output=True, text=True)
    return [(entry["name"], entry["version"]) for entry in json.loads(listed.stdout)]


def pins(packages: list[tuple[str, str]]) -> list[str]:
    """One sorted line per package, with normalised names and without build labels such as `+cpu`."""
    named = ((re.sub(r"[-_.]+", "-", name).lower(), version.partition("+")[0]) for name, version in packages)
    return sorted(f"{name}=={version}" for name, version in named if not UNPINNED.fullmatch(name))


def main() -> None:
    """Write the lock."""
    if sys.version_info[:2] != OLDEST:
        # What supports the oldest Python nearly always supports the newer ones; not the other way round.
        wanted = ".".join(map(str, OLDEST))
        raise SystemExit(f"The lock is made with Python {wanted}: make lock PYTHON=python{wanted}")
    lines = pins(resolve())
    (HERE / "lock.txt").write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"requirements/lock.txt: {len(lines)} packages")


if __name__ == "__main__":
    main()
