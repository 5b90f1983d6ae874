"""ProtoRL: assignments, targets, queue and bonus."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from explorer_setup import (
    SHAPES,
    batch_for,
    generator,
    policy,
    random_batch,
    small_agent,
    snapshot,
)
from torch import Tensor

from teb.explorers import protorl
from teb.explorers.protorl import ProtoRl, ProtoRlConfig
from teb.maths.distances import unit
from teb.maths.sinkhorn import sinkhorn
from teb.nets.mlp import initialised_from

SMALL: dict[str, Any] = {"embedding": 8, "proj_hidden": 16, "prototypes": 16, "queue": 64}
BATCH = random_batch(0)


def explorer(seed: int = 0, **changes: Any) -> ProtoRl:
    with initialised_from(seed):
        return ProtoRl(ProtoRlConfig(**(SMALL | changes)), SHAPES, gamma=0.97, n_step=3)


def norms(rows: Tensor) -> Tensor:
    return rows.detach().norm(dim=1)


def test_prototypes_have_unit_length_whenever_scores_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = small_agent("protorl", embedding=32)
    module: Any = agent.explorer
    lengths, first = list[Tensor](), module.prototypes.detach().clone()
    draw = protorl.drawn_by_score

    def spy(scores: Tensor, rng: torch.Generator) -> Tensor:
        cosines = unit(module.prototypes.detach()) @ unit(module.embed(batch.next_obs).detach()).T
        assert torch.allclose(scores, cosines, atol=1e-6)
        return draw(scores, rng)

    monkeypatch.setattr(protorl, "drawn_by_score", spy)
    for seed in range(4):
        lengths.append(norms(module.prototypes))
        batch = batch_for(agent, seed)
        agent.update(batch, 0)
    for found in lengths:
        assert torch.allclose(found, torch.ones_like(found), atol=1e-6)
    assert not torch.allclose(module.prototypes, first)


def test_loss_is_the_cross_entropy_of_projected_starts_and_balanced_ends() -> None:
    module = explorer()
    with torch.no_grad():
        module.target_embed.weight.add_(0.3)
        u = module.project(module.embed(BATCH.obs)).numpy()
        v = module.target_embed(BATCH.next_obs).numpy()
        c = module.prototypes.numpy()
    u, v = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (u, v))
    q = sinkhorn(torch.from_numpy(v @ c.T), 0.1, 3).numpy()
    logits = u @ c.T / 0.1
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    loss, metrics = module.loss(BATCH, policy, generator())
    assert float(loss.detach()) == pytest.approx(-(q * log_p).sum(1).mean(), rel=1e-4)
    entropy = -(q * np.log(q.clip(1e-30))).sum(1).mean()
    assert float(metrics["assignment_entropy"]) == pytest.approx(entropy, rel=1e-4)
    assert float(loss.detach()) >= entropy


def test_loss_trains_embedding_projector_and_prototypes_through_the_start_alone() -> None:
    module = explorer()
    batch = BATCH._replace(next_obs=BATCH.next_obs.clone().requires_grad_())
    module.loss(batch, policy, generator())[0].backward()
    moved = {
        name.split(".")[0] for name, p in module.named_parameters() if p.grad is not None and p.grad.any()
    }
    assert moved == {"embed", "project", "prototypes"}
    assert batch.next_obs.grad is None


def test_target_follows_at_its_rate_and_gets_no_gradient() -> None:
    module = explorer()
    with torch.no_grad():
        module.embed.weight.add_(1.0)
    gap, kept = (module.embed.weight - module.target_embed.weight).detach(), snapshot(module.embed)
    for _ in range(7):
        module.after_step(BATCH, policy, generator())
    left = module.embed.weight - module.target_embed.weight
    assert torch.allclose(left, 0.95**7 * gap, atol=1e-6)
    assert torch.equal(module.embed.weight, kept["weight"]), "it is the target that moves"
    declared = {id(p) for group in module.parameter_groups() for p in group["params"]}
    assert not declared & {id(p) for p in module.target_embed.parameters()}
    assert not any(p.requires_grad for p in module.target_embed.parameters())


def test_bonus_lies_between_zero_and_two_and_ignores_the_scale_of_the_embedding() -> None:
    module, scaled = explorer(), explorer()
    with torch.no_grad():
        for parameter in scaled.embed.parameters():
            parameter.mul_(7.0)
    for seed in range(6):
        batch = random_batch(seed, obs_scale=3.0)
        paid, again = (m.reward(batch, policy, generator(seed)).bonus for m in (module, scaled))
        assert bool((paid >= 0).all()) and bool((paid <= 2).all()) and float(paid.max()) > 0
        assert torch.allclose(paid, again, atol=1e-5)


def test_bonus_is_the_third_smallest_distance_to_the_queue_after_the_draw() -> None:
    module = explorer()
    for seed in range(5):
        batch = random_batch(seed)
        bonus = module.reward(batch, policy, generator(seed)).bonus.squeeze(1).numpy()
        with torch.no_grad():
            z = module.embed(batch.next_obs).numpy()
        z = z / np.linalg.norm(z, axis=1, keepdims=True)
        distances = np.linalg.norm(z[:, None] - module.queue.stored.numpy()[None], axis=2)
        assert np.allclose(bonus, np.sort(distances, axis=1)[:, 2], atol=1e-4)


def test_queue_fills_by_one_embedding_per_prototype_and_wraps_around() -> None:
    module = explorer()
    pointers: list[int] = []
    for seed in range(4):
        empty = module.queue.stored.norm(dim=1) == 0
        assert int(empty.sum()) == 64 - 16 * seed
        bonus = module.reward(random_batch(seed), policy, generator(seed)).bonus
        if seed == 0:
            assert float(bonus.max()) <= 1.0 + 1e-6  # zeros are at distance 1 from every embedding
        pointers.append(int(module.queue.pushed) % 64)
    assert pointers == [16, 32, 48, 0]
    assert torch.allclose(norms(module.queue.stored), torch.ones(64), atol=1e-5)


def test_a_queue_that_is_no_multiple_of_the_prototypes_wraps_as_well() -> None:
    module = explorer(queue=40)
    for seed in range(3):
        module.reward(random_batch(seed), policy, generator(seed))
    assert int(module.queue.pushed) == 48
    assert torch.allclose(norms(module.queue.stored), torch.ones(40), atol=1e-5)


def test_paying_twice_moves_the_queue_twice() -> None:
    module = explorer()
    rng = generator()
    module.reward(BATCH, policy, rng)
    first = snapshot(module.queue)
    module.reward(BATCH, policy, rng)
    assert int(module.queue.pushed) == 32
    assert not torch.equal(first["stored"], module.queue.stored)


def test_queue_holds_online_embeddings_of_the_ends_without_projector() -> None:
    module = explorer()
    with torch.no_grad():
        module.target_embed.weight.zero_()
        module.reward(BATCH, policy, generator())
        ends = unit(module.embed(BATCH.next_obs))
    nearest = torch.cdist(module.queue.stored[:16], ends).min(1).values
    assert bool((nearest < 1e-3).all())


def test_an_embedding_that_is_three_times_in_the_queue_is_paid_nothing() -> None:
    module = explorer()
    with torch.no_grad():
        ends = unit(module.embed(BATCH.next_obs))
        module.queue.push(ends[:1].expand(47, -1))
        module.queue.push(-ends[:1])
    bonus = module.reward(BATCH, policy, generator()).bonus
    assert float(bonus[0]) == 0.0
    assert float(bonus.max()) > 0.0


def test_bonus_reads_the_end_of_a_window_only() -> None:
    one, other = explorer(), explorer()
    elsewhere = BATCH._replace(obs=BATCH.obs + 3.0, action=-BATCH.action)
    paid = [m.reward(b, policy, generator()).bonus for m, b in ((one, BATCH), (other, elsewhere))]
    assert torch.equal(*paid)


def test_points_on_one_ray_look_alike_before_anything_is_learnt() -> None:
    module = explorer()
    with torch.no_grad():
        near, far = unit(module.embed(BATCH.obs)), unit(module.embed(5 * BATCH.obs))
    assert torch.allclose(near, far, atol=1e-5)


def test_assignments_of_neighbouring_states_are_learnt_to_agree() -> None:
    agent = small_agent("protorl", model_lr=3e-3, prototypes=16, queue=64)
    excess: list[float] = []
    for seed in range(100):
        batch = batch_for(agent, seed % 10)
        window = batch.window_obs[:, :1] + torch.linspace(0, 0.1, 4).view(1, 4, 1)
        metrics = agent.update(batch._replace(window_obs=window, next_obs=window[:, -1]), 0)
        excess.append(float(metrics["explorer_loss"] - metrics["assignment_entropy"]))
    assert min(excess) >= 0.0
    assert np.mean(excess[-10:]) < 0.4 * np.mean(excess[:10])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"queue": 100}, "queue: must be at least prototypes = 512, got 100"),
        ({"neighbour": 4096}, "neighbour: must be at most queue = 2048, got 4096"),
        ({"temperature": 0.0}, "temperature: must be above 0"),
        ({"nstep_mode": "all"}, "nstep_mode: must be one of window, sum, one"),
        ({"target_rate": 1.5}, r"target_rate: must lie in \[0, 1\]"),
    ],
)
def test_impossible_options_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ProtoRlConfig(**changes)


def test_sizes_of_the_official_networks() -> None:
    module = ProtoRl(ProtoRlConfig(), SHAPES, gamma=0.99, n_step=3)
    sizes = {name: tuple(p.shape) for name, p in module.named_parameters() if name.endswith("weight")}
    assert sizes["embed.weight"] == (128, 2) and module.prototypes.shape == (512, 128)
    assert sizes["project.layers.0.weight"] == (512, 128) and sizes["project.last.weight"] == (128, 512)
    assert module.queue.stored.shape == (2048, 128)
