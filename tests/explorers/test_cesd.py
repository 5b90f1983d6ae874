"""What is particular to CeSD: clusters, what is paid inside them, and who learns from whom."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from explorer_setup import SHAPES, batch_for, changed, generator, policy, random_batch, small_agent, snapshot
from torch import Tensor

from teb.agents.backbone import Backbone, BackboneConfig
from teb.agents.descent import descend
from teb.agents.protocol import Batch, Skills
from teb.explorers.cesd import Cesd, CesdConfig
from teb.maths.sinkhorn import sinkhorn
from teb.nets.mlp import initialised_from

K = 4
SKILLS = Skills(K)


def small_cesd(**changes: Any) -> Cesd:
    values: dict[str, Any] = {"skills": K, "hidden": 32, "neighbours": 3} | changes
    with initialised_from(0):
        return Cesd(CesdConfig(**values), SHAPES, gamma=0.97, n_step=3)


def batch(seed: int = 0, size: int = 64) -> Batch:
    return random_batch(seed, size=size, skills=SKILLS)


def rows(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, K, generator=generator(seed))


def loop_bonus(
    cesd: Cesd, x: np.ndarray, cluster: np.ndarray, skill: np.ndarray
) -> list[tuple[float, float]]:
    """Both parts of the bonus of each state, by loops over clusters and states, with moments of their own."""
    config, paid = cesd.config, [(0.0, 0.0)] * len(x)
    mean, variance, count = 0.0, 1.0, 1e-4
    k = cesd.neighbours(len(x))
    for i in range(K):
        members = [b for b in range(len(x)) if cluster[b] == i]
        if len(members) <= k:
            continue
        nearest = np.array([sorted(np.linalg.norm(x[b] - x[c]) for c in members)[:k] for b in members])
        m, delta = nearest.size, nearest.mean() - mean
        mean += delta * m / (count + m)
        variance = (count * variance + m * nearest.var(ddof=1) + delta**2 * count * m / (count + m)) / (
            count + m
        )
        count += m
        foreign = sum(skill[b] != i for b in members)
        for b, distances in zip(members, nearest, strict=True):
            scaled = [max(d / variance - config.particle_clip, 0.0) for d in distances]
            paid[b] = (np.log(1 + np.mean(scaled)), config.alpha / (1 + foreign))
    return paid


# --- the two parts of the bonus -------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1.0, 0.1])
def test_bonus_is_that_of_loops_over_clusters_in_the_order_of_their_number(alpha: float) -> None:
    for seed in range(5):
        cesd, x, rng = small_cesd(alpha=alpha), rows(50, seed), np.random.default_rng(seed)
        cluster, skill = rng.choice(K, 50, p=[0.5, 0.06, 0.3, 0.14]), rng.integers(K, size=50)
        found = cesd.pay(x, torch.from_numpy(cluster), torch.from_numpy(skill))
        expected = np.array(loop_bonus(cesd, x.double().numpy(), cluster, skill))
        assert np.allclose(found.entropy.numpy(), expected[:, 0], atol=1e-5)
        assert np.allclose(found.constraint.numpy(), expected[:, 1], atol=1e-7)
        assert found.sizes == np.bincount(cluster, minlength=K).tolist()


def test_order_of_the_states_does_not_matter() -> None:
    x, cluster, skill = rows(40), torch.arange(40) % K, torch.arange(40) % 3
    order = torch.randperm(40, generator=generator())
    plain, shuffled = (
        small_cesd().pay(x, cluster, skill),
        small_cesd().pay(x[order], cluster[order], skill[order]),
    )
    assert torch.allclose(shuffled.entropy, plain.entropy[order], atol=1e-5)
    assert torch.equal(shuffled.constraint, plain.constraint[order])


def test_entropy_is_that_of_the_raw_embedding_and_of_the_own_cluster_alone() -> None:
    x, cluster, skill = rows(40), torch.arange(40) % 2, torch.zeros(40, dtype=torch.int64)
    alone = small_cesd().pay(x, cluster, skill).entropy
    later = torch.where((cluster == 1).unsqueeze(1), 5.0 + x, x)  # cluster 1 comes after cluster 0
    assert torch.equal(small_cesd().pay(later, cluster, skill).entropy[cluster == 0], alone[cluster == 0])
    lengths = small_cesd().pay(x * (1.0 + torch.arange(40.0)).unsqueeze(1), cluster, skill).entropy
    assert not torch.allclose(lengths, alone, atol=1e-2)


@pytest.mark.parametrize(("foreign", "expected"), [(0, 1.0), (9, 0.1), (1, 0.5)])
def test_constraint_is_alpha_over_one_plus_visits_of_other_skills(foreign: int, expected: float) -> None:
    skill = torch.full((20,), 2)
    skill[:foreign] = 0
    for alpha in (1.0, 0.1):
        paid = small_cesd(alpha=alpha).pay(rows(20), torch.full((20,), 2), skill).constraint
        assert paid.tolist() == pytest.approx([alpha * expected] * 20)


def test_one_foreign_visit_less_raises_the_constraint_of_its_cluster_alone() -> None:
    cluster, skill = torch.arange(40) % 2, torch.full((40,), 3)
    before = small_cesd().pay(rows(40), cluster, skill).constraint
    skill[0] = 0  # a state of cluster 0
    after = small_cesd().pay(rows(40), cluster, skill).constraint
    assert bool((after[cluster == 0] > before[cluster == 0]).all())
    assert torch.equal(after[cluster == 1], before[cluster == 1])


@pytest.mark.parametrize("size", [15, 16, 17, 18])
def test_clusters_of_sixteen_or_fewer_are_paid_nothing(size: int) -> None:
    cesd = small_cesd(neighbours=16)
    cluster = torch.cat([torch.zeros(size), torch.ones(40)]).long()
    paid = cesd.pay(rows(size + 40), cluster, torch.zeros(size + 40).long())
    bonus = paid.entropy + paid.constraint
    assert bool((bonus[:size] > 0).all() if size > 16 else (bonus[:size] == 0).all())
    assert bool((bonus[size:] > 0).all())
    counted = 16 * (40 + (size if size > 16 else 0))
    assert float(cesd.entropy.moments.count) == pytest.approx(counted + 1e-4)


@pytest.mark.parametrize("size", [1, 2, 16])
def test_small_clusters_may_be_paid_with_the_neighbours_that_they_have(size: int) -> None:
    cesd = small_cesd(neighbours=16, small_cluster="adaptive_k")
    paid = cesd.pay(rows(size), torch.full((size,), 1), torch.zeros(size).long())
    assert paid.constraint.tolist() == pytest.approx([1 / (1 + size)] * size)
    assert bool((paid.entropy > 0).all()) == (size > 1)
    assert float(cesd.entropy.moments.count) == pytest.approx(1e-4 + (size * size if size > 1 else 0))


@pytest.mark.parametrize(
    ("skills", "size", "k"), [(16, 1024, 16), (16, 256, 4), (8, 256, 8), (16, 64, 2), (16, 10, 2)]
)
def test_neighbours_keep_their_share_of_the_mean_cluster(skills: int, size: int, k: int) -> None:
    assert Cesd(CesdConfig(skills=skills, hidden=8), SHAPES, gamma=0.9, n_step=1).neighbours(size) == k
    assert small_cesd(neighbours=7).neighbours(size) == 7


# --- clusters ---------------------------------------------------------------------------------------------------


def test_clusters_are_drawn_by_the_softmax_of_cosines_with_unit_prototypes() -> None:
    cesd, x = small_cesd(), rows(1)
    with torch.no_grad():
        cesd.prototypes.mul_(torch.tensor([[1.0], [5.0], [0.2], [2.0]]))
    directions = cesd.prototypes.detach().double().numpy()
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    logits = directions @ (x[0].double().numpy() / np.linalg.norm(x[0].double().numpy())) / 0.1
    chances = np.exp(logits) / np.exp(logits).sum()
    for length in (1.0, 30.0):
        drawn = cesd.assign(length * x.expand(20_000, -1), generator())
        assert drawn.shape == (20_000,) and drawn.dtype == torch.int64
        assert np.allclose(np.bincount(drawn.numpy(), minlength=K) / 20_000, chances, atol=0.015)


def test_clusters_may_be_the_nearest_prototypes() -> None:
    cesd, x = small_cesd(assign="argmax"), rows(50)
    nearest = (F.normalize(x, dim=1) @ cesd.prototypes.T).argmax(1)
    rng = generator()
    state = rng.get_state()
    assert torch.equal(cesd.assign(x, rng), nearest) and torch.equal(rng.get_state(), state)
    assert not torch.equal(small_cesd().assign(x, rng), nearest)


def test_every_window_falls_to_one_cluster_that_its_end_decides() -> None:
    cesd, windows = small_cesd(assign="argmax"), batch()
    paid = cesd.reward(windows, policy, generator())
    assert paid.member is not None and paid.member.shape == (64,) and paid.next_skill is None
    assert bool(((paid.member >= 0) & (paid.member < K)).all())
    assert torch.equal(paid.member, cesd.assign(cesd.contrast.state(windows.next_obs), generator()))
    starts = cesd.reward(windows._replace(obs=windows.obs.flip(0)), policy, generator())
    assert starts.member is not None and torch.equal(starts.member, paid.member)
    mask = F.one_hot(paid.member, K)
    assert mask.sum(1).tolist() == [1] * 64 and float(paid.metrics["cluster_max"]) == int(mask.sum(0).max())


def test_bonus_reads_skills_through_the_constraint_alone() -> None:
    windows = batch()
    paid = small_cesd().reward(windows, policy, generator())
    other = small_cesd().reward(windows._replace(skill=windows.skill.roll(1, 1)), policy, generator())
    assert torch.equal(paid.metrics["entropy_mean"], other.metrics["entropy_mean"])
    assert not torch.equal(paid.bonus, other.bonus)
    assert paid.member is not None and other.member is not None and torch.equal(paid.member, other.member)


# --- prototypes -------------------------------------------------------------------------------------------------


def test_prototypes_start_orthonormal_and_are_of_unit_length_whenever_they_are_used() -> None:
    cesd = small_cesd()
    assert torch.allclose(cesd.prototypes @ cesd.prototypes.T, torch.eye(K), atol=1e-6)
    adam = torch.optim.Adam([cesd.prototypes], 0.1)
    for seed in range(5):
        loss = cesd.after_step(batch(seed), policy, generator())
        assert torch.allclose(cesd.prototypes.norm(dim=1), torch.ones(K), atol=1e-6)
        adam.zero_grad()
        loss.backward()
        adam.step()
        assert not torch.allclose(cesd.prototypes.norm(dim=1), torch.ones(K), atol=1e-4)


def test_prototypes_predict_the_balanced_clusters_of_the_end_from_the_start() -> None:
    cesd, windows = small_cesd(sinkhorn_iterations=3), batch()
    loss = cesd.after_step(windows, policy, generator())
    start, end = (
        F.normalize(cesd.contrast.state(o), dim=1).detach() for o in (windows.obs, windows.next_obs)
    )
    prototypes = cesd.prototypes.detach().clone().requires_grad_()
    target = sinkhorn((end @ prototypes.T).detach(), 0.1, 3)
    expected = -(target * torch.log_softmax(start @ prototypes.T / 0.1, 1)).sum() / 64
    assert torch.allclose(loss, expected)
    loss.backward()
    expected.backward()
    assert cesd.prototypes.grad is not None and prototypes.grad is not None
    assert torch.allclose(cesd.prototypes.grad, prototypes.grad, atol=1e-6)
    radial = (cesd.prototypes.grad * cesd.prototypes).sum(1)
    assert bool((radial.abs() > 1e-3).any()), "the gradient is not projected onto the sphere"


def test_prototypes_alone_learn_from_the_closing_loss() -> None:
    cesd = small_cesd()
    cesd.after_step(batch(), policy, generator()).backward()
    assert all(p.grad is None for p in cesd.contrast.parameters())
    cesd.prototypes.grad = None
    cesd.loss(batch(), policy, generator())[0].backward()
    assert cesd.prototypes.grad is None
    assert all(p.grad is not None and bool(p.grad.any()) for p in cesd.contrast.parameters())


def test_prototypes_balance_clusters_that_start_apart() -> None:
    cesd = small_cesd(prototype_lr=0.03)
    adam = torch.optim.Adam([cesd.prototypes], 0.03)
    windows = batch(size=256)

    def entropy() -> float:
        x = cesd.contrast.state(windows.next_obs).detach()
        share = torch.softmax(
            F.normalize(x, dim=1) @ F.normalize(cesd.prototypes.detach(), dim=1).T / 0.1, 1
        ).mean(0)
        return float(-(share * share.log()).sum())

    before = entropy()
    for _ in range(100):
        adam.zero_grad()
        cesd.after_step(windows, policy, generator()).backward()
        adam.step()
    assert entropy() > before + 0.1


# --- critic and actor -------------------------------------------------------------------------------------------


def backbone(init: str = "fan_in") -> Backbone:
    with initialised_from(1):
        build = small_cesd(head_init=init).traits.critic
        return Backbone(
            BackboneConfig(batch_size=64, width=16, gamma=0.97), SHAPES._replace(skill=K), build_critic=build
        )


def set_constants(critic: Any, levels: Tensor) -> None:
    """Let each member's two heads answer with constants, [K, 2]."""
    with torch.no_grad():
        critic.value_weight.zero_()
        critic.value_bias.copy_(levels)


