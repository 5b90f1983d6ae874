from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from explorer_setup import (
    BATCH,
    batch_for,
    bonus_of,
    fit,
    generator,
    made,
    policy,
    small_agent,
    snapshot,
    windows,
)
from torch import Tensor, nn

from teb.agents.protocol import Batch, parts, to_batch
from teb.config import RunConfig
from teb.envs import make_task
from teb.explorers.becl import Becl, BeclConfig
from teb.nets.mlp import Linear
from teb.run.train import Run


class Given(nn.Module):
    """Stands in for the network: the features are the observations themselves."""

    def forward(self, x: Tensor) -> Tensor:
        return x


def becl(**changes: Any) -> Becl:
    return made("becl", **{"hidden": 32} | changes)


def paying_for(features: Tensor, skills: list[int], count: int = 2, **changes: Any) -> Tensor:
    """What is paid for states with these features."""
    explorer = becl(skill_count=count, **changes)
    explorer.features = Given()  # pyright: ignore[reportAttributeAccessIssue]
    return bonus_of(explorer, windows(features, features, torch.eye(count)[skills]))


def test_identical_features_are_all_paid_the_same() -> None:
    paid = paying_for(torch.tensor([[0.3, -1.0]]).expand(64, -1), [0, 1] * 32)
    assert torch.allclose(paid, torch.full((64,), 1 / 63), atol=1e-5)


def test_the_length_of_features_does_not_matter() -> None:
    features, skills = torch.randn(16, 2, generator=generator()), [0, 1] * 8
    scales = torch.logspace(-2, 2, 16).unsqueeze(1)
    assert torch.allclose(paying_for(scales * features, skills), paying_for(features, skills), atol=1e-6)


@pytest.mark.parametrize("length", [0.01, 100.0])
def test_an_item_is_not_its_own_negative(length: float) -> None:
    features = torch.tensor([[length, 0.0]] + [[0.0, 1.0]] * 7)
    assert paying_for(features, [0, 1] * 4)[0].item() == pytest.approx(1 / 7, abs=2e-6)


def test_two_clusters_by_hand() -> None:
    features = torch.tensor([[1.0, 0.0], [-1.0, 0.0]] * 4)
    by_hand = math.exp(2) / (3 * math.exp(2) + 4 * math.exp(-2)) + 1e-6
    assert torch.allclose(paying_for(features, [0, 1] * 4), torch.full((8,), by_hand), atol=1e-6)


def test_the_temperature_divides_cosines() -> None:
    features = torch.tensor([[1.0, 0.0], [0.0, 1.0]] * 4)
    by_hand = math.exp(5) / (3 * math.exp(5) + 4)
    assert torch.allclose(
        paying_for(features, [0, 1] * 4, temperature=0.2), torch.full((8,), by_hand), atol=1e-5
    )


def test_a_lone_skill_is_paid_nothing_and_teaches_nothing() -> None:
    features = torch.randn(5, 2, generator=generator())
    paid = paying_for(features, [0, 1, 0, 2, 0], count=3)
    assert paid[[1, 3]].tolist() == [0.0, 0.0] and bool((paid[[0, 2, 4]] > 0).all())
    explorer = becl(skill_count=3)
    explorer.features = Given()  # pyright: ignore[reportAttributeAccessIssue]
    batch = windows(features, features, torch.eye(3)[[0, 1, 0, 2, 0]])
    loss, metrics = explorer.loss(batch, policy, generator())
    shares, paired = explorer.contrast(features, batch, generator())
    assert paired.tolist() == [True, False, True, False, True]
    assert float(loss) == pytest.approx(-float(shares[paired].log().mean()), rel=1e-5)


def test_a_batch_of_lone_skills_does_no_harm() -> None:
    explorer, states = becl(skill_count=4), torch.randn(4, 2, generator=generator())
    batch = windows(states, states, torch.eye(4))
    loss, metrics = explorer.loss(batch, policy, generator())
    loss.backward()
    assert float(loss.detach()) == 0.0 and all(bool(value.isfinite()) for value in metrics.values())
    assert all(p.grad is None or bool((p.grad == 0).all()) for p in explorer.parameters())
    assert bonus_of(explorer, batch).tolist() == [0.0] * 4


def test_the_first_rule_pairs_all_of_a_skill_with_one() -> None:
    features = torch.randn(6, 2, generator=generator())
    explorer = becl(skill_count=2, positives="first")
    explorer.features = Given()  # pyright: ignore[reportAttributeAccessIssue]
    batch = windows(features, features, torch.eye(2)[[0, 1, 0, 1, 0, 1]])
    paid = bonus_of(explorer, batch)
    unit = torch.nn.functional.normalize(features, dim=1)
    weights = (unit @ unit.T / 0.5).exp().fill_diagonal_(0.0)
    partner = [2, 3, 0, 1, 0, 1]
    assert torch.allclose(paid, weights[range(6), partner] / weights.sum(1), atol=1e-4)
    assert torch.equal(bonus_of(explorer, batch, seed=8), paid), "nothing is drawn"


