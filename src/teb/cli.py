"""The command line. Each command is one function below; `teb COMMAND --help` shows its options."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import OmitArgPrefixes, Positional, arg

from teb.agents.registry import KINDS, REPRESENTED
from teb.config import Config, RunConfig, default_config, label
from teb.envs import FAMILIES, EnvProcessError, observed
from teb.envs.naming import did_you_mean
from teb.run.checkpoint import CheckpointError
from teb.run.evaluate import evaluate, play_skills
from teb.run.insight import remembered_frames
from teb.run.record import append_once
from teb.run.session import read_config, resolved, session
from teb.run.stopping import stop_on_signals
from teb.run.train import RunError, train

T = TypeVar("T")

_STYLE = (OmitArgPrefixes,)
"""Options are flat: --lr, not --learner.backbone.lr."""


# --- train -------------------------------------------------------------------------------------------------------

TRAIN_USAGE = """Train an agent, or go on with a run that was stopped: the same command resumes it.

  teb train ENV AGENT [options]     such as: teb train maze2d/square-a teb-p --seed 3
  teb train --from RUN [options]    repeat the configuration of another run

`teb list` names environments and agents. The options below are those of the chosen agent and environment."""


@dataclass(frozen=True)
class Start:
    """Where the values start from, and where the run goes."""

    preset: Literal["cpu", "paper"] = "cpu"
    """Sizes to start from: the paper's, or ones that follow its dynamics on a laptop (ours)."""
    reading: str = "default"
    """How to read the paper where it leaves a choice; `teb list` names the readings of each agent."""
    from_: Annotated[Path | None, arg(name="from")] = None
    """A run folder whose configuration to repeat; further options change it."""
    out: Path | None = None
    """The run's folder; by default one under runs/ that names environment, method and seed."""
    results: Path | None = None
    """The registry to append the finished run to; by default results.jsonl beside the run's folder."""
    tensorboard: bool = False
    """Also write TensorBoard files."""


def train_command(args: Sequence[str]) -> int:
    """Train to the end or to a signal; a finished run goes into the registry."""
    config, start = parse_train(args)
    folder = start.out or default_folder(config)
    registry = start.results or folder.parent / "results.jsonl"
    say = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False).print
    with stop_on_signals() as wish, session(config, folder, tensorboard=start.tensorboard) as opened:
        for warning in opened.warnings:
            say(warning)
        if opened.resumed_at is not None:
            say(f"resuming {folder} at step {opened.resumed_at:,}")
        finished = train(opened.run, opened.reporting, wish)
    record = json.loads((folder / "record.json").read_text())
    if not finished:
        say(f"stopped at step {record['env_steps']:,} and saved; to go on: {again(args, folder)}")
        return 128 + (wish.signal or 0)
    append_once(registry, record)
    shown = record["final"].get(record["headline"])
    result = "not measured yet" if shown is None else f"{shown:.3f}"
    print(
        f"{label(config)} on {config.env}: {record['headline']} {result} after {record['env_steps']:,} steps"
    )
    print(f"run: {folder}   pictures: teb show {folder}")
    return 0


def parse_train(args: Sequence[str]) -> tuple[Config, Start]:
    """The configuration and the folders that the words of `teb train` ask for."""
    names = leading_names(args)
    start_words = option_values(args, ("--preset", "--reading", "--from"))
    if "--from" in start_words:
        if names or len(start_words) > 1 or not start_words["--from"]:
            raise ValueError("--from: takes a run folder, and no names, --preset or --reading beside it")
        base = read_config(Path(start_words["--from"]))
    else:
        if not names and not {"-h", "--help"} & set(args):
            raise ValueError(
                "train: name an environment and an agent, such as: teb train maze2d/square-a teb-p"
            )
        env, agent, *more = (
            [*names, "maze2d/square-a", "teb"] if not names else [*names, *[""] * (2 - len(names))]
        )
        if names and not agent:
            known = ", ".join(KINDS[observed(env)])
            raise ValueError(f"train: name an agent as well, such as: teb train {env} teb-p; known: {known}")
        if names and more:
            raise ValueError(f"train: expected an environment and an agent, got also {' '.join(more)!r}")
        base = default_config(
            env, agent, start_words.get("--preset", "cpu"), start_words.get("--reading", "default")
        )
    start = Start(preset=base.preset, reading=base.reading)  # pyright: ignore[reportArgumentType]
    defaults = TrainOptions(start, base.run, base.task, base.learner)
    options = parse(
        TrainOptions, args[len(names) :], f"teb train {base.env} {base.agent}", defaults, TRAIN_USAGE
    )
    config = dataclasses.replace(base, run=options.run, task=options.task, learner=options.learner)
    return resolved(config), options.start


