"""Who may know whom: the table of the architecture page, held against every import statement in src/teb."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import teb
from teb.agents.registry import AGENTS, PIXEL_AGENTS
from teb.envs import FAMILIES


class Rule(NamedTuple):
    """What one part may import besides the standard library. `x.*` means x and everything in it."""

    part: str
    libraries: str
    own: str


# The first row that fits a module is the one that counts.
RULES = (
    #    part               libraries                   modules of teb
    Rule("checks",          "",                         ""),
    Rule("seeding",         "torch numpy",              ""),
    Rule("machine",         "",                         ""),
    Rule("maths.*",         "torch numpy scipy",        "maths.*"),
    Rule("nets.*",          "torch numpy",              "nets.* maths.* checks"),
    Rule("replay.*",        "numpy",                    "replay.*"),
    Rule("explorers",       "",                         "explorers.*"),
    Rule("explorers.entry", "",                         ""),
    Rule("explorers.*",     "torch numpy",
         "agents.protocol explorers.entry nets.* maths.* checks seeding"),
    Rule("representations", "",                         "representations.* explorers.entry"),
    Rule("representations.*", "torch numpy",
         "agents.protocol explorers.entry representations.regression nets.* maths.* checks"),
    Rule("agents",          "",                         ""),
    Rule("agents.registry", "torch numpy",
         "agents.* explorers explorers.entry representations nets.* checks seeding"),
    Rule("agents.protocol", "torch numpy",              "replay.sample:Sample"),
    Rule("agents.*",        "torch numpy",              "agents.* nets.* maths.* checks seeding"),
    Rule("envs.rendering",  "mujoco numpy",             ""),
    Rule("envs.metaworld",  "metaworld gymnasium numpy", "envs.* checks"),
    Rule("envs.*",          "gymnasium numpy scipy",    "envs.* checks"),
    Rule("run.*",           "torch numpy gymnasium rich safetensors",
         "run.* replay.* report.* agents.registry agents.protocol envs envs.protocol config machine checks seeding"),
    Rule("report.film",     "imageio numpy matplotlib", "report.*"),
    Rule("report.*",        "numpy matplotlib rich",    "report.*"),
)  # fmt: skip

# These tie the parts together and may import anything.
FREE = ("", "__main__", "bench", "cli", "config", "doctor", "studies.*", "theory.*", "yardstick")

# run/ knows agents and environments by protocol only. Two of their names are ordinary words, the package's
# own and a distribution's: these may stand there, but nothing may be compared with them.
REGISTERED = set(AGENTS) | set(PIXEL_AGENTS) | set(FAMILIES)
ORDINARY = {"teb", "uniform"}

ROOT = Path(teb.__file__).parent


def module_name(path: Path) -> str:
    """The dotted name below `teb`: "maths.shaping", or "maths" for a package's `__init__.py`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PATHS = sorted(ROOT.rglob("*.py"))
MODULES = {module_name(path) for path in PATHS}


def covers(pattern: str, module: str) -> bool:
    whole = pattern.removesuffix(".*")
    return module == whole or (pattern.endswith(".*") and module.startswith(f"{whole}."))