def head_gradients(learner: Backbone) -> Tensor:
    """All gradients of each member's heads side by side, [K, ...]."""
    critic: Any = learner.critic
    heads = (critic.hidden_weight, critic.hidden_bias, critic.value_weight, critic.value_bias)
    return torch.cat([p.grad.flatten(1) for p in heads], 1)


def test_critic_loss_is_the_mean_over_members_and_rows() -> None:
    learner, windows = backbone(), batch()
    member = torch.arange(64) % 3
    reward = torch.rand(64, 1, generator=generator())
    loss, _ = learner.critic_loss(windows, reward, generator(3), member)
    total = 0.0
    with torch.no_grad():
        x, next_x = (torch.cat([o, windows.skill], 1) for o in (windows.obs, windows.next_obs))
        action = learner.sample_action(next_x, generator(3))
        for i in range(K):
            every = torch.full((64,), i)
            y = reward + 0.97**3 * learner.target_critic(next_x, action, every).amin(1, keepdim=True)
            q = learner.critic(x, windows.action, every)
            total += float((q - y).square().sum(1)[member == i].sum())
    assert float(loss.detach()) == pytest.approx(total / (K * 64), rel=1e-5)


def test_actor_loss_is_judged_by_the_member_of_the_replayed_skill() -> None:
    learner, windows = backbone(), batch()
    loss, _ = learner.actor_loss(windows, generator(3))
    with torch.no_grad():
        x = torch.cat([windows.obs, windows.skill], 1)
        action = learner.sample_action(x, generator(3))
        every = torch.stack([learner.critic(x, action, torch.full((64,), i)).amin(1) for i in range(K)], 1)
        expected = -float((every * windows.skill).sum()) / (K * 64)
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-5)


