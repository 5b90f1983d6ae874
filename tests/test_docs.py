"""The pages against the code: commands parse, options and functions exist, examples run, tables agree."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib.util
import io
import json
import pkgutil
import re
import shlex
import sys
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from teb.agents.backbone import BackboneConfig, EncoderConfig
from teb.agents.compose import ComposedAgent
from teb.agents.drm import DrmConfig
from teb.agents.protocol import Batch, Runtime, Shapes, Traits
from teb.agents.registry import AGENTS, PIXEL_AGENTS
from teb.bench import BenchOptions
from teb.cli import (
    COMMANDS,
    DoctorOptions,
    EvalOptions,
    ListOptions,
    ShowOptions,
    parse,
    parse_train,
    run_command,
)
from teb.config import default_config, to_json
from teb.explorers.teb import TebConfig
from teb.representations import REPRESENTATIONS
from teb.representations.bisim import BisimConfig
from teb.studies import COMPUTED, STUDIES
from teb.studies.command import StudyOptions, every_choice
from teb.studies.page import ReportOptions
from teb.studies.stored import evidence, stored_records
from teb.theory.command import TheoryOptions
from test_imports import FREE, RULES, forbidden_imports

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
OPTION = re.compile(r"(?<![\w<-])--[a-z][\w-]*")
SHAPED = ("rap", "dbc", "mico")
"""Agents that are a representation and no bonus."""

HEADINGS = ["Overview", "Usage", "Logged metrics", "Details and known differences", "Results"]

PARSERS: dict[str, type[Any]] = {
    "eval": EvalOptions,
    "show": ShowOptions,
    "study": StudyOptions,
    "report": ReportOptions,
    "theory": TheoryOptions,
    "bench": BenchOptions,
    "list": ListOptions,
    "doctor": DoctorOptions,
}


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    return [code for kind, code in FENCE.findall(text_of(page)) if kind == language]


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def cells(row: str) -> list[str]:
    """The cells of a line of a table; an escaped bar is part of its cell."""
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", row.strip())[1:-1]]


def rows(page: Path, columns: int) -> list[list[str]]:
    """All rows of all tables of a page that have so many columns, without rules."""
    lines = [cells(line) for line in text_of(page).splitlines() if line.startswith("|")]
    return [row for row in lines if len(row) == columns and not set("".join(row)) <= set("-: ")]


COMMAND_LINES = [
    (named(page), line)
    for page in PAGES
    for code in blocks(page, "sh")
    for line in code.splitlines()
    if line.startswith("teb ")
]


# --- commands and options ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("page", "line"), COMMAND_LINES, ids=lambda value: str(value))
def test_a_command_in_a_page_parses(
    page: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, command, *words = shlex.split(line)
    if command == "train":
        if "--from" in words:
            source = Path(words[words.index("--from") + 1])
            source.mkdir(parents=True)
            (source / "config.json").write_text(json.dumps(to_json(default_config("maze2d/square-a", "teb"))))
        parse_train(words)
        return
    options = parse(PARSERS[command], words, f"teb {command}")
    if command == "study" and options.verb != "list" and options.name not in COMPUTED:
        assert all(choice.study.variants for choice in every_choice(options))


def test_there_are_commands_to_check_and_all_are_known() -> None:
    assert len(COMMAND_LINES) > 10
    assert {line.split()[1] for _, line in COMMAND_LINES} <= set(COMMANDS)
    assert set(PARSERS) | {"train"} == set(COMMANDS)


PIXELS_ONLY = [
    name for name in PIXEL_AGENTS if name not in AGENTS and not name.startswith("teb-") and "+" not in name
]
"""Agents that see pictures only; what is left out of TEB, or joined with it, is on its page."""


FOREIGN = {"--head"}
"""Options of other programs' commands, which pages may name: of `ray start`."""


