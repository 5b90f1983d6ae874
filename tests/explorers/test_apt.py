from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from explorer_setup import (
    batch_for,
    batch_of,
    changed,
    generator,
    pay,
    policy,
    random_batch,
    small_agent,
    small_explorer,
    snapshot,
    teach,
)
from scipy import spatial
from torch import Tensor

from teb.agents.protocol import Batch, Shapes
from teb.explorers.apt import Apt, AptConfig


def at(points: Tensor) -> Batch:
    """Windows that start at these points and end elsewhere."""
    batch = random_batch(3, size=len(points))
    return batch_of(torch.cat([points[:, None], batch.window_obs[:, 1:]], 1), batch.window_action)


def plain(**options: Any) -> Any:
    """The variant that looks for neighbours among observations."""
    return small_explorer("apt", rep="obs", **options)


def test_size_at_the_width_of_the_paper() -> None:
    explorer = Apt(AptConfig(), Shapes(2, 2), gamma=0.99, n_step=3)
    trunk = 2 * 512 + 512 + 2 * 512
    forward = 514 * 1024 + 1024 + 1024 * 512 + 512
    inverse = 1024 * 1024 + 1024 + 1024 * 2 + 2
    assert sum(p.numel() for p in explorer.parameters()) == trunk + forward + inverse
    groups = explorer.parameter_groups()
    assert sum(p.numel() for group in groups for p in group["params"]) == trunk + forward + inverse


@pytest.mark.parametrize("rep", ["learned", "obs"])
@pytest.mark.parametrize("exclude_self", [False, True])
def test_bonus_is_the_logarithm_of_one_plus_the_mean_distance_to_neighbours(
    rep: str, exclude_self: bool
) -> None:
    explorer, batch = small_explorer("apt", rep=rep, exclude_self=exclude_self), random_batch(0, size=64)
    with torch.no_grad():
        points = explorer.trunk(batch.window_obs[:, 0]).double().numpy()
    if rep == "obs":
        assert np.array_equal(points, batch.window_obs[:, 0].double().numpy())
    nearest = np.asarray(spatial.KDTree(points).query(points, 12 + exclude_self)[0])[:, exclude_self:]
    assert np.allclose(pay(explorer, batch).numpy(), np.log1p(nearest.mean(1)), atol=1e-4)


def test_a_state_is_one_of_its_own_twelve_neighbours() -> None:
    batch = random_batch(0, size=64)
    counted = pay(plain(), batch).expm1() * 12
    others = pay(plain(neighbours=11, exclude_self=True), batch).expm1() * 11
    assert torch.allclose(counted, others, rtol=1e-4)
    assert torch.equal(pay(plain(neighbours=1), batch), torch.zeros(64))


@pytest.mark.parametrize("rep", ["learned", "obs"])
def test_where_all_states_are_one_nothing_is_paid(rep: str) -> None:
    bonus = pay(small_explorer("apt", rep=rep), at(torch.tensor([[1.5, -2.5]]).expand(64, 2)))
    assert torch.equal(bonus, torch.zeros(64))


def test_a_state_that_moves_away_is_paid_most_and_raises_only_those_it_leaves() -> None:
    points = random_batch(0, size=64).obs
    away = points.clone()
    away[7] = torch.tensor([60.0, -60.0])
    before, after = (pay(plain(), at(rows)) for rows in (points, away))
    neighbours = np.asarray(spatial.KDTree(points.numpy()).query(points.numpy(), 12)[1])
    left = torch.tensor([7 in row and place != 7 for place, row in enumerate(neighbours.tolist())])
    others = ~left
    others[7] = False
    assert bool(left.any()) and bool(others.any())
    assert int(after.argmax()) == 7
    assert bool((after[left] > before[left]).all())
    assert torch.allclose(after[others], before[others], atol=1e-3)


def test_a_batch_without_enough_states_is_refused() -> None:
    with pytest.raises(ValueError, match=r"k: must lie in \[1, 11\]"):
        pay(plain(), random_batch(0, size=11))
    with pytest.raises(ValueError, match=r"k: must lie in \[1, 11\]"):
        pay(plain(exclude_self=True), random_batch(0, size=12))


def test_larger_distances_pay_more_unless_they_are_divided_by_their_mean() -> None:
    raw, scaled = ({scale: plain(distance_norm=norm) for scale in (1.0, 3.0)} for norm in ("none", "mean"))
    paid: dict[tuple[str, float], Tensor] = {}
    for seed in range(10):
        batch = random_batch(seed, size=64)
        for norm, explorers in (("none", raw), ("mean", scaled)):
            for scale, explorer in explorers.items():
                paid[norm, scale] = pay(explorer, at(scale * batch.obs))
    assert bool((paid["none", 3.0] > paid["none", 1.0]).all())
    assert torch.allclose(paid["none", 3.0].expm1(), 3 * paid["none", 1.0].expm1(), rtol=1e-3)
    assert torch.allclose(paid["mean", 3.0], paid["mean", 1.0], rtol=1e-3)