def test_actor_s_gradient_through_a_row_depends_on_its_skill_s_heads_alone() -> None:
    windows = batch()._replace(skill=torch.eye(K)[torch.full((64,), 2)])

    def gradient(changed_member: int | None) -> Tensor:
        learner = backbone()
        critic: Any = learner.critic
        if changed_member is not None:
            with torch.no_grad():
                critic.hidden_weight[changed_member] *= -2.0
        learner.actor_loss(windows, generator(3))[0].backward()
        return torch.cat([p.grad.flatten() for p in learner.actor.parameters() if p.grad is not None])

    plain = gradient(None)
    assert bool(plain.any())
    for i in range(K):
        assert torch.equal(gradient(i), plain) == (i != 2)


def test_heads_learn_from_their_cluster_alone() -> None:
    windows, member = batch(), torch.arange(64) % 3  # member 3 has no rows
    reward = torch.rand(64, 1, generator=generator())

    def gradients(windows: Batch) -> Tensor:
        learner = backbone()
        learner.critic_loss(windows, reward, generator(3), member)[0].backward()
        return head_gradients(learner)

    before = gradients(windows)
    assert not before[3].any() and all(bool(before[i].any()) for i in range(3))
    outside = (member != 1).unsqueeze(1)
    after = gradients(windows._replace(
        obs=torch.where(outside, windows.obs + 1, windows.obs),
        next_obs=torch.where(outside, windows.next_obs - 1, windows.next_obs),
        skill=torch.where(outside, windows.skill.roll(1, 1), windows.skill),
    ))  # fmt: skip
    assert torch.equal(after[1], before[1])
    assert not torch.allclose(after[0], before[0]) and not torch.allclose(after[2], before[2])