@dataclass(frozen=True)
class TrainOptions:
    """What `teb train` can be told; the defaults come from the names and the preset."""

    start: Start
    run: RunConfig
    task: Any
    learner: Any


def default_folder(config: Config) -> Path:
    """runs/<environment>_<method>_seed<seed>, readable and one per variant."""
    words = [config.env, label(config), config.preset, f"seed{config.run.seed}"]
    return Path("runs") / "_".join(re.sub(r"[^\w.=-]+", "-", word).strip("-") for word in words)


def again(args: Sequence[str], folder: Path) -> str:
    """The command that goes on with a run."""
    words = list(args) if "--out" in args else [*args, "--out", str(folder)]
    return shlex.join(["teb", "train", *words])


# --- the other commands --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EvalOptions:
    """Play episodes with a trained policy, without exploration noise; their results go into eval.json.

    --video also writes a film, eval.mp4, one episode after the other: what the agent sees, enlarged, or the maze that
    it is in. Below grows a curve: the potential of each frame where the method has one, measured from the anchor of a
    batch of the run's replay; else the value that the critic gives the frame; else the return so far.
    """

    run: Positional[Path]
    """The run's folder."""
    episodes: int = 10
    """How many episodes."""
    seed: int = 0
    """Seed of the episodes' starts."""
    video: bool = False
    """Also write a film of them (needs the extra `metaworld`)."""
    fps: int = 20
    """Steps that the film shows in a second."""


def eval_command(args: Sequence[str]) -> int:
    """Play episodes and print what came of them."""
    options = parse(EvalOptions, args, "teb eval")
    if options.episodes < 1:
        raise ValueError(f"episodes: must be above 0, got {options.episodes}")
    if options.fps < 1:
        raise ValueError(f"fps: must be above 0, got {options.fps}")
    if options.fps != EvalOptions.fps and not options.video:
        raise ValueError("fps: goes with --video")
    film = options.run / "eval.mp4" if options.video else None
    result = evaluate(options.run, options.episodes, options.seed, film, options.fps)
    numbers = {name: value for name, value in result.items() if name != "returns"}
    print(
        "  ".join(
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in numbers.items()
        )
    )
    for path in (options.run / "eval.json", film):
        if path is not None:
            print(f"written: {path}")
    return 0


@dataclass(frozen=True)
class ShowOptions:
    """Draw runs: coverage maps coloured by the time of first visit, learning curves, and a table beside them.

    Of runs from pixels: success and return in training and evaluation, the bonus, and how the representation is doing.
    Of a single one also which frames of its replay the agent of its newest checkpoint takes for most alike and most
    unlike: neighbours.png.
    """

    runs: Positional[tuple[Path, ...]]
    """Run folders; several are drawn side by side."""
    out: Path | None = None
    """Folder of the pictures; by default the first run's."""
    by_skill: bool = False
    """Instead, play the trained policy of one run under each of its skills and draw where they go, in mazes."""
    start: tuple[float, float] | None = None
    """Where its episodes start, X Y; by default where the maze has them start."""
    episodes: int = 5
    """How many episodes it plays under each skill."""
    skills: int = 16
    """How many skills it draws where they are continuous; one-hot ones are all played."""
    seed: int = 0
    """Seed of its episodes and of continuous skills."""