def test_random_positives_come_from_the_given_generator() -> None:
    explorer, batch = becl(), batch_for(small_agent("becl"), 0)
    one, same, other = (bonus_of(explorer, batch, seed) for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_the_end_of_the_window_is_paid() -> None:
    explorer, batch = becl(), batch_for(small_agent("becl"), 0)
    paid = bonus_of(explorer, batch)
    assert torch.equal(bonus_of(explorer, batch._replace(obs=batch.obs + 1)), paid)
    assert not torch.equal(bonus_of(explorer, batch._replace(next_obs=batch.next_obs.flip(0))), paid)


def test_both_of_a_pair_teach() -> None:
    explorer = becl(skill_count=2, positives="first")
    explorer.features = Given()  # pyright: ignore[reportAttributeAccessIssue]
    states = torch.randn(5, 2, generator=generator()).requires_grad_()
    share, _ = explorer.contrast(states, windows(states, states, torch.eye(2)[[0, 1, 0, 1, 1]]), generator())
    share[2].log().backward()  # its positive is item 0
    assert states.grad is not None
    both = [float(states.grad[i].norm()) for i in (0, 2)]
    assert min(both) > 0.01


def test_three_steps_on_three_fresh_batches_and_the_actors_is_the_third(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent, task = small_agent("becl"), make_task("maze2d/square-a")
    run = Run(RunConfig(uniform_steps=0, replay_capacity=1000), task, agent, Path())
    while run.episodes < 12:
        if not run.replay.running:
            run.begin_episode()
        action = run.act()
        run.stepper.send(action)
        run.take(action)
    drawn: list[int] = []
    sample = run.replay.sample

    def spied_sample(batch_size: int, *others: Any) -> Any:
        drawn.append(batch_size)
        return sample(batch_size, *others)

    monkeypatch.setattr(run.replay, "sample", spied_sample)
    assert agent.sampling is not None
    whole = to_batch(run.replay.sample(*agent.sampling, run.sampler), run.first_obs, agent.device)
    learnt: list[Tensor] = []
    parameters = [snapshot(agent.explorer)]  # pyright: ignore[reportArgumentType]
    others: dict[str, list[Tensor]] = {"paid": [], "critic": [], "actor": []}
    spies = [
        (agent.explorer, "loss", learnt),
        (agent.explorer, "reward", others["paid"]),
        (agent.backbone, "critic_loss", others["critic"]),
        (agent.backbone, "actor_loss", others["actor"]),
    ]
    for owner, name, seen in spies:
        inner = getattr(owner, name)

        def spy(batch: Batch, *rest: Any, _inner: Any = inner, _seen: list[Tensor] = seen) -> Any:
            _seen.append(batch.obs.clone())
            parameters.append(snapshot(agent.explorer))  # pyright: ignore[reportArgumentType]
            return _inner(batch, *rest)

        monkeypatch.setattr(owner, name, spy)
    agent.update(whole, 0)
    assert drawn == [3 * BATCH]
    assert torch.equal(torch.cat(learnt), whole.obs) and [len(x) for x in learnt] == [BATCH] * 3
    assert not torch.equal(learnt[0], learnt[1]) and not torch.equal(learnt[1], learnt[2])
    for seen in others.values():
        assert len(seen) == 1 and torch.equal(seen[0], learnt[2])
    weights = [values["features.0.last.weight"] for values in parameters]
    moves = [not torch.equal(x, y) for x, y in zip(weights, weights[1:], strict=False)]
    assert moves == [False, True, True, True, False, False], "a step after each loss, none after the reward"


def test_descent_brings_states_of_a_skill_together_and_others_apart() -> None:
    """Each skill has two opposite corners, which a fresh network tells apart as much as it does the skills."""
    explorer, rng = becl(skill_count=2), generator(1)
    states = torch.randn(64, 2, generator=rng)
    batch = windows(states, states, torch.eye(2)[(states.prod(1) > 0).long()])
    seen = fit(explorer, [batch] * 150, lr=1e-3)
    assert seen[-1]["cosine_same"] > seen[0]["cosine_same"] + 0.1
    assert seen[-1]["cosine_cross"] < seen[0]["cosine_cross"] - 0.1
    assert seen[-1]["contrastive_loss"] < seen[0]["contrastive_loss"]


def test_logged_cosines_are_those_of_the_features() -> None:
    explorer, batch = becl(), parts(batch_for(small_agent("becl"), 0), 3)[0]
    metrics = explorer.loss(batch, policy, generator())[1]
    unit = torch.nn.functional.normalize(explorer.features(batch.next_obs).detach(), dim=1)
    cosines = unit @ unit.T
    same = (batch.skill @ batch.skill.T).bool()
    off = ~torch.eye(BATCH, dtype=torch.bool)
    assert float(metrics["cosine_same"]) == pytest.approx(float(cosines[same & off].mean()), abs=1e-4)
    assert float(metrics["cosine_cross"]) == pytest.approx(float(cosines[~same].mean()), abs=1e-4)


def test_layers_and_skills() -> None:
    explorer = made("becl")
    sizes = [tuple(m.weight.shape) for m in explorer.modules() if isinstance(m, Linear)]
    assert sizes == [(1024, 2), (1024, 1024), (16, 1024), (1024, 16), (16, 1024)]
    skills = explorer.traits.skills
    assert (skills.width, skills.kind, skills.period) == (16, "one-hot", 50)
    assert explorer.traits.batches == 3


def test_windows_of_one_step() -> None:
    agent = small_agent("becl", n_step_mode="one")
    assert agent.sampling is not None and (agent.sampling.n_step, agent.sampling.batch_size) == (1, 3 * BATCH)


@pytest.mark.parametrize(
    "wrong",
    [{"skill_count": 1}, {"temperature": 0.0}, {"contrastive_steps": 0}, {"positives": "last"},
     {"n_step_mode": "sum"}],
)  # fmt: skip
def test_values_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))}: must"):
        BeclConfig(**wrong)  # pyright: ignore[reportArgumentType]