def imports(source: str, module: str, *, is_package: bool = False) -> Iterator[tuple[str, str]]:
    """(absolute module, name taken from it or "") of every import, those inside functions included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                here = ["teb", *module.split(".")]
                base = here[: len(here) - node.level + is_package]
                origin = ".".join([*base, origin] if origin else base)
            for alias in node.names:
                if f"{origin}.{alias.name}".removeprefix("teb.") in MODULES:
                    yield f"{origin}.{alias.name}", ""
                else:
                    yield origin, alias.name


def allows(rule: Rule, imported: str, name: str) -> bool:
    top, _, own = imported.partition(".")
    if top != "teb":
        return top in sys.stdlib_module_names or top in rule.libraries.split()
    return any(
        covers(pattern, own) or (":" in pattern and f"{own}:{name}" == pattern)
        for pattern in rule.own.split()
    )


def forbidden_imports(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """The imports of a module that its row of the table does not allow."""
    rule = next((rule for rule in RULES if covers(rule.part, module)), None)
    if rule is None:
        return []
    found = imports(source, module, is_package=is_package)
    return [f"{imported} {name}".strip() for imported, name in found if not allows(rule, imported, name)]


def registered_literals(source: str) -> list[str]:
    """String literals that are a registered name or a path with one in it; docstrings are free."""
    nodes = list(ast.walk(ast.parse(source)))
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    comparisons = (node for node in nodes if isinstance(node, ast.Compare | ast.pattern))
    compared = {id(part) for comparison in comparisons for part in ast.walk(comparison)}
    found: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            named = REGISTERED if id(node) in compared else REGISTERED - ORDINARY
            if named.intersection(node.value.split("/")):
                found.append(node.value)
    return found


@pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_what_its_part_may_know(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert not forbidden_imports(source, module_name(path), is_package=path.name == "__init__.py")


@pytest.mark.parametrize("path", sorted((ROOT / "run").rglob("*.py")), ids=lambda path: path.name)
def test_the_loop_names_no_algorithm_and_no_environment(path: Path) -> None:
    assert not registered_literals(path.read_text(encoding="utf-8"))


def test_every_module_is_in_the_table_or_free() -> None:
    patterns = [rule.part for rule in RULES] + list(FREE)
    assert not [module for module in MODULES if not any(covers(pattern, module) for pattern in patterns)]


@pytest.mark.parametrize(
    ("module", "line", "caught"),
    [
        ("maths.shaping", "import torch.nn.functional as F", False),
        ("maths.shaping", "from teb.nets import mlp", True),
        ("maths.shaping", "from teb.nets.mlp import Linear", True),
        ("replay.ring", "import torch", True),
        ("replay.ring", "from .sample import Sample", False),
        ("replay.ring", "from ..agents.protocol import Batch", True),
        ("nets.mlp", "import teb.replay.ring", True),
        ("explorers.teb", "from teb.explorers.none import NoBonus", True),
        ("explorers.teb", "from teb.explorers import none", True),
        ("explorers.teb", "def f():\n    from teb.envs import make_task", True),
        ("explorers.teb", "from teb.agents.protocol import Batch", False),
        ("agents.compose", "from teb.explorers.teb import Teb", True),
        ("agents.compose", "from teb.explorers import REGISTRY", True),
        ("agents.protocol", "from teb.replay.sample import Sample", False),
        ("agents.protocol", "from teb.replay.ring import Ring", True),
        ("envs.maze2d", "from torch import Tensor", True),
        ("envs.maze2d", "from teb.run.train import train", True),
        ("envs.maze2d", "import mujoco", True),
        ("envs.rendering", "def f():\n    import mujoco", False),
        ("run.train", "from teb.agents.protocol import Agent", False),
        ("run.train", "from teb.agents.uniform import UniformAgent", True),
        ("run.train", "from teb.envs import maze2d", True),
        ("report.curves", "from teb.run import logging", True),
        ("report.curves", "import torch", True),
    ],
)
def test_the_table_catches(module: str, line: str, caught: bool) -> None:
    assert bool(forbidden_imports(line, module)) == caught


def test_a_package_resolves_its_relative_imports() -> None:
    assert list(imports("from .mlp import Linear", "nets", is_package=True)) == [("teb.nets.mlp", "Linear")]


@pytest.mark.parametrize(
    ("source", "caught"),
    [
        ('if name == "uniform":\n    pass', True),
        ('env = "maze2d/square-a"', True),
        ('match name:\n    case "teb":\n        pass', True),
        ('agent = "teb-p"', True),
        ('state = {"uniform": 1}', False),
        ('"""Not for teb-p."""', False),
        ('text = "a uniform walk"', False),
    ],
)
def test_the_loop_check_catches(source: str, caught: bool) -> None:
    assert bool(registered_literals(source)) == caught


@pytest.mark.parametrize(
    "module", ["teb.explorers.teb", "teb.agents.protocol", "teb.maths.bisimulation", "teb.envs"]
)
def test_each_part_can_be_the_first_import(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
