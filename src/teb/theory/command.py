"""`teb theory`: run the statements, print a line each, and write pictures, arrays and a page."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from teb.checks import in_range, positive
from teb.envs.naming import did_you_mean
from teb.report import style
from teb.theory.cost import cost
from teb.theory.files import FORMAT, read_process
from teb.theory.invariance import invariance
from teb.theory.learned import learned
from teb.theory.nondegeneracy import nondegeneracy
from teb.theory.operators import contraction, diameter, reduction
from teb.theory.statement import Setting, Statement
from teb.theory.user import metrics_of, statements_of
from teb.theory.value_bound import value_bound

EXPERIMENTS: dict[str, Callable[[Setting], Statement]] = {
    "reduction": reduction,
    "lemma-3.1": diameter,
    "lemma-3.2": contraction,
    "theorem-3.3": nondegeneracy,
    "theorem-3.4": value_bound,
    "theorem-3.5": invariance,
    "learned": learned,
    "cost": cost,
}

USAGE = f"""Check the paper's statements by exact computation on finite decision processes.

  teb theory                   all statements on processes made for them, about a minute
  teb theory --mdp FILE.npz    the same statements on a process of yours, and its metrics in metrics.npz

Prints one line per statement: holds, holds under conditions, or fails, with the numbers. The folder --out gets a
page and its pictures. With --mdp it also gets metrics.npz: the arrays values, classical, predictive_independent,
predictive_shared and mico, each metric with a certified bound of its error.

{FORMAT}"""


@dataclass(frozen=True)
class TheoryOptions:
    """Check the paper's statements by exact computation."""

    mdp: Path | None = None
    """A process of yours; the format is above."""
    out: Path = Path("runs/theory")
    """The folder of page, pictures and arrays."""
    only: tuple[str, ...] = ()
    """Some of the statements: reduction, lemma-3.1, lemma-3.2, theorem-3.3, theorem-3.4, theorem-3.5, learned, cost."""
    c_r: float = 1.0
    """Weight of the reward differential, above 0 (paper 1)."""
    c_t: float | None = None
    """Weight of the transition term, in [0, 1); None means gamma (paper: gamma)."""
    gamma: float = 0.97
    """Discount of values and shaping, in [0, 1) (paper: 0.97 Meta-World, 0.99 mazes)."""
    sigma: float = 0.5
    """Standard deviation of the reward predictor, above 0 (0.5: where the paper's bounded deviation starts)."""
    seed: int = 0
    """Seed of random processes, samples and networks."""
    docs: tuple[Path, ...] = ()
    """Pages whose parts between `<!-- theory: NAME -->` and `<!-- theory end -->` to bring up to date."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        positive("c_r", self.c_r)
        positive("sigma", self.sigma)
        in_range("gamma", self.gamma, 0.0, 1.0, high_open=True)
        if self.c_t is not None:
            in_range("c_t", self.c_t, 0.0, 1.0, high_open=True)
        in_range("seed", self.seed, 0, 2**63 - 1)
        for name in self.only:
            if name not in EXPERIMENTS:
                guess = did_you_mean(name, EXPERIMENTS)
                raise ValueError(f"only: unknown statement {name!r}{guess} known: {', '.join(EXPERIMENTS)}")
        if self.mdp is not None and (self.only or self.docs):
            raise ValueError("mdp: takes all its statements; --only and --docs go without it")

    @property
    def setting(self) -> Setting:
        """The numbers that experiments are told."""
        c_t = self.gamma if self.c_t is None else self.c_t
        return Setting(self.c_r, c_t, self.gamma, self.sigma, self.seed)


def run(options: TheoryOptions) -> int:
    """Run, print, write."""
    if options.mdp is not None:
        return _run_on(options.mdp, options)
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    found: dict[str, Statement] = {}
    for name in options.only or EXPERIMENTS:
        found[name] = EXPERIMENTS[name](options.setting)
        print(found[name].line, flush=True)
    _write(
        options.out, "The paper's statements, computed exactly", _about(options.setting), list(found.values())
    )
    for page in options.docs:
        if refresh(page, found):
            print(f"brought up to date: {page}")
    print(f"written: {options.out / 'theory.md'} ({time.monotonic() - began:.0f} s)")
    return 0


def _run_on(path: Path, options: TheoryOptions) -> int:
    process, own = read_process(path, options.sigma)
    options.out.mkdir(parents=True, exist_ok=True)
    arrays = metrics_of(process, options.setting)
    np.savez(options.out / "metrics.npz", **arrays)  # pyright: ignore[reportArgumentType]
    found = statements_of(process, own, arrays, options.setting)
    for statement in found:
        print(statement.line, flush=True)
    about = (
        f"{process.states} states, {process.rewards.shape[1]} actions. {_about(options.setting)} Distances "
        "are exact to "
        f"{max(float(arrays[name]) for name in arrays if name.endswith('error_bound')):.0e} (certified)."
    )
    _write(options.out, f"The statements on {path.name}", about, found)
    print(f"written: {options.out / 'theory.md'} and {options.out / 'metrics.npz'}")
    return 0


def _about(setting: Setting) -> str:
    return (
        f"c_R = {setting.c_r:g}, c_T = {setting.c_t:g}, gamma = {setting.gamma:g}, predictor sigma = "
        f"{setting.sigma:g}, "
        f"seed {setting.seed}."
    )


def _write(folder: Path, title: str, about: str, statements: Sequence[Statement]) -> None:
    """theory.md and its pictures."""
    parts = [f"# {title}", about]
    for statement in statements:
        parts += [f"## {statement.name}", body(statement)]
        for picture in statement.pictures:
            style.save(picture.figure, folder / picture.name)
            parts += [f"![{picture.caption}]({picture.name}.png)", f"*{picture.caption}*"]
    (folder / "theory.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def body(statement: Statement) -> str:
    """A statement's part of a page, without its heading and pictures."""
    parts = [f"*{statement.claim}*", f"**{statement.verdict.capitalize()}.** {statement.numbers}"]
    return "\n\n".join([*parts, *([statement.table.strip()] if statement.table else []), *statement.remarks])


def refresh(page: Path, found: dict[str, Statement]) -> bool:
    """Put statements between their marks in a page; whether it changed."""
    before = after = page.read_text(encoding="utf-8")
    for name, statement in found.items():
        block = re.compile(rf"(<!-- theory: {re.escape(name)} -->\n).*?(<!-- theory end -->)", re.DOTALL)
        text = body(statement)
        after = block.sub(lambda mark, text=text: f"{mark[1]}\n{text}\n\n{mark[2]}", after)
    if after != before:
        page.write_text(after, encoding="utf-8")
    return after != before