@cache
def known_options() -> frozenset[str]:
    """Every option that some command's help names."""
    asked = [[name, "--help"] for name in COMMANDS]
    asked.extend(["train", env, "uniform", "--help"] for env in ("gym/Pendulum-v1", "metaworld/box-close"))
    asked.extend(["train", "maze2d/square-a", agent, "--help"] for agent in AGENTS)
    asked.extend(["train", "probe/near", agent, "--help"] for agent in ("teb", *PIXELS_ONLY))
    helped = io.StringIO()
    for words in asked:
        with contextlib.redirect_stdout(helped), contextlib.suppress(SystemExit):
            run_command(words)
    return frozenset(OPTION.findall(re.sub(r"\x1b\[[0-9;]*m", "", helped.getvalue())))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_options_that_a_page_names_exist(page: Path) -> None:
    assert set(OPTION.findall(text_of(page))) <= known_options() | FOREIGN


def test_unknown_options_would_be_found() -> None:
    assert OPTION.findall("`--no-such` and <!-- end --> and | --- | and a--b --eta") == ["--no-such", "--eta"]
    assert "--no-such" not in known_options()
    assert {"--eta", "--max-episode-steps", "--workers"} <= known_options()


# --- algorithms -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", [*AGENTS, *PIXELS_ONLY])
def test_every_agent_has_a_page_with_the_five_headings(agent: str) -> None:
    page = DOCS / "algorithms" / f"{agent}.md"
    found = re.findall(r"^(#+) (.*)$", FENCE.sub("", text_of(page)), re.MULTILINE)
    assert found == [("#", agent), *(("##", heading) for heading in HEADINGS)]
    assert any(shlex.split(line)[3:4] == [agent] for name, line in COMMAND_LINES if name == named(page))


@pytest.mark.parametrize("agent", SHAPED)
def test_every_option_and_reading_of_a_representation_is_on_its_page(agent: str) -> None:
    text, entry = text_of(DOCS / "algorithms" / f"{agent}.md"), REPRESENTATIONS[agent]
    stated = {
        row[0].strip("`-").replace("-", "_"): row[1] for row in rows(DOCS / "algorithms" / f"{agent}.md", 4)
    }
    for field in dataclasses.fields(entry.config):
        value = getattr(entry.config, field.name)
        said = (
            "gamma" if field.name == "c_t" else f"{value:g}" if type(value) in (int, float) else f"`{value}`"
        )
        assert stated.get(field.name) == said, field.name
    assert all(f"--reading {reading}" in text for reading in entry.readings)


CONFIGS = TebConfig(), BisimConfig(), EncoderConfig()
"""The configurations whose options the page of teb discusses."""


def test_every_reading_and_option_of_teb_is_on_its_page() -> None:
    text = text_of(DOCS / "algorithms" / "teb.md")
    options = {
        f"--{field.name.replace('_', '-')}" for config in CONFIGS for field in dataclasses.fields(config)
    }
    assert options - {"--channels", "--shift"} <= set(OPTION.findall(text))
    for reading, parts in AGENTS["teb"].readings.items():
        fields = parts["explorer"]
        line = next(line for line in text.splitlines() if line.startswith(f"| `{reading}` |"))
        shown = dict(re.findall(r"`(\w+)=([^`]*)`", line))
        assert shown == {
            name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in fields.items()
        }


def test_the_register_of_ambiguities_states_the_defaults() -> None:
    register = [row for row in rows(DOCS / "algorithms" / "teb.md", 6) if re.fullmatch(r"[A-E]-\d+", row[0])]
    assert len(register) > 25
    for letter, _, options, default, flag, _ in register:
        if flag == "none":
            continue
        name = flag.strip("`-").replace("-", "_")
        value = str(next(getattr(config, name) for config in CONFIGS if hasattr(config, name)))
        if default.startswith("`"):
            assert (letter, default) == (letter, f"`{value}`")
            choices = re.findall(r"`(\w+)`", options)
            assert not choices or value in choices, letter