def test_the_divisor_is_the_mean_of_all_distances_so_far_and_the_clip_comes_after_it() -> None:
    explorer, seen = plain(distance_norm="mean", distance_clip=0.7), list[float]()
    for seed in range(4):
        points = random_batch(seed, size=64, obs_scale=1.0 + seed).obs
        bonus = pay(explorer, at(points))
        nearest = np.asarray(spatial.KDTree(points.numpy()).query(points.numpy(), 12)[0])
        seen.extend(nearest.flatten().tolist())
        expected = np.log1p(np.maximum(nearest / np.mean(seen) - 0.7, 0).mean(1))
        assert np.allclose(bonus.numpy(), expected, atol=1e-3)


def test_loss_is_that_of_forward_and_inverse_model_between_representations() -> None:
    explorer, batch = small_explorer("apt"), random_batch(0)
    loss, metrics = explorer.loss(batch, policy, generator())
    with torch.no_grad():
        start, end = (explorer.trunk(batch.window_obs[:, step]) for step in (0, 3))
        after = explorer.models.predicted_latent(start, batch.action)
        taken = explorer.models.predicted_action(start, end)
    forward = np.linalg.norm((end - after).numpy(), axis=1).mean()
    inverse = np.linalg.norm((batch.action - taken).numpy(), axis=1).mean()
    assert float(loss.detach()) == pytest.approx(forward + inverse, rel=1e-5)
    assert float(metrics["forward_error"]) == pytest.approx(forward, rel=1e-5)
    assert float(metrics["inverse_error"]) == pytest.approx(inverse, rel=1e-5)


def test_the_representation_learns_at_both_ends_but_nothing_behind_the_later_one_does() -> None:
    batch, gradients = random_batch(0), list[Tensor]()
    for stopped in (False, True):
        explorer = small_explorer("apt")
        if stopped:  # what the trunk's gradient would be if the later representation carried none
            forward, calls = explorer.trunk.forward, list[int]()

            def once(x: Tensor, forward: Any = forward, calls: list[int] = calls) -> Tensor:
                calls.append(1)
                return forward(x) if len(calls) == 1 else forward(x).detach()

            explorer.trunk.forward = once
        latent, next_latent = (rows.clone().requires_grad_() for rows in (batch.obs, batch.next_obs))
        explorer.loss(batch._replace(obs=latent, next_obs=next_latent), policy, generator())[0].backward()
        assert latent.grad is not None and bool(latent.grad.any())
        assert next_latent.grad is None
        gradients.append(explorer.trunk.linear.weight.grad)
    through_both, through_one = gradients
    assert not torch.allclose(through_both, through_one)


def test_the_representation_learns_to_tell_actions() -> None:
    explorer = small_explorer("apt")
    rng = torch.Generator().manual_seed(0)

    def walk() -> Batch:
        start, action = (2 * torch.rand(128, 2, 2, generator=rng) - 1 for _ in range(2))
        return batch_of(torch.cat([start[:, :1], start[:, :1] + action[:, :1]], 1), action)

    fresh = walk()
    before = explorer.loss(fresh, policy, generator())[1]
    teach(explorer, (walk() for _ in range(300)))
    after = explorer.loss(fresh, policy, generator())[1]
    assert float(after["inverse_error"]) < 0.3 * float(before["inverse_error"])
    assert float(after["forward_error"]) < 0.5 * float(before["forward_error"])


def test_observations_as_they_are_leave_nothing_to_learn() -> None:
    agent = small_agent("apt", rep="obs")
    explorer: Any = agent.explorer
    assert agent.explorer_optimiser is None and explorer.parameter_groups() == []
    assert not list(explorer.parameters())
    before = snapshot(agent.backbone)
    agent.update(batch_for(agent, 0), 0)
    assert any(name.startswith("actor.") for name in changed(before, snapshot(agent.backbone)))


def test_distances_are_not_rounded_where_models_are() -> None:
    exact, rounded = (
        Apt(AptConfig(hidden=32, rep_width=32), Shapes(2, 2), gamma=0.99, n_step=3, compute=compute)
        for compute in (torch.float32, torch.bfloat16)
    )
    rounded.load_state_dict(exact.state_dict())
    batch = random_batch(0)
    assert torch.equal(pay(exact, batch), pay(rounded, batch))
    one, other = (float(e.loss(batch, policy, generator())[0].detach()) for e in (exact, rounded))
    assert one != other and one == pytest.approx(other, rel=0.01)


@pytest.mark.parametrize(
    "wrong",
    [{"neighbours": 0}, {"rep": "pixels"}, {"distance_norm": "rms"}, {"distance_clip": -1.0}, {"rep_width": 0}],
    ids=str,
)  # fmt: skip
def test_values_that_cannot_work_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        AptConfig(**wrong)