def show_command(args: Sequence[str]) -> int:
    """Draw runs and print their table, or draw the skills of one."""
    from teb.report.show import show

    options = parse(ShowOptions, args, "teb show")
    if not options.runs:
        raise ValueError("show: name at least one run folder")
    plain = ShowOptions(options.runs, options.out)
    idle = [
        field.name
        for field in dataclasses.fields(plain)
        if getattr(options, field.name) != getattr(plain, field.name)
    ]
    if idle and not options.by_skill:
        raise ValueError(f"{idle[0]}: goes with --by-skill")
    for path in show_by_skill(options) if options.by_skill else show(list(options.runs), options.out):
        print(f"written: {path}")
    if len(options.runs) == 1 and not options.by_skill:
        for path in show_seen(options.runs[0], options.out):
            print(f"written: {path}")
    return 0


def show_seen(folder: Path, out: Path | None) -> list[Path]:
    """Draw the nearest and farthest neighbours of some frames, for a run from pixels; or say why not."""
    from teb.report.neighbours import show_neighbours
    from teb.report.records import read_record

    record = read_record(folder)
    try:
        if observed(record.env) != "pixels":
            return []
        return show_neighbours(record, remembered_frames(folder), (out or folder) / "neighbours")
    except (ValueError, OSError, RunError, CheckpointError) as problem:
        print(f"no neighbours of frames are drawn: {problem}")
        return []


def show_by_skill(options: ShowOptions) -> list[Path]:
    """Play a run's policy under each skill and draw the trajectories."""
    from teb.report.records import read_record
    from teb.report.skills import check_maze, show_skills

    folder, *more = options.runs
    if more:
        raise ValueError(f"by_skill: draws one run at a time, got {len(options.runs)}")
    for name in ("episodes", "skills"):
        if getattr(options, name) < 1:
            raise ValueError(f"{name}: must be above 0, got {getattr(options, name)}")
    record = read_record(folder)
    check_maze(record)
    played = play_skills(folder, options.episodes, options.skills, options.start, options.seed)
    return show_skills(
        record, played.skills, played.paths, played.env_steps, (options.out or folder) / "skills"
    )


def list_command(args: Sequence[str]) -> int:
    """Print agents and environments."""
    parse(ListOptions, args, "teb list")
    console = Console()
    for kind, specs in KINDS.items():
        table = Table(
            "agent", "what it is", "source", "readings", title=f"Agents on {kind}", title_justify="left"
        )
        for name, spec in specs.items():
            if not name.endswith(REPRESENTED):
                table.add_row(name, spec.summary, spec.citation, ", ".join(spec.readings))
        console.print(table)
    console.print(
        f"From pixels also NAME{REPRESENTED}: any of them that explores, beside teb's representation.\n"
    )
    families = Table(
        "environment", "observes", "what it is", "source", "names", title="Environments", title_justify="left"
    )
    for name, family in FAMILIES.items():
        seen = family.observes if isinstance(family.observes, str) else "either"
        known = ", ".join(family.names) or "any id"
        families.add_row(f"{name}/...", seen, family.summary, family.citation, known)
    console.print(families)
    return 0


@dataclass(frozen=True)
class ListOptions:
    """Name the agents and the environments."""


def study_command(args: Sequence[str]) -> int:
    """List, plan, run or show a study."""
    from teb.studies import command

    return command.run(parse(command.StudyOptions, args, "teb study"))


def report_command(args: Sequence[str]) -> int:
    """Write the HTML file of a registry."""
    from teb.studies import page

    return page.run(parse(page.ReportOptions, args, "teb report"))


def theory_command(args: Sequence[str]) -> int:
    """Check the paper's statements by exact computation."""
    from teb.theory import command

    return command.run(parse(command.TheoryOptions, args, "teb theory", about=command.USAGE))


@dataclass(frozen=True)
class DoctorOptions:
    """Look at this machine: versions, threads, bfloat16, memory, disk, rendering."""


def doctor_command(args: Sequence[str]) -> int:
    """Print what this machine offers."""
    from teb import doctor

    parse(DoctorOptions, args, "teb doctor")
    return doctor.run()