def test_smaller_value_is_that_of_the_same_member() -> None:
    learner, windows = backbone(), batch()
    levels = torch.tensor([[1.0, 3.0], [-100.0, -90.0], [60.0, 50.0], [7.0, 7.0]])
    for critic in (learner.critic, learner.target_critic):
        set_constants(critic, levels)
    member = torch.arange(64) % K
    _, metrics = learner.critic_loss(windows, torch.ones(64, 1), generator(), member)
    assert float(metrics["q_target"]) == pytest.approx(1 + 0.97**3 * float(levels.amin(1).mean()), rel=1e-5)
    loss, _ = learner.actor_loss(windows, generator())
    expected = -float((windows.skill @ levels.amin(1)).mean()) / K
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("rule", ["replay", "cluster"])
def test_target_s_action_is_of_the_skill_and_its_member_of_the_cluster(rule: str) -> None:
    cesd, windows, learner = small_cesd(target_skill=rule), batch(), backbone()
    paid = cesd.reward(windows, policy, generator())
    assert paid.member is not None
    handed: list[tuple[Tensor, Tensor]] = []
    learner.target_critic.register_forward_hook(
        lambda module, given, values: handed.append((given[1], given[2]))
    )
    for skill in (windows.skill, windows.skill.roll(1, 1)):
        learner.critic_loss(
            windows._replace(skill=skill), paid.bonus, generator(3), paid.member, paid.next_skill
        )
    (action, member), (other_action, other_member) = handed
    assert torch.equal(member, paid.member) and torch.equal(other_member, paid.member)
    assert torch.equal(action, other_action) == (rule == "cluster")
    skill = windows.skill if rule == "replay" else torch.eye(K)[paid.member]
    x = torch.cat([windows.next_obs, skill], 1)
    assert torch.equal(action, learner.sample_action(x, generator(3)))


