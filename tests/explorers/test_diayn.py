from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from explorer_setup import batch_for, bonus_of, fit, generator, made, small_agent, windows
from torch import Tensor

from teb.agents.protocol import Batch
from teb.explorers.diayn import DiaynConfig
from teb.nets.mlp import Linear

CENTRES = torch.cartesian_prod(torch.arange(4.0), torch.arange(4.0)) - 1.5
"""Sixteen places, a unit apart."""


def at_places(rng: torch.Generator, shuffled: bool = False, size: int = 128) -> Batch:
    """Windows that end in the place of their skill, or in the place of another one."""
    skill = torch.randint(16, (size,), generator=rng)
    place = torch.randint(16, (size,), generator=rng) if shuffled else skill
    end = CENTRES[place] + 0.1 * torch.randn(size, 2, generator=rng)
    return windows(torch.randn(size, 2, generator=rng), end, torch.eye(16)[skill])


def stream(steps: int, shuffled: bool = False) -> Iterator[Batch]:
    rng = generator(1)
    return (at_places(rng, shuffled) for _ in range(steps))


def test_a_classifier_that_knows_nothing_pays_nothing_and_one_that_knows_all_pays_log_k() -> None:
    explorer, batch = made("diayn", hidden=32), at_places(generator())
    last: Linear = explorer.classifier.last
    torch.nn.init.zeros_(last.weight)
    assert torch.allclose(bonus_of(explorer, batch), torch.zeros(128), atol=1e-6)
    last.bias.data = 1e4 * torch.eye(16)[3]
    third = batch._replace(skill=torch.eye(16)[3].expand(128, -1))
    assert torch.allclose(bonus_of(explorer, third), torch.full((128,), math.log(16)))


def test_every_state_gives_away_one_in_the_mean_over_skills() -> None:
    explorer, states = made("diayn", hidden=32), torch.randn(20, 2, generator=generator())
    paid = torch.stack(
        [bonus_of(explorer, windows(states, states, torch.eye(16)[[z] * 20])) for z in range(16)]
    )
    assert torch.allclose(paid.double().exp().mean(0), torch.ones(20, dtype=torch.float64), atol=1e-6)


def test_separate_places_are_learnt_and_paid_nearly_log_k() -> None:
    explorer = made("diayn", hidden=64)
    seen = fit(explorer, stream(1000), lr=3e-3)
    assert seen[-1]["classifier_accuracy"] > 0.99
    assert bonus_of(explorer, at_places(generator(7), size=1000)).mean().item() > 2.7


def test_skills_that_leave_no_trace_are_not_recognised_and_not_paid() -> None:
    explorer = made("diayn", hidden=64)
    seen = fit(explorer, stream(600, shuffled=True), lr=3e-3)
    accuracy = sum(row["classifier_accuracy"] for row in seen[-200:]) / 200
    assert accuracy == pytest.approx(1 / 16, abs=0.02)
    paid = bonus_of(explorer, at_places(generator(7), shuffled=True, size=2000))
    assert paid.mean().item() <= 3 * paid.std().item() / 2000**0.5, "not above 0 beyond what chance explains"


def test_the_end_of_the_window_is_paid_and_nothing_else_of_it() -> None:
    explorer = made("diayn", hidden=32)
    batch = batch_for(small_agent("diayn"), 0)
    paid = bonus_of(explorer, batch)
    elsewhere = batch._replace(obs=batch.obs + 1, action=-batch.action, window_obs=batch.window_obs.flip(1))
    assert torch.equal(bonus_of(explorer, elsewhere), paid)
    moved = bonus_of(explorer, batch._replace(next_obs=batch.next_obs + 1))
    assert bool((moved != paid).all())


def test_the_end_of_the_window_is_learnt_from_and_nothing_else_of_it() -> None:
    explorer, batch = made("diayn", hidden=32), batch_for(small_agent("diayn"), 0)

    def loss(batch: Batch) -> Tensor:
        return explorer.loss(batch, None, generator())[0].detach()

    assert torch.equal(loss(batch._replace(obs=batch.obs + 1)), loss(batch))
    assert not torch.equal(loss(batch._replace(next_obs=batch.next_obs + 1)), loss(batch))


def test_the_classifier_is_two_layers_on_the_observation_alone() -> None:
    sizes = [tuple(m.weight.shape) for m in made("diayn").modules() if isinstance(m, Linear)]
    assert sizes == [(1024, 2), (1024, 1024), (16, 1024)]


def test_skills_are_sixteen_and_drawn_every_fifty_steps() -> None:
    skills = made("diayn", hidden=8).traits.skills
    assert (skills.width, skills.kind, skills.period) == (16, "one-hot", 50)


@pytest.mark.parametrize(("mode", "n", "steps"), [("window", 3, 1), ("sum", 3, 3), ("one", 1, 1)])
def test_modes_of_the_window(mode: str, n: int, steps: int) -> None:
    agent = small_agent("diayn", n_step_mode=mode)
    assert agent.sampling is not None and agent.sampling.n_step == n
    batch = batch_for(agent, 0)
    ends = [batch.window_obs[:, n]] if steps == 1 else [batch.window_obs[:, i] for i in range(1, n + 1)]
    paid = [bonus_of(agent.explorer, windows(end, end, batch.skill)) for end in ends]
    expected = sum(0.97**i * each for i, each in enumerate(paid))
    assert isinstance(expected, Tensor)
    assert torch.allclose(agent.pay(batch).bonus.squeeze(1), expected, atol=1e-5)


@pytest.mark.parametrize(
    "wrong",
    [{"skill_count": 1}, {"skill_period": 0}, {"hidden": 0}, {"classifier_lr": -1.0}, {"eta": -1.0},
     {"n_step_mode": "all"}],
)  # fmt: skip
def test_values_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))}: must"):
        DiaynConfig(**wrong)  # pyright: ignore[reportArgumentType]
