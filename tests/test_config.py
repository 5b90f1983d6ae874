from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from teb.agents.registry import AGENTS, KINDS, PIXEL_AGENTS
from teb.config import (
    NEUTRAL,
    PIXELS,
    Config,
    RunConfig,
    config_hash,
    default_config,
    flat,
    from_json,
    label,
    overrides,
    to_json,
    updated,
)
from teb.envs import FAMILIES, observed
from teb.explorers import REGISTRY

MAZE = "maze2d/square-a"
PROBE = "probe/near"
NAMES = [
    (agent, preset, reading)
    for agent, spec in AGENTS.items()
    for preset in spec.presets
    for reading in ("default", *spec.readings)
]
PIXEL_NAMES = [
    (agent, preset, reading)
    for agent, spec in PIXEL_AGENTS.items()
    for preset in spec.presets
    for reading in ("default", *spec.readings)
]
ONE_OF_EACH_FAMILY = {
    family: f"{family}/{entry.names[0] if entry.names else 'Pendulum-v1'}"
    for family, entry in FAMILIES.items()
}


def changed_at(config: Any, path: str, value: Any) -> Any:
    """A copy with one (nested) field changed."""
    name, dot, rest = path.partition(".")
    new = changed_at(getattr(config, name), rest, value) if dot else value
    return dataclasses.replace(config, **{name: new})


def fields_of(config: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Path, type and value of every field that holds no further ones."""
    hints = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from fields_of(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", hints[field.name], value


def candidates(kind: Any, value: Any) -> list[Any]:
    """Other values of a field's type, the likeliest to be valid first."""
    origin = typing.get_origin(kind)
    if origin is Literal:
        return [choice for choice in typing.get_args(kind) if choice != value]
    if origin in (typing.Union, types.UnionType):
        several = [candidates(one, value) for one in typing.get_args(kind) if one is not type(None)]
        return [choice for choices in several for choice in choices]
    if kind is bool:
        return [not value]
    if kind is int:
        return [value + 1, value - 1] if isinstance(value, int) else [7]
    if kind is float:
        return [value / 2, 0.5] if value else [0.5]
    if kind is str:
        return [f"{value}2"]
    raise TypeError(f"no idea how to vary {kind}")


def variants(config: Config) -> Iterator[tuple[str, Config]]:
    """Every field that can be changed alone, changed alone."""
    for part in ("run", "task", "learner"):
        for path, kind, value in fields_of(getattr(config, part), f"{part}."):
            for candidate in candidates(kind, value):
                try:
                    variant = changed_at(config, path, candidate)
                except ValueError:
                    continue
                yield path, variant
                break  # a field that another one leaves no choice is passed over


@pytest.mark.parametrize("agent", AGENTS)
def test_every_field_of_a_default_can_be_changed_alone(agent: str) -> None:
    config = default_config(MAZE, agent)
    every = [path for path, _, _ in fields_of(config) if path.partition(".")[0] in ("run", "task", "learner")]
    assert [path for path, _ in variants(config)] == every


# --- names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "agent", "preset", "reading"),
    [
        (env, *name)
        for env in ONE_OF_EACH_FAMILY.values()
        for name in (NAMES if observed(env) == "states" else PIXEL_NAMES)
    ],
)
def test_names_alone_make_a_configuration(env: str, agent: str, preset: str, reading: str) -> None:
    config = default_config(env, agent, preset, reading)
    family = FAMILIES[env.partition("/")[0]]
    assert (config.env, config.agent, config.preset, config.reading) == (env, agent, preset, reading)
    seen = PIXELS if observed(env) == "pixels" else {}
    assert config.run == dataclasses.replace(RunConfig(), **{**seen, **family.schedule})
    assert config.task == family.config()
    assert overrides(config) == {}
    assert label(config) == (agent if reading == "default" else f"{agent} ({reading})")


@pytest.mark.parametrize(("agent", "preset", "reading"), NAMES)
def test_a_reading_changes_what_it_says_and_nothing_else(agent: str, preset: str, reading: str) -> None:
    base, read = default_config(MAZE, agent, preset), default_config(MAZE, agent, preset, reading)
    said = dict(AGENTS[agent].readings.get(reading, {}).get("explorer", {}))
    before, after = dict(flat(to_json(base)["learner"])), dict(flat(to_json(read)["learner"]))
    assert {path for path in before if before[path] != after[path]} <= {f"explorer.{name}" for name in said}
    assert {name: after[f"explorer.{name}"] for name in said} == said


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("maze2d/square-a", "tbe"), "unknown agent 'tbe'; did you mean 'teb'?"),
        (("maze2d/square-a", "teb", "gpu"), "preset: must be one of paper, cpu, got 'gpu'"),
        (("maze2d/square-a", "eta0", "paper", "literal"), "reading: 'eta0' has default, got 'literal'"),
        (("maze2d/squar-a", "teb"), "did you mean 'square-a'?"),
        (("maze2d", "teb"), "env: must look like family/name, got 'maze2d'"),
        (
            ("maze2d/square-a", "drqv2"),
            "agent: 'drqv2' is for pixels, maze2d/square-a shows states; known: teb",
        ),
        (("probe/near", "drqv3"), "unknown agent 'drqv3'; did you mean 'drqv2'?"),
    ],
)
def test_wrong_names_are_refused(names: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError) as caught:
        default_config(*names)
    assert said in str(caught.value)