def test_critic_and_actor_leave_embeddings_and_prototypes_alone() -> None:
    cesd, windows, learner = small_cesd(), batch(), backbone()
    paid = cesd.reward(windows, policy, generator())
    assert not paid.bonus.requires_grad
    learner.critic_loss(windows, paid.bonus, generator(), paid.member)[0].backward()
    learner.actor_loss(windows, generator())[0].backward()
    assert all(p.grad is None for p in cesd.parameters())


@pytest.mark.parametrize(("init", "low", "high"), [("official", 0.8, 1.0), ("fan_in", 0.15, 0.25)])
def test_head_init_reaches_the_critic(init: str, low: float, high: float) -> None:
    assert low < float(backbone(init).critic.get_parameter("value_weight").detach().abs().max()) <= high


# --- whole updates ----------------------------------------------------------------------------------------------


def test_parts_of_an_update_keep_to_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = small_agent("cesd")
    explorer: Any = agent.explorer
    seen: list[tuple[str, dict[str, Tensor]]] = []
    for owner, name in ((explorer, "loss"), (explorer, "reward"), (agent.backbone, "critic_loss"),
                        (agent.backbone, "actor_loss"), (explorer, "after_step")):  # fmt: skip
        inner = getattr(owner, name)

        def spy(*given: Any, _inner: Any = inner, _name: str = name) -> Any:
            seen.append((_name, snapshot(explorer) | snapshot(agent.backbone)))
            return _inner(*given)

        monkeypatch.setattr(owner, name, spy)
    agent.update(batch_for(agent, 0), 0)
    seen.append(("end", snapshot(explorer) | snapshot(agent.backbone)))
    moved = [
        (name, {path.split(".")[0] for path in changed(before, after)})
        for (name, before), (_, after) in zip(seen, seen[1:], strict=False)
    ]
    assert moved == [
        ("loss", {"contrast"}),
        ("reward", {"entropy"}),
        ("critic_loss", {"critic"}),
        ("actor_loss", {"actor", "target_critic"}),
        ("after_step", {"prototypes"}),
    ]


