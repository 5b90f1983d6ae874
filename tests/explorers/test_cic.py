"""What is particular to CIC: continuous skills, and a bonus that is the batch's particle entropy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from explorer_setup import SHAPES, batch_for, changed, generator, policy, random_batch, small_agent, snapshot

from teb.agents.protocol import Batch, Skills
from teb.explorers.cic import Cic, CicConfig
from teb.maths.infonce import infonce
from teb.nets.mlp import initialised_from

SKILLS = Skills(8, "uniform")


def small_cic(**changes: Any) -> Cic:
    with initialised_from(0):
        values: dict[str, Any] = {"skill_width": 8, "hidden": 32, "neighbours": 5} | changes
        return Cic(CicConfig(**values), SHAPES, gamma=0.97, n_step=3)


def batch(seed: int = 0, size: int = 48) -> Batch:
    return random_batch(seed, size=size, skills=SKILLS)


def paid(cic: Cic, batch: Batch) -> torch.Tensor:
    return cic.reward(batch, policy, generator()).bonus.squeeze(1)


def brute_force(cic: Cic, batch: Batch, scale: float) -> list[float]:
    x = cic.contrast.state(batch.next_obs).detach().double().numpy()
    bonus = []
    for row in x:
        apart = sorted(float(np.linalg.norm(row - other)) for other in x)[: cic.config.neighbours]
        scaled = [max(d / scale - cic.config.particle_clip, 0.0) for d in apart]
        bonus.append(float(np.log(1 + sum(scaled) / len(scaled))))
    return bonus


@pytest.mark.parametrize("norm", ["variance", "std"])
def test_bonus_is_the_particle_entropy_of_the_embedded_ends_of_the_whole_batch(norm: str) -> None:
    cic = small_cic(knn_norm=norm)
    for seed in range(3):
        bonus = paid(cic, batch(seed))
        variance = float(cic.entropy.moments.variance)
        expected = brute_force(cic, batch(seed), variance if norm == "variance" else variance**0.5)
        assert np.allclose(bonus.numpy(), expected, atol=1e-5)
    assert float(cic.entropy.moments.count) == pytest.approx(3 * 48 * 5)


def test_bonus_reads_the_end_of_the_window_and_neither_its_start_nor_the_skill() -> None:
    plain = batch()
    other = plain._replace(obs=plain.obs + 1, skill=plain.skill.flip(0), action=-plain.action)
    assert torch.equal(paid(small_cic(), plain), paid(small_cic(), other))
    moved = plain._replace(next_obs=plain.next_obs.roll(1, 1))
    assert not torch.allclose(paid(small_cic(), plain), paid(small_cic(), moved))


def test_loss_contrasts_skills_with_transitions() -> None:
    cic, windows = small_cic(), batch()
    ends = torch.cat([cic.contrast.state(windows.obs), cic.contrast.state(windows.next_obs)], 1)
    queries, keys = cic.contrast.skill(windows.skill), cic.contrast.transition(ends)
    loss, _ = cic.loss(windows, policy, generator())
    assert torch.allclose(loss, infonce(queries, keys, 0.5, "official"))
    plain, _ = small_cic(cpc_offset="none").loss(windows, policy, generator())
    assert torch.allclose(plain, infonce(queries, keys, 0.5, "none"))


def test_embeddings_learn_to_tell_skills_that_lead_to_different_places() -> None:
    cic = small_cic()
    adam = torch.optim.Adam([p for g in cic.parameter_groups() for p in g["params"]], 3e-3)
    losses = []
    for seed in range(150):
        windows = batch(seed)
        ends = windows._replace(next_obs=windows.obs + 4 * windows.skill[:, :2])
        loss, _ = cic.loss(ends, policy, generator())
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(float(loss.detach()))
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.4


def test_skills_are_uniform_in_the_unit_cube_and_the_critic_is_the_backbone_s() -> None:
    traits = Cic(CicConfig(hidden=8), SHAPES, gamma=0.97, n_step=3).traits
    assert traits.skills == Skills(64, "uniform", 50) and traits.critic is None
    drawn = np.stack([traits.skills.draw(np.random.default_rng(i)) for i in range(200)])
    assert drawn.min() >= 0 and drawn.max() <= 1
    assert drawn.mean() == pytest.approx(0.5, abs=0.02) and drawn.std() == pytest.approx(12**-0.5, abs=0.02)


def test_other_skills_give_other_actions_and_values() -> None:
    agent = small_agent("cic")
    windows = batch_for(agent, 0)
    backbone = agent.backbone
    x, other = (backbone.joined(windows.obs, z) for z in (windows.skill, 1 - windows.skill))
    assert float((backbone.actor(x) - backbone.actor(other)).detach().abs().max()) > 1e-3
    z = windows.skill.clone().requires_grad_()
    backbone.critic(backbone.joined(windows.obs, z), windows.action).sum().backward()
    assert z.grad is not None and bool(z.grad.any())


def test_moments_are_those_of_the_run_and_are_logged() -> None:
    agent = small_agent("cic")
    explorer: Any = agent.explorer
    for seed in range(4):
        before = snapshot(explorer.entropy)
        metrics = agent.update(batch_for(agent, seed), 0)
        moved = changed(before, snapshot(explorer.entropy))
        assert moved == {f"moments.{name}" for name in ("mean", "variance", "count")}
        assert float(metrics["particle_variance"]) == float(explorer.entropy.moments.variance)
        assert {"bonus_mean", "bonus_min", "bonus_max", "contrast_loss", "explorer_loss"} <= metrics.keys()


@pytest.mark.parametrize(
    "name", ["skill_width", "skill_period", "hidden", "contrast_lr", "temperature", "neighbours"]
)
def test_values_that_cannot_work_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: must be above 0, got 0$"):
        CicConfig(**dict[str, Any]({name: 0}))


def test_words_that_mean_nothing_are_refused() -> None:
    wrong: Any = "no"
    with pytest.raises(ValueError, match=r"^knn_norm: must be one of variance, std, got 'no'$"):
        CicConfig(knn_norm=wrong)
    with pytest.raises(ValueError, match=r"^cpc_offset: must be one of official, none, got 'no'$"):
        CicConfig(cpc_offset=wrong)
