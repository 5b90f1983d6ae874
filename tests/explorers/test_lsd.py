from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest
import torch
from explorer_setup import GAMMA, batch_for, bonus_of, fit, generator, made, policy, small_agent, windows
from torch import Tensor

from teb.agents.protocol import Batch, one_step_windows
from teb.explorers.lsd import Lsd, LsdConfig
from teb.nets.mlp import Linear
from teb.nets.spectral import SpectralLinear, spectral_layers


def walks(rng: torch.Generator, explorer: Lsd, size: int = 32) -> Batch:
    """Random moves from random places of a maze's size under random skills."""
    obs, step = 5 * torch.randn(size, 2, generator=rng), torch.randn(size, 2, generator=rng)
    draws = np.random.default_rng(int(torch.randint(2**31, (), generator=rng)))
    skill = torch.from_numpy(np.stack([explorer.traits.skills.draw(draws) for _ in range(size)]))
    return windows(obs, obs + step, skill)


def stream(explorer: Lsd, steps: int) -> Iterator[Batch]:
    """Moves along the skill, so that the constraint is what holds the embedding back."""
    rng = generator(1)
    directions = torch.randn(explorer.traits.skills.width, 2, generator=rng)
    for _ in range(steps):
        batch = walks(rng, explorer)
        yield batch._replace(next_obs=batch.obs + batch.skill @ directions)


def settle(explorer: Lsd) -> None:
    """Two hundred forward passes' worth of power iterations at standing weights."""
    for layer in spectral_layers(explorer.embedding):
        layer.iterate(200)


def stretches(explorer: Lsd, pairs: int = 10_000) -> Tensor:
    """||phi(x) - phi(y)|| / ||x - y|| of random pairs, far and near."""
    rng = generator(2)
    x = 5 * torch.randn(pairs, 2, generator=rng)
    y = x + torch.logspace(-2, 1, pairs).unsqueeze(1) * torch.randn(pairs, 2, generator=rng)
    with torch.no_grad():
        return (explorer.embedding(x) - explorer.embedding(y)).norm(dim=1) / (x - y).norm(dim=1)


def along_skills(rng: torch.Generator, *, aligned: bool = True, size: int = 128) -> Batch:
    """Moves of length about 1 along the (normal, 2-D) skill, or along another one."""
    skill, other = torch.randn(2, size, 2, generator=rng)
    obs = torch.randn(size, 2, generator=rng)
    return windows(obs, obs + torch.nn.functional.normalize(skill if aligned else other, dim=1), skill)


@pytest.mark.parametrize("skill", ["discrete", pytest.param("normal", marks=pytest.mark.slow)])
def test_the_embedding_stretches_no_distance_before_and_after_five_thousand_updates(skill: str) -> None:
    explorer = made("lsd", hidden=32, skill=skill)
    fresh = stretches(explorer).max().item()
    assert fresh <= 1.01
    batches = stream(explorer, 5000)
    for _ in range(10):
        fit(explorer, islice(batches, 500))
        assert stretches(explorer).max().item() <= 1.1, "the vectors lag behind the weights, but not for long"
    settle(explorer)
    assert 0.9 < stretches(explorer).max().item() <= 1.01, "what it may, it stretches"
    assert fresh < 0.8


def test_without_the_constraint_the_same_updates_stretch_distances() -> None:
    explorer = made("lsd", hidden=32)
    for layer in spectral_layers(explorer.embedding):
        layer.sigma = lambda: torch.ones(())
    fit(explorer, stream(explorer, 1000))
    assert stretches(explorer).max().item() > 1.5


def test_every_layers_exact_norm_is_near_one_after_two_hundred_forwards() -> None:
    explorer = made("lsd", hidden=64)
    fit(explorer, stream(explorer, 300), lr=1e-3)
    settle(explorer)
    layers = spectral_layers(explorer.embedding)
    assert len(layers) == 3 == sum(isinstance(m, Linear) for m in explorer.modules())
    for layer in layers:
        norm = np.linalg.svd(layer.effective_weight().detach().numpy(), compute_uv=False)[0]
        assert 0.98 <= norm <= 1.02


def test_while_it_learns_every_layers_exact_norm_stays_near_one() -> None:
    explorer, norms = made("lsd", hidden=64), list[float]()
    batches = stream(explorer, 600)
    for _ in range(60):
        fit(explorer, islice(batches, 10))
        layers = spectral_layers(explorer.embedding)
        norms += [float(torch.linalg.matrix_norm(x.effective_weight().detach(), 2)) for x in layers]
    assert min(norms) >= 0.98 and np.median(norms) <= 1.02 and max(norms) <= 1.15


def test_logged_sigmas_are_the_largest_singular_values_of_the_weights() -> None:
    explorer = made("lsd", hidden=64)
    fit(explorer, stream(explorer, 200), lr=1e-3)
    settle(explorer)
    batch = walks(generator(8), explorer)
    metrics = explorer.loss(batch, policy, generator())[1]
    for place, layer in enumerate(spectral_layers(explorer.embedding), 1):
        exact = np.linalg.svd(layer.weight.detach().numpy(), compute_uv=False)[0]
        assert float(metrics[f"sigma_{place}"]) == pytest.approx(float(exact), rel=0.02)


@pytest.mark.parametrize("skill", ["discrete", "normal"])
def test_rewards_of_single_steps_telescope_over_an_episode(skill: str) -> None:
    explorer, rng = made("lsd", hidden=64, skill=skill), generator(4)
    path = torch.cumsum(torch.randn(51, 2, generator=rng), 0)
    z = walks(rng, explorer, 1).skill.expand(50, -1)
    total = bonus_of(explorer, windows(path[:-1], path[1:], z)).sum()
    ends = explorer.embedding(path[[0, -1]]).detach()
    score = z[0] if skill == "normal" else 16 / 15 * (z[0] - 1 / 16)
    assert total.item() == pytest.approx(float((ends[1] - ends[0]) @ score), abs=1e-4)