# --- as JSON ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("agent", "preset", "reading"), NAMES)
def test_json_and_back_is_the_same_configuration(agent: str, preset: str, reading: str) -> None:
    config = default_config(MAZE, agent, preset, reading)
    for _, variant in [("", config), *variants(config)]:
        text = json.dumps(to_json(variant), allow_nan=False)
        back = from_json(json.loads(text))
        assert back == variant
        assert type(back.learner) is type(variant.learner)
        assert config_hash(back) == config_hash(variant)


@pytest.mark.parametrize("env", ONE_OF_EACH_FAMILY.values())
def test_json_keeps_the_task(env: str) -> None:
    for _, variant in variants(default_config(env, "uniform")):
        assert from_json(json.loads(json.dumps(to_json(variant)))) == variant


def test_what_an_older_file_lacks_has_its_default() -> None:
    data = to_json(default_config(MAZE, "teb", "cpu"))
    del data["run"]["update_every"], data["learner"]["explorer"]["eta"]
    assert from_json(data) == default_config(MAZE, "teb", "cpu")


def test_what_a_file_has_beyond_is_refused() -> None:
    data = to_json(default_config(MAZE, "teb", "cpu"))
    data["learner"]["backbone"]["widht"] = 3
    with pytest.raises(ValueError, match=r"unknown field 'widht' of BackboneConfig; did you mean 'width'\?"):
        from_json(data)


# --- hash ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("agent", "preset", "reading"), NAMES)
def test_the_hash_changes_with_every_field_that_can_change_what_is_learnt(
    agent: str, preset: str, reading: str
) -> None:
    config = default_config(MAZE, agent, preset, reading)
    neutral = {
        f"run.{name}"
        for name in (
            "seed",
            "steps",
            "log_every",
            "checkpoint_seconds",
            "threads",
            "device",
            "eval_every",
            "eval_episodes",
            "env_process",
        )
    }
    hashes = {"": config_hash(config)}
    for path, variant in variants(config):
        if path in neutral:
            assert config_hash(variant) == hashes[""], path
            neutral.remove(path)
        else:
            hashes[path] = config_hash(variant)
    assert not neutral
    assert len(set(hashes.values())) == len(hashes)


def test_the_hash_tells_environments_and_agents_apart() -> None:
    every = [
        default_config(env, agent, preset)
        for env in (MAZE, "maze2d/square-b", "gym/Pendulum-v1")
        for agent in AGENTS
        for preset in ("cpu", "paper")
        if agent != "uniform" or preset == "cpu"
    ]
    assert len({config_hash(config) for config in every}) == len(every)


def test_the_hash_is_about_values_and_not_about_where_they_came_from() -> None:
    paper, cpu = default_config(MAZE, "teb", "paper"), default_config(MAZE, "teb", "cpu")
    assert config_hash(dataclasses.replace(cpu, learner=paper.learner)) == config_hash(paper)
    assert config_hash(cpu) != config_hash(paper)
    read = default_config(MAZE, "teb", "paper", "literal")
    assert config_hash(dataclasses.replace(paper, learner=read.learner)) == config_hash(read)


@pytest.mark.parametrize(
    ("env", "agent", "preset", "expected"),
    [
        (MAZE, "teb", "cpu", "5d5c131c84be"),
        (MAZE, "teb-p", "paper", "dc02766e6a6e"),
        (MAZE, "uniform", "cpu", "9ad64eed942b"),
    ],
)
def test_hashes_of_stored_runs_stay(env: str, agent: str, preset: str, expected: str) -> None:
    """They are compared with those of runs that are stored; a change here loses every one of them."""
    assert config_hash(resolved_to_bf16(default_config(env, agent, preset))) == expected


def resolved_to_bf16(config: Config) -> Config:
    return dataclasses.replace(config, run=dataclasses.replace(config.run, precision="bf16"))


def test_pixel_compositions_are_the_paper_s_ablations() -> None:
    learners = {name: spec.presets["paper"] for name, spec in PIXEL_AGENTS.items()}
    teb = learners["teb"]
    assert (teb.backbone.batch_size, teb.backbone.gamma, teb.encoder.latent_dim) == (256, 0.97, 50)
    assert (teb.representation.lambda_b, teb.representation.lambda_r, teb.explorer.eta) == (0.5, 0.5, 1.0)
    assert learners["teb-no-rep"].explorer == teb.explorer
    assert not learners["teb-no-rep"].representation.trains_encoder
    assert learners["teb-no-int"].representation == teb.representation
    assert learners["drqv2"].encoder.latent_layout == "critic_trunk"
    assert learners["teb-env-metric"].representation.delta_r == "env_nstep"
    joined = {name for name, entry in REGISTRY.items() if not entry.own_metric}
    assert {"teb", "icm", "cesd"} <= joined and joined.isdisjoint({"liberty", "eme"})
    assert {f"{name}+rep" for name in joined} == {name for name in PIXEL_AGENTS if name.endswith("+rep")}


