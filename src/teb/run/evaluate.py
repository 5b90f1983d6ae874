"""Episodes of the trained policy without exploration noise, on an environment of their own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import track

from teb.agents.protocol import Batch
from teb.config import label
from teb.run.insight import Trained, appraised, experience, trained
from teb.run.play import Episode, average, play
from teb.run.record import write_record
from teb.seeding import child_seed

T = TypeVar("T")


def evaluate(
    folder: Path, episodes: int, seed: int = 0, film: Path | None = None, fps: int = 20
) -> dict[str, Any]:
    """Load the newest intact checkpoint of a run and play `episodes` with it; writes eval.json and returns it.

    Where skills can be counted it plays the same episodes once more, under the one that earned most in the replay. With
    `film` also an mp4 of the former, so many frames a second.
    """
    run = trained(folder)
    over = None
    if film is not None:
        check_film(run)
        over = experience(run, seed)
    seeds = [child_seed(seed, "evaluation", number) % 2**31 for number in range(episodes)]
    played = [play(run.task, run.agent, number) for number in watched(seeds, "episodes", film is not None)]
    returns = [episode.said["return"] for episode in played]
    said = {name: value for name, value in average(played).items() if name != "return"}
    result = {
        "env_steps": run.env_steps,
        "episodes": episodes,
        "seed": seed,
        "return_mean": float(np.mean(returns)),
        "return_std": float(np.std(returns)),
        "returns": returns,
        **run.task.meter.metrics(),
        **said,
    }
    skills, replay = run.agent.skills, run.saved["replay"]
    best = skills.most_paid(replay["skill"], replay["reward"])
    if best is not None:
        again = [play(run.task, run.agent, number, skills.one_hot(best)) for number in seeds]
        result["best_skill"] = best
        result |= {f"best_skill_{name}": value for name, value in average(again).items()}
    run.task.env.close()
    write_record(folder / "eval.json", result)
    if film is not None:
        write_film(run, played, over, film, fps)
    return result


def check_film(run: Trained) -> None:
    """Refuse, before anything is played, what cannot be filmed."""
    if find_spec("imageio") is None or find_spec("imageio_ffmpeg") is None:
        raise ValueError('video: needs imageio with ffmpeg: pip install "teb[metaworld]"')
    space = run.task.env.observation_space
    if len(space.shape or ()) != 3 and not run.task.meter.record().get("walls"):
        raise ValueError(f"video: {run.config.env} has neither pictures nor a maze to show")


def write_film(run: Trained, played: Sequence[Episode], over: Batch | None, path: Path, fps: int) -> None:
    """All episodes in one film, with the potential of each frame, or what the agent has in its place."""
    from teb.report.film import Take, Words, film, film_length, save_film

    measured = [appraised(run, episode, over) for episode in played]
    takes = [
        Take(
            np.stack(episode.obs),
            np.array(episode.rewards),
            np.array(episode.solved),
            None if view is None else view.values.cpu().numpy(),
        )
        for episode, view in zip(played, measured, strict=True)
    ]
    trained_for = f"seed {run.config.run.seed}, {run.env_steps:,} steps of training"
    words = Words(run.config.env, label(run.config), trained_for)
    name = "return so far" if measured[0] is None else measured[0].name
    frames = film(takes, words, name, run.task.meter.record(), fps)
    save_film(path, watched(frames, "frames", True, film_length(takes, fps)), fps)


def watched(things: Iterable[T], what: str, shown: bool, total: int | None = None) -> Iterable[T]:
    """The same things, with progress and time left where someone watches."""
    hidden = not (shown and sys.stderr.isatty())
    return track(things, what, total, console=Console(stderr=True), disable=hidden)


class SkillEpisodes(NamedTuple):
    """Episodes of a trained policy, skill by skill."""

    env_steps: int
    """How long the policy was trained."""
    skills: np.ndarray
    """The skills that were played, [S, K]."""
    paths: list[list[np.ndarray]]
    """For each skill the observations of each of its episodes, [T+1, D]."""


def play_skills(
    folder: Path, episodes: int, drawn: int, start: Sequence[float] | None = None, seed: int = 0
) -> SkillEpisodes:
    """Play `episodes` under each skill of a run's policy, or under `drawn` ones where there are more than can be named.

    `start` is handed to the environment's reset as an option. Episodes of the same number share their seed.
    """
    run = trained(folder)
    task, agent = run.task, run.agent
    if agent.skills.width == 0:
        raise ValueError(f"{folder}: its method has no skills")
    skills = agent.skills.examples(drawn, np.random.default_rng(child_seed(seed, "shown skills")))
    seeds = [child_seed(seed, "evaluation", number) % 2**31 for number in range(episodes)]
    paths = [[np.stack(play(task, agent, number, skill, start).obs) for number in seeds] for skill in skills]
    task.env.close()
    return SkillEpisodes(run.env_steps, skills, paths)


def read_evaluation(folder: Path) -> dict[str, Any]:
    """What `evaluate` wrote last."""
    return json.loads((folder / "eval.json").read_text())