def bench_command(args: Sequence[str]) -> int:
    """Print how fast updates and the loop are here."""
    from teb import bench

    return bench.run(parse(bench.BenchOptions, args, "teb bench"))


COMMANDS: dict[str, tuple[Callable[[Sequence[str]], int], str]] = {
    "train": (train_command, "train an agent, or go on with a stopped run"),
    "eval": (eval_command, "play episodes with a trained policy, film them"),
    "show": (show_command, "draw runs: coverage maps, curves, a table, frames that are alike"),
    "study": (study_command, "tables and figures from stored runs: list, plan, run, show"),
    "report": (report_command, "all studies and runs as one HTML file"),
    "theory": (theory_command, "check the paper's statements by exact computation, or on your own process"),
    "bench": (bench_command, "measure speed, as ratios"),
    "list": (list_command, "name the agents and the environments"),
    "doctor": (doctor_command, "look at this machine"),
}


# --- words to values -------------------------------------------------------------------------------------------------


def leading_names(args: Sequence[str]) -> list[str]:
    """The words before the first option."""
    names: list[str] = []
    for word in args:
        if word.startswith("-"):
            break
        names.append(word)
    return names


def option_values(args: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Values of some options, read ahead of the rest because they decide the others' defaults."""
    values: dict[str, str] = {}
    for index, word in enumerate(args):
        name, equals, value = word.partition("=")
        if name in names:
            values[name] = value if equals else (args[index + 1] if index + 1 < len(args) else "")
    return values


def parse(
    kind: type[T], args: Sequence[str], prog: str, default: T | None = None, about: str | None = None
) -> T:
    """Parse with tyro; its boxed complaint becomes one line."""
    given: dict[str, Any] = {} if default is None else {"default": default}
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(kind, args=list(args), prog=prog, description=about, config=_STYLE, **given)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise ValueError(one_line(complaint.getvalue())) from None


def one_line(box: str) -> str:
    """The complaint below the title of a box, drawn or in ASCII, and the option that may have been meant."""
    plain = box.translate(str.maketrans("─╭╮╰╯│", "----- "))
    paragraphs = re.split(r"-{8,}", plain)
    text = " ".join(paragraphs[1].split()) if len(paragraphs) > 1 else " ".join(plain.split())
    text = re.sub(r"^Error parsing (?!--)\S+: ", "", text).removeprefix("Error parsing ")
    guess = re.search(r"Perhaps you meant:\s+(--[\w-]+)", plain)
    wanted = re.search(r"(--[\w-]+): invalid literal for int.*: ('.*')", text)
    if wanted:
        text = f"{wanted[1]}: expected a whole number, got {wanted[2]}"
    return f"{text}; did you mean {guess[1]}?" if guess else text


def main() -> None:
    """Run the command that the arguments name."""
    sys.exit(run_command(sys.argv[1:]))


def run_command(words: Sequence[str]) -> int:
    """Run one command; what a user can mend is one line and exit code 2, what broke on the way exit code 1."""
    name = words[0] if words else "--help"
    if name in ("-h", "--help"):
        print(usage())
        return 0
    try:
        if name not in COMMANDS:
            raise ValueError(
                f"unknown command {name!r}{did_you_mean(name, COMMANDS)} known: {', '.join(COMMANDS)}"
            )
        return COMMANDS[name][0](words[1:])
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # the reader has gone, as with `| head`
        return 0
    except (ValueError, OSError) as error:
        return complain(error, 2)
    except (RunError, CheckpointError, EnvProcessError) as error:
        return complain(error, 1)


def complain(error: Exception, code: int) -> int:
    """One line on standard error."""
    print(f"teb: {error}", file=sys.stderr)
    return code


def usage() -> str:
    """What `teb --help` says."""
    lines = [f"  {name:<8} {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: teb COMMAND ...",
            "",
            "Exploration under sparse reward through a predictive bisimulation metric.",
            "",
            *lines,
        ]
        + ["", "Start with: teb train maze2d/square-a teb-p    Options of a command: teb COMMAND --help"]
    )


if __name__ == "__main__":
    main()