def test_a_window_pays_the_undiscounted_sum_of_its_steps() -> None:
    explorer, batch = made("lsd", hidden=32), batch_for(small_agent("lsd"), 0)
    steps = bonus_of(explorer, one_step_windows(batch, GAMMA)).view(-1, 3)
    assert torch.allclose(bonus_of(explorer, batch), steps.sum(1), atol=1e-4)


@pytest.mark.parametrize("count", [2, 16])
def test_reward_is_bounded_by_the_distance_moved(count: int) -> None:
    explorer = made("lsd", hidden=32, skill_count=count)
    fit(explorer, stream(explorer, 500), lr=1e-3)
    batch = walks(generator(6), explorer, 5000)
    bound = math.sqrt(1 + 1 / (count - 1)) * (batch.next_obs - batch.obs).norm(dim=1)
    settle(explorer)
    assert bool((bonus_of(explorer, batch).abs() <= 1.01 * bound).all())


def test_a_shift_of_the_embedding_pays_nothing_and_neither_does_standing_still() -> None:
    explorer, batch = made("lsd", hidden=32), batch_for(small_agent("lsd"), 0)
    paid = bonus_of(explorer, batch)
    explorer.embedding.last.bias.data += torch.randn(16, generator=generator())
    assert torch.allclose(bonus_of(explorer, batch), paid, atol=1e-5)
    assert bool((bonus_of(explorer, batch._replace(next_obs=batch.obs)) == 0).all())


def test_both_ends_of_a_window_teach() -> None:
    explorer, batch = made("lsd", hidden=32), batch_for(small_agent("lsd"), 0)
    obs, next_obs = (x.clone().requires_grad_() for x in (batch.obs, batch.next_obs))
    explorer.loss(batch._replace(obs=obs, next_obs=next_obs), policy, generator())[0].backward()
    for end in (obs, next_obs):
        assert end.grad is not None and float(end.grad.abs().sum()) > 0


def test_skills_that_move_along_themselves_are_paid_ever_more() -> None:
    explorer, rng = made("lsd", hidden=64, skill="normal"), generator(1)
    seen = fit(explorer, (along_skills(rng) for _ in range(1200)), lr=1e-3)
    paid = [-row["alignment_loss"] for row in seen]
    quarters = [sum(paid[i : i + 300]) / 300 for i in range(0, 1200, 300)]
    assert quarters == sorted(quarters)
    fresh = along_skills(generator(9), size=2000)
    bound = fresh.skill.norm(dim=1).mean()  # moves have length 1
    assert float(bonus_of(explorer, fresh).mean()) > 0.5 * float(bound)


def test_skills_that_move_anywhere_are_paid_nothing() -> None:
    explorer, rng = made("lsd", hidden=64, skill="normal"), generator(1)
    fit(explorer, (along_skills(rng, aligned=False) for _ in range(600)), lr=1e-3)
    assert abs(float(bonus_of(explorer, along_skills(generator(9), aligned=False, size=4000)).mean())) < 0.05


def test_power_iterations_run_in_training_only() -> None:
    explorer, batch = made("lsd", hidden=16), batch_for(small_agent("lsd"), 0)
    fit(explorer, [batch] * 3, lr=0.1)

    def vectors() -> list[Tensor]:
        return [layer.left.clone() for layer in spectral_layers(explorer.embedding)]

    before = vectors()
    bonus_of(explorer, batch)
    assert all(torch.equal(x, y) for x, y in zip(before, vectors(), strict=True))
    explorer.loss(batch, policy, generator())
    assert not any(torch.equal(x, y) for x, y in zip(before, vectors(), strict=True))


def test_layers_and_skills() -> None:
    explorer = made("lsd")
    sizes = [tuple(m.weight.shape) for m in explorer.modules() if isinstance(m, SpectralLinear)]
    assert sizes == [(1024, 2), (1024, 1024), (16, 1024)]
    assert (explorer.traits.skills.width, explorer.traits.skills.kind) == (16, "one-hot")
    normal = made("lsd", hidden=8, skill="normal")
    assert (normal.traits.skills.width, normal.traits.skills.kind, normal.embedding.last.weight.shape[0]) == (
        2,
        "normal",
        2,
    )
    assert explorer.traits.skills.period == normal.traits.skills.period == 50


@pytest.mark.parametrize(("mode", "n", "steps"), [("window", 3, 1), ("sum", 3, 3), ("one", 1, 1)])
def test_modes_of_the_window(mode: str, n: int, steps: int) -> None:
    agent = small_agent("lsd", n_step_mode=mode)
    assert agent.sampling is not None and agent.sampling.n_step == n
    batch = batch_for(agent, 0)
    nodes = [batch.window_obs[:, i] for i in (range(n + 1) if steps == 3 else (0, n))]
    paid = [
        bonus_of(agent.explorer, windows(a, b, batch.skill)) for a, b in zip(nodes, nodes[1:], strict=False)
    ]
    expected = torch.stack([GAMMA**i * each for i, each in enumerate(paid)]).sum(0)
    assert torch.allclose(agent.pay(batch).bonus.squeeze(1), expected, atol=1e-5)


@pytest.mark.parametrize(
    "wrong", [{"skill_count": 1}, {"skill_dim": 0}, {"hidden": 0}, {"embedding_lr": 0.0}, {"skill": "uniform"}]
)  # fmt: skip
def test_values_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))}: must"):
        LsdConfig(**wrong)  # pyright: ignore[reportArgumentType]