def test_what_the_task_asks_to_see_is_logged() -> None:
    agent = small_agent("cesd", neighbours=3)
    metrics = agent.update(batch_for(agent, 0), 0)
    sizes = {
        name: float(metrics[name]) for name in ("cluster_min", "cluster_max", "clusters_paid", "unpaid_share")
    }
    assert 0 <= sizes["cluster_min"] <= 2 <= sizes["cluster_max"] <= 32
    assert 1 <= sizes["clusters_paid"] <= 8 and 0 < sizes["unpaid_share"] < 1
    parts = float(metrics["entropy_mean"]) + float(metrics["constraint_mean"])
    assert parts == pytest.approx(float(metrics["bonus_mean"]), rel=1e-5)
    assert float(metrics["bonus_min"]) == 0 < float(metrics["bonus_mean"]) < float(metrics["bonus_max"])
    assert {"contrast_loss", "closing_loss", "particle_variance"} <= metrics.keys()


def test_embeddings_and_prototypes_step_once_at_rates_of_their_own() -> None:
    agent = small_agent("cesd", contrast_lr=0.02, prototype_lr=0.03)
    explorer: Any = agent.explorer
    before = snapshot(explorer)
    agent.update(batch_for(agent, 0), 0)
    moved = {name: float((value - before[name]).abs().max()) for name, value in snapshot(explorer).items()}
    assert moved["contrast.state.last.weight"] == pytest.approx(0.02, rel=0.01)
    assert moved["prototypes"] == pytest.approx(0.03, rel=0.01)


def test_each_skill_learns_what_its_own_member_is_paid_for() -> None:
    learner = backbone()
    ways = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    critic_adam = torch.optim.Adam(learner.critic_parameters(), 3e-3)
    actor_adam = torch.optim.Adam(learner.actor.parameters(), 3e-3)
    rng = generator()
    for seed in range(150):
        windows = batch(seed)._replace(discount=torch.zeros(64, 1))
        member = torch.randint(K, (64,), generator=rng)  # whatever skill came there
        reward = (windows.action * ways[member]).sum(1, keepdim=True)
        descend(learner.critic_loss(windows, reward, rng, member)[0], critic_adam)
        descend(learner.actor_loss(windows, rng)[0], actor_adam)
    with torch.no_grad():
        actions = learner.actor(torch.cat([torch.zeros(K, 2), torch.eye(K)], 1))
    assert torch.equal(actions.sign(), ways) and float(actions.abs().min()) > 0.5


def test_other_skills_give_other_actions() -> None:
    agent = small_agent("cesd")
    obs, skills = torch.randn(16, 2, generator=generator()), torch.eye(16)
    apart = agent.policy(obs, skills, None) - agent.policy(obs, skills.roll(1, 0), None)
    assert float(apart.abs().amax(1).min()) > 1e-3


@pytest.mark.parametrize(
    "name",
    [
        "skills",
        "skill_period",
        "hidden",
        "contrast_lr",
        "temperature",
        "prototype_lr",
        "prototype_temperature",
        "neighbours",
    ],
)
def test_values_that_cannot_work_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: must be above 0, got 0$"):
        CesdConfig(**dict[str, Any]({name: 0}))


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("head_init", "official, fan_in"),
        ("knn_norm", "variance, std"),
        ("small_cluster", "zero, adaptive_k"),
        ("cpc_offset", "official, none"),
        ("target_skill", "replay, cluster"),
        ("assign", "sample, argmax"),
    ],
)
def test_words_that_mean_nothing_are_refused(name: str, choices: str) -> None:
    wrong: dict[str, Any] = {name: "no"}
    with pytest.raises(ValueError, match=rf"^{name}: must be one of {choices}, got 'no'$"):
        CesdConfig(**wrong)