def test_the_hash_is_twelve_hexadecimal_digits() -> None:
    assert len(config_hash(default_config(MAZE, "teb"))) == 12
    assert int(config_hash(default_config(MAZE, "teb")), 16) >= 0


# --- changes ------------------------------------------------------------------------------------------------------


def test_updated_changes_nested_fields_and_keeps_the_original() -> None:
    config = default_config(MAZE, "teb")
    learner = updated(config.learner, {"explorer": {"eta": 0.25}, "backbone": {"lr": 1e-3}})
    assert (learner.explorer.eta, learner.backbone.lr) == (0.25, 1e-3)
    assert config == default_config(MAZE, "teb")
    assert updated(config, {"run": {"seed": 4}}).run == dataclasses.replace(config.run, seed=4)
    assert updated(config, {}) == config


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"explorer": {"etta": 1.0}}, "unknown field 'etta' of TebConfig; did you mean 'eta'?"),
        ({"backbone": {"batchsize": 1}}, "did you mean 'batch_size'?"),
        ({"xyz": 1}, "unknown field 'xyz' of Composition;"),
    ],
)
def test_updated_refuses_what_there_is_not(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError) as caught:
        updated(default_config(MAZE, "teb").learner, changes)
    assert said in str(caught.value)


def test_updated_checks_ranges() -> None:
    with pytest.raises(ValueError, match="lr: must be above 0"):
        updated(default_config(MAZE, "teb").learner, {"backbone": {"lr": 0.0}})


def test_overrides_name_what_differs_from_the_names_alone() -> None:
    config = default_config(MAZE, "teb", "cpu", "literal")
    config = updated(
        config,
        {
            "learner": {"backbone": {"width": 64}, "explorer": {"eta": 0.1}},
            "task": {"action_limit": 0.5},
            "run": {"seed": 3, "steps": 10},
        },
    )
    assert overrides(config) == {"action_limit": 0.5, "width": 64, "eta": 0.1}
    assert label(config) == "teb (literal, action_limit=0.5, width=64, eta=0.1)"


@pytest.mark.parametrize(("agent", "preset", "reading"), NAMES)
def test_every_override_shows_in_the_label(agent: str, preset: str, reading: str) -> None:
    config = default_config(MAZE, agent, preset, reading)
    labels = {label(config)}
    aside = {f"run.{name}" for name in (*NEUTRAL, "seed", "precision")}
    shown = [(path, variant) for path, variant in variants(config) if path not in aside]
    for path, variant in shown:
        assert list(overrides(variant)) == [path.rpartition(".")[2]]
        labels.add(label(variant))
    assert len(labels) == len(shown) + 1
    for path, variant in variants(config):
        assert path not in aside or overrides(variant) == {}


def test_no_two_options_of_an_agent_share_a_name() -> None:
    for env in ONE_OF_EACH_FAMILY.values():
        for agent in KINDS[observed(env)]:
            config = default_config(env, agent)
            names = [
                path.rpartition(".")[2]
                for part in (config.run, config.task, config.learner)
                for path, _, _ in fields_of(part)
            ]
            assert len(set(names)) == len(names), agent


# --- values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", AGENTS)
def test_configurations_are_frozen(agent: str) -> None:
    config = default_config(MAZE, agent)
    for part in (config, config.run, config.task, config.learner):
        for field in dataclasses.fields(part):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(part, field.name, None)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("agent", {**AGENTS, **PIXEL_AGENTS})
def test_no_number_may_be_infinite_or_none_at_all(agent: str, bad: float) -> None:
    """What is not finite could not be written into config.json."""
    for env in ONE_OF_EACH_FAMILY.values():
        if agent not in KINDS[observed(env)]:
            continue
        config = default_config(env, agent)
        accepted = []
        for path, kind, _ in (
            field
            for part in ("run", "task", "learner")
            for field in fields_of(getattr(config, part), f"{part}.")
        ):
            if kind is float or float in typing.get_args(kind):
                try:
                    changed_at(config, path, bad)
                except ValueError as error:
                    assert path.rpartition(".")[2] in str(error)
                else:
                    accepted.append(path)
        assert accepted == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("steps", 0),
        ("steps", -1),
        ("update_every", 0),
        ("replay_capacity", 0),
        ("log_every", 0),
        ("checkpoint_seconds", 0.0),
        ("seed", -1),
        ("seed", 2**63 + 1),
        ("seed_steps", -1),
        ("uniform_steps", -1),
        ("threads", -1),
    ],
)
def test_schedules_that_cannot_work_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{field}: must .*, got"):
        RunConfig(**{field: value})