def test_the_page_of_the_particle_anchor_states_what_sets_it_apart() -> None:
    stated = {
        row[0].strip("`-").replace("-", "_"): row[1:3] for row in rows(DOCS / "algorithms" / "teb-p.md", 4)
    }
    for place, preset in enumerate(("paper", "cpu")):
        own, plain = (dataclasses.asdict(AGENTS[name].presets[preset].explorer) for name in ("teb-p", "teb"))
        assert {name for name in own if own[name] != plain[name]} <= set(stated)
        for name in stated.keys() & own.keys():
            value = own[name]
            assert stated[name][place].strip("`") == (
                f"{value:g}" if isinstance(value, float) else str(value)
            )


def test_the_page_of_drm_states_its_options_and_their_defaults() -> None:
    stated = {row[0].strip("`"): row[1].strip("`") for row in rows(DOCS / "algorithms" / "drm.md", 3)}
    for field in dataclasses.fields(DrmConfig):
        assert stated[f"--{field.name.replace('_', '-')}"] == str(field.default)


# --- functions, tests, tables -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", rows(DOCS / "maths.md", 4)[1:], ids=lambda row: row[1].strip("`"))
def test_a_row_of_the_maths_names_a_function_and_its_test(row: list[str]) -> None:
    name = row[1].strip("`")
    assert callable(pkgutil.resolve_name(name))
    assert name.rpartition(".")[2] in text_of(ROOT / row[3].strip("`"))


def test_every_function_of_the_maths_is_in_its_table() -> None:
    listed = {row[1].strip("`") for row in rows(DOCS / "maths.md", 4)}
    for path in sorted((ROOT / "src" / "teb" / "maths").glob("[a-z]*.py")):
        public = re.findall(r"^def ([a-z]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert {f"teb.maths.{path.stem}.{name}" for name in public} <= listed


def test_the_architecture_page_has_the_table_of_imports() -> None:
    def code(names: str) -> str:
        return ", ".join(f"`{name}`" for name in names.split()) or "-"

    table = "\n".join(
        f"| `{rule.part}` | {', '.join(rule.libraries.split()) or '-'} | {code(rule.own)} |" for rule in RULES
    )
    free = ", ".join(f"`{part or '__init__'}`" for part in FREE)
    page = text_of(DOCS / "architecture.md")
    assert table in page, f"docs/architecture.md should have these rows:\n{table}"
    assert f"may import anything: {free}." in page, f"docs/architecture.md should name as free: {free}"


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_is_described_with_its_size(name: str) -> None:
    study = STUDIES[name]
    described = {(row[0], row[2]): row[3:] for row in rows(DOCS / "reproducing.md", 6)}
    for key, budget in study.budgets.items():
        envs = study.environments(budget)
        place = "maze" if envs[0].startswith("maze2d/") else "task"
        counts = [(study.variants, "row"), (envs, place), (budget.seeds, "seed")]
        size = " x ".join(f"{len(many)} {word}{'s' if len(many) > 1 else ''}" for many, word in counts)
        assert described[f"`{name}`", f"`{key}`"] == [f"`{budget.preset}`", f"{budget.steps:,}", size]


def test_claims_are_decided_exactly_where_their_study_compares_what_they_are_about() -> None:
    records = stored_records(ROOT / "results")
    claims = rows(DOCS / "claims.md", 4)[1:]
    assert {row[1].strip("`") for row in claims} <= set(STUDIES)
    for claim, name, verdict, _ in claims:
        study = STUDIES[name.strip("`")]
        drawn = {key: evidence(study, budget, records) for key, budget in study.budgets.items()}
        compared = {
            key for key, one in drawn.items() if len({run.label for run in one.records} - {"uniform"}) > 1
        }
        decisive = {"paper"} if study.envs[0].startswith("metaworld/") else set(study.budgets)
        decided = ("supported", "partly", "not supported")
        assert verdict in (
            decided if compared & decisive else ("undecided",) if compared else ("not run",)
        ), claim


def test_verdicts_on_statements_are_those_of_the_theory() -> None:
    stated = {row[0].split("`")[1]: row[1] for row in rows(DOCS / "claims.md", 3)[1:]}
    found = re.findall(r"<!-- theory: (\S+) -->.*?\*\*([^*.]+)\.\*\*", text_of(DOCS / "theory.md"), re.DOTALL)
    verdicts = {name: verdict.lower() for name, verdict in found if verdict != "Measured"}
    assert stated == verdicts


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_results_are_of_known_studies_and_their_blocks_are_closed(page: Path) -> None:
    marks = re.findall(r"^<!-- (results: \S+|end) -->$", text_of(page), re.MULTILINE)
    assert marks[1::2] == ["end"] * (len(marks) // 2) and len(marks) % 2 == 0
    further = {f"{name}-{budget}" for name, study in STUDIES.items() for budget in study.budgets}
    assert {mark.removeprefix("results: ") for mark in marks[::2]} <= STUDIES.keys() | further


def test_the_index_names_every_page() -> None:
    linked = set(re.findall(r"\]\(([^)#]+)\)", text_of(DOCS / "index.md")))
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} - {"index.md"}
    assert pages <= linked


# --- examples ---------------------------------------------------------------------------------------------------------


def loaded(source: str, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module with this source, as if it were a file of the project."""
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def some_batch(size: int, seed: int) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    obs = torch.randn(size, 4, 2, generator=rng)
    action = 2 * torch.rand(size, 4, 2, generator=rng) - 1
    rewards = torch.zeros(size, 3)
    discount = torch.full((size, 1), 0.99**3)
    windows = (rewards, obs, action, torch.zeros(size, 0), torch.zeros(1, 2))
    return Batch(obs[:, 0], action[:, 0], rewards[:, :1], discount, obs[:, -1], *windows)


def test_every_trait_stands_once_in_the_tables_of_traits_with_its_default() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \|.*\| (.+) \|$", (DOCS / "adding-an-algorithm.md").read_text(), re.MULTILINE
    )
    told = [(name, default) for name, default in rows if name in Traits._fields]
    assert [name for name, _ in told] == list(Traits._fields)
    words = {"None": None, "no": False, "none": 0.0}
    for name, default in told:
        if name != "skills":
            said = words[default] if default in words else ast.literal_eval(default)
            assert said == Traits._field_defaults[name], name


def test_the_worked_example_learns_and_pays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "\n\n".join(blocks(DOCS / "adding-an-algorithm.md", "python"))
    assert not forbidden_imports(source, "explorers.novelty")
    example = loaded(source, "novelty_example", tmp_path, monkeypatch)
    entry = example.NOVELTY
    config = dataclasses.replace(entry.config, **entry.cpu)
    runtime = Runtime(0, torch.device("cpu"), torch.float32)
    agent = ComposedAgent(
        BackboneConfig(batch_size=16, width=16), partial(entry.build, config), Shapes(2, 2), runtime
    )
    losses = [agent.update(some_batch(16, 0), 0)["novelty_error"] for _ in range(2)]
    assert losses[1] < losses[0]
    bonus = agent.explorer.reward(some_batch(16, 1), agent.policy, torch.Generator()).bonus
    assert bonus.shape == (16, 1) and bool((bonus > 0).all()) and not bonus.requires_grad
    assert "explorer" in agent.state()["modules"]


def test_the_example_of_the_readme_pays_once_there_are_particles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source,) = blocks(ROOT / "README.md", "python")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        example = loaded(source, "readme_example", tmp_path, monkeypatch)
    assert example.reward.shape == (example.B, 1)
    assert bool(example.reward.isfinite().all()) and float(example.reward.abs().sum()) > 0
