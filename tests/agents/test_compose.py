from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from agent_setup import SHAPES, agent, generator, random_batch, values_of
from torch import Tensor, nn

from teb.agents.compose import ComposedAgent
from teb.agents.descent import descend
from teb.agents.protocol import Batch, Metrics, Paid, Policy, Runtime, Shapes, Skills, Traits
from teb.agents.registry import AGENTS
from teb.explorers import REGISTRY

NO_SKILL = np.zeros(0, np.float32)


def moved(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    return {name for name, value in before.items() if not torch.equal(value, after[name])}


# --- descend ------------------------------------------------------------------------------------------------


def test_descend_steps_its_own_parameters_and_leaves_no_gradient_on_others() -> None:
    own, other = nn.Linear(3, 3), nn.Linear(3, 3)
    before = values_of(other)
    optimiser = torch.optim.SGD(own.parameters(), lr=0.1)
    start = values_of(own)
    descend(other(own(torch.ones(2, 3))).square().sum(), optimiser)
    assert moved(start, values_of(own)) == {"weight", "bias"}
    assert not moved(before, values_of(other))
    assert all(p.grad is None for p in other.parameters())


def test_descend_forgets_the_gradient_of_the_step_before() -> None:
    weight = nn.Parameter(torch.zeros(2))
    optimiser = torch.optim.SGD([weight], lr=1.0)
    for _ in range(3):
        descend((weight * torch.tensor([1.0, 2.0])).sum(), optimiser)
    assert weight.tolist() == pytest.approx([-3.0, -6.0])


@pytest.mark.parametrize(("limit", "length"), [(0.0, 50.0), (5.0, 5.0), (100.0, 50.0)])
def test_descend_clips_the_norm_over_all_parameters_if_there_is_a_limit(limit: float, length: float) -> None:
    weights = [nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))]
    descend(30 * weights[0].sum() + 40 * weights[1].sum(), torch.optim.SGD(weights, lr=1.0), limit)
    step = torch.cat([w.detach() for w in weights])
    assert float(step.norm()) == pytest.approx(length, rel=1e-4)
    assert (step / step.norm()).tolist() == pytest.approx([-0.6, -0.8], rel=1e-4)


# --- an explorer that writes down what it is asked ----------------------------------------------------------


class Recorder(nn.Module):
    """Pays its one parameter as the bonus and records the order of the calls."""

    traits = Traits(eta=2.0, horizon=5, grad_clip=0.5)

    def __init__(self, shapes: Shapes, *, gamma: float, n_step: int, compute: torch.dtype) -> None:
        super().__init__()
        self.told = (shapes, gamma, n_step)
        self.level = nn.Parameter(torch.zeros(()))
        self.calls: list[str] = []

    def parameter_groups(self) -> list[dict[str, Any]]:
        return [{"params": [self.level], "lr": 0.1}]

    def loss(self, batch: Batch, policy: Policy, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        self.calls.append("loss")
        return -1e3 * self.level, {"level": self.level.detach().clone()}

    def reward(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Paid:
        self.calls.append("reward")
        return Paid(self.level.detach().expand(len(batch.obs), 1), {"paid": self.level.detach().clone()})

    def after_step(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Tensor | None:
        self.calls.append("after_step")
        self.asked = policy(batch.obs, batch.skill, None)


def test_update_runs_explorer_reward_critic_actor_targets_and_after_step_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner = agent(build=Recorder, tau=0.3)
    explorer: Any = learner.explorer
    for name in ("critic_loss", "actor_loss", "follow"):
        inner = getattr(learner.backbone, name)

        def spy(*arguments: Any, _inner: Any = inner, _name: str = name) -> Any:
            explorer.calls.append(_name)
            return _inner(*arguments)

        monkeypatch.setattr(learner.backbone, name, spy)
    old_target = values_of(learner.backbone.target_critic)
    batch = random_batch(reward=1.0)
    metrics = learner.update(batch, 0)
    assert explorer.calls == ["loss", "reward", "critic_loss", "actor_loss", "follow", "after_step"]
    # Adam's first step is of the size of its rate; the bonus is that of the explorer after its step.
    assert float(metrics["level"]) == 0.0
    assert float(metrics["paid"]) == pytest.approx(0.1, rel=1e-4)
    # The target follows the critic as it is after its step.
    for name, parameter in learner.backbone.critic.named_parameters():
        expected = 0.7 * old_target[name] + 0.3 * parameter
        assert torch.allclose(learner.backbone.target_critic.get_parameter(name), expected, atol=1e-6)
    # Explorers are asked last with the actor as it is after its step.
    assert torch.equal(explorer.asked, learner.backbone.actor(batch.obs))
    assert {"explorer_loss", "critic_loss", "actor_loss", "q_mean", "q_target"} <= metrics.keys()


def test_critic_gets_reward_plus_eta_times_bonus(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = agent(build=Recorder)
    handed: list[Tensor] = []
    critic_loss = learner.backbone.critic_loss

    def spy(batch: Batch, reward: Tensor, *others: Any) -> Any:
        handed.append(reward)
        return critic_loss(batch, reward, *others)

    monkeypatch.setattr(learner.backbone, "critic_loss", spy)
    batch = random_batch()
    learner.update(batch, 0)
    assert torch.allclose(handed[0], batch.reward + 2.0 * 0.1, atol=1e-5)


def test_gradient_of_the_explorer_is_clipped_at_the_norm_that_it_states() -> None:
    learner = agent(build=Recorder)
    explorer: Any = learner.explorer
    learner.update(random_batch(), 0)
    assert float(explorer.level.grad) == pytest.approx(-0.5, rel=1e-4)  # of -1000


def test_explorer_is_told_the_shapes_and_asks_for_its_horizon() -> None:
    learner = agent(build=Recorder, n_step=4, gamma=0.9)
    explorer: Any = learner.explorer
    assert explorer.told == (SHAPES, 0.9, 4)
    assert learner.sampling == (16, 4, 5, 0.9)


def test_explorer_may_insist_on_a_window() -> None:
    class Short(Recorder):
        traits = Traits(n_step=1)

    assert agent(build=Short).sampling == (16, 1, 1, 0.97)


def test_explorer_learns_from_each_of_its_batches_and_the_critic_from_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Greedy(Recorder):
        traits = Traits(batches=3)
        seen: list[Tensor]

        def loss(self, batch: Batch, policy: Policy, rng: torch.Generator) -> tuple[Tensor, Metrics]:
            self.seen = [*getattr(self, "seen", []), batch.obs]
            return super().loss(batch, policy, rng)

    learner = agent(build=Greedy)
    assert learner.sampling is not None and learner.sampling.batch_size == 48
    batch = random_batch(size=48)
    handed: list[Batch] = []
    critic_loss = learner.backbone.critic_loss

    def spy(batch: Batch, *others: Any) -> Any:
        handed.append(batch)
        return critic_loss(batch, *others)

    monkeypatch.setattr(learner.backbone, "critic_loss", spy)
    learner.update(batch, 0)
    explorer: Any = learner.explorer
    assert explorer.calls == ["loss", "loss", "loss", "reward", "after_step"]
    assert torch.equal(torch.cat(explorer.seen), batch.obs)
    assert torch.equal(handed[0].obs, batch.obs[32:])


def test_explorer_may_pay_before_it_learns() -> None:
    class Early(Recorder):
        traits = Traits(pays_first=True)

    learner = agent(build=Early)
    explorer: Any = learner.explorer
    metrics = learner.update(random_batch(), 0)
    assert explorer.calls == ["reward", "loss", "after_step"]
    assert float(metrics["paid"]) == 0.0


def test_explorer_may_close_the_update_with_a_further_loss() -> None:
    class Closing(Recorder):
        def __init__(self, shapes: Shapes, **terms: Any) -> None:
            super().__init__(shapes, **terms)
            self.late = nn.Parameter(torch.zeros(()))

        def parameter_groups(self) -> list[dict[str, Any]]:
            return [{"params": [self.level, self.late], "lr": 0.1}]

        def after_step(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Tensor:
            self.calls.append("after_step")
            assert float(self.level.detach()) != 0.0 and float(self.late.detach()) == 0.0
            return 5.0 * self.late

    learner = agent(build=Closing)
    explorer: Any = learner.explorer
    metrics = learner.update(random_batch(), 0)
    assert float(explorer.late.detach()) == pytest.approx(-0.1, rel=1e-4)
    assert float(explorer.level.detach()) == pytest.approx(0.1, rel=1e-4), "stepped once, by its own loss"
    assert float(metrics["closing_loss"]) == 0.0


def test_payments_for_single_steps_are_summed_with_discount(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stepwise(Recorder):
        traits = Traits(per_step=True)

        def reward(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Paid:
            return Paid(batch.next_obs[:, :1] - batch.obs[:, :1], {})

    learner, batch = agent(build=Stepwise, gamma=0.9), random_batch(n=3, gamma=0.9)
    x = batch.window_obs[:, :, :1]
    expected = sum(0.9**i * (x[:, i + 1] - x[:, i]) for i in range(3))
    assert torch.allclose(learner.pay(batch).bonus, torch.as_tensor(expected), atol=1e-6)


def test_without_weight_the_task_s_reward_is_not_read() -> None:
    for weight, same in ((0.0, True), (1.0, False)):
        targets = []
        for scale in (1.0, 100.0):
            learner, batch = agent(task_reward=weight), random_batch()
            metrics = learner.update(
                batch._replace(reward=batch.reward * scale, rewards=batch.rewards * scale), 0
            )
            targets.append(float(metrics["q_target"]))
        assert (targets[0] == targets[1]) == same


def test_members_and_next_skills_that_an_explorer_names_reach_the_critic() -> None:
    class Members(nn.Module):
        """Values are constants by member; member -1 is what the skill says."""

        loss_scale = 0.5

        def __init__(self) -> None:
            super().__init__()
            self.level = nn.Parameter(torch.tensor([1.0, 10.0]))
            self.asked: list[Tensor | None] = []

        def forward(self, x: Tensor, action: Tensor, member: Tensor | None = None) -> Tensor:
            self.asked.append(member)
            chosen = x[:, -2:].argmax(1) if member is None else member
            return self.level[chosen].unsqueeze(1).expand(-1, 2)

    member = torch.tensor([0, 1] * 8)
    next_skill = torch.tensor([[1.0, 0.0]]).expand(16, 2)

    class Ensemble(Recorder):
        traits = Traits(skills=Skills(2), critic=lambda shapes, width, compute: Members())

        def reward(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Paid:
            return Paid(torch.zeros(16, 1), {}, member, next_skill)

    learner, batch = agent(build=Ensemble, gamma=0.5), random_batch(skill=2, reward=0.0, gamma=0.5)
    metrics = learner.update(batch, 0)
    assert float(metrics["q_target"]) == pytest.approx(0.125 * (1 + 10) / 2)
    expected = 0.5 * 2 * ((1 - 0.125) ** 2 + (10 - 1.25) ** 2) / 2
    assert float(metrics["critic_loss"]) == pytest.approx(expected, rel=1e-5)
    critic: Any = learner.backbone.critic
    assert [asked is None for asked in critic.asked] == [False, True]


def test_update_moves_every_part_of_the_backbone() -> None:
    learner = agent()
    before = values_of(learner.backbone)
    learner.update(random_batch(), 0)
    assert moved(before, values_of(learner.backbone)) == set(before)


def test_rates_of_the_optimisers_come_from_the_configuration() -> None:
    learner = agent(lr=0.0123)
    before = values_of(learner.backbone)
    learner.update(random_batch(), 0)
    after = values_of(learner.backbone)
    for name in ("actor.mean.weight", "critic.value2.weight"):
        assert float((after[name] - before[name]).abs().max()) == pytest.approx(0.0123, rel=0.01)


# --- acting -------------------------------------------------------------------------------------------------


def test_evaluation_is_the_mean_action_and_draws_nothing() -> None:
    learner, twin = agent(), agent()
    obs = np.array([0.4, -1.2], np.float32)
    mean = learner.backbone.actor(torch.from_numpy(obs)[None]).detach().numpy()[0]
    state = learner.acting.get_state()
    for _ in range(3):
        action = learner.act(obs, NO_SKILL, 0, explore=False)
        assert np.array_equal(action, mean)
        assert action.dtype == np.float32 and action.shape == (2,)
    assert torch.equal(learner.acting.get_state(), state)
    assert np.array_equal(
        learner.act(obs, NO_SKILL, 0, explore=True), twin.act(obs, NO_SKILL, 0, explore=True)
    )


def test_acting_noise_is_not_clipped_and_has_the_configured_deviation() -> None:
    learner = agent(noise=0.2)
    obs = np.zeros(2, np.float32)  # an untrained actor answers the origin with 0
    actions = np.array([learner.act(obs, NO_SKILL, 0, explore=True) for _ in range(1500)])
    assert actions.std() == pytest.approx(0.2, rel=0.06)
    assert (np.abs(actions) > 0.3).mean() == pytest.approx(0.1336, abs=0.03)  # 2 (1 - Phi(1.5))
    with torch.no_grad():
        x = torch.zeros(1500, 2)
        update = learner.policy(x, x[:, :0], generator())
    assert float(update.abs().max()) <= float(torch.tensor(0.3))


def test_actions_stay_inside_the_box_even_with_much_noise() -> None:
    learner = agent(noise=5.0)
    actions = np.array([learner.act(np.ones(2, np.float32), NO_SKILL, 0, explore=True) for _ in range(100)])
    assert np.abs(actions).max() < 1.0


def test_acting_does_not_disturb_learning() -> None:
    acted, still = agent(), agent()
    for seed in range(3):
        acted.act(np.zeros(2, np.float32), NO_SKILL, 0, explore=True)
        for learner in (acted, still):
            learner.update(random_batch(seed), 0)
    assert not moved(values_of(acted.backbone), values_of(still.backbone))


def test_skill_reaches_the_actor() -> None:
    class Skilled(Recorder):
        traits = Traits(skills=Skills(3))

    learner = agent(build=Skilled)
    obs, skill = np.ones(2, np.float32), np.array([1, 0, 0], np.float32)
    expected = (
        learner.backbone.actor(torch.from_numpy(np.concatenate([obs, skill]))[None]).detach().numpy()[0]
    )
    assert np.array_equal(learner.act(obs, skill, 0, explore=False), expected)
    assert not np.array_equal(learner.act(obs, skill[::-1].copy(), 0, explore=False), expected)
    learner.update(random_batch(skill=3), 0)


def test_policy_for_explorers_has_no_gradient_and_draws_only_with_a_generator() -> None:
    learner, batch = agent(), random_batch()
    mean = learner.policy(batch.obs, batch.skill, None)
    assert not mean.requires_grad
    assert torch.equal(mean, learner.backbone.actor(batch.obs))
    draw = learner.policy(batch.obs, batch.skill, generator())
    assert not draw.requires_grad and not torch.equal(draw, mean)
    assert float((draw - mean).abs().max()) <= 0.3 + 1e-6


# --- learning -----------------------------------------------------------------------------------------------


def test_critic_of_a_constant_reward_learns_the_geometric_sum() -> None:
    learner, metrics = agent(gamma=0.8, lr=5e-3, tau=0.5), dict[str, Tensor]()
    for seed in range(350):
        metrics = learner.update(random_batch(seed % 8, reward=1.0, gamma=0.8), 0)
    assert float(metrics["q_mean"]) == pytest.approx(1 / (1 - 0.8**3), rel=0.02)


def test_actor_climbs_toward_the_actions_that_are_paid() -> None:
    learner = agent(gamma=0.0, n_step=1, lr=5e-3)
    for seed in range(150):
        batch = random_batch(seed, n=1, gamma=0.0, size=64)
        learner.update(batch._replace(reward=batch.action[:, :1] - batch.action[:, 1:]), 0)
    obs = torch.randn(50, 2, generator=generator())
    actions = learner.policy(obs, obs[:, :0], None)
    assert bool((actions[:, 0] > 0.8).all()) and bool((actions[:, 1] < -0.8).all())


def test_learning_in_bfloat16_stays_near_that_in_float32() -> None:
    exact, rounded = agent(), agent(compute=torch.bfloat16)
    for seed in range(20):
        metrics = [learner.update(random_batch(seed), 0) for learner in (exact, rounded)]
        assert float(metrics[0]["q_mean"]) == pytest.approx(float(metrics[1]["q_mean"]), abs=0.05)
    assert all(p.dtype == torch.float32 and bool(p.isfinite().all()) for p in rounded.backbone.parameters())


# --- state --------------------------------------------------------------------------------------------------


def test_hyperparameters_come_from_the_configuration_and_not_from_the_checkpoint() -> None:
    first, other = agent(lr=1e-3), agent(lr=5e-3)
    first.update(random_batch(), 0)
    other.load(copy.deepcopy(first.state()))
    rates = {group["lr"] for optimiser in (other.critic_optimiser, other.actor_optimiser)
             for group in optimiser.param_groups}  # fmt: skip
    assert rates == {5e-3}
    before = values_of(other.backbone)
    assert not moved(before, values_of(first.backbone))


def test_every_generator_is_part_of_the_state() -> None:
    first, other = agent(seed=0), agent(seed=1)
    names = ("acting", "learning", "exploring")
    for name in names:
        torch.rand(7, generator=getattr(first, name))
    other.load(copy.deepcopy(first.state()))
    for name in names:
        expected, found = (torch.rand(4, generator=getattr(learner, name)) for learner in (first, other))
        assert torch.equal(found, expected), name


def test_generators_of_one_agent_differ_from_each_other() -> None:
    learner = agent()
    draws = [
        torch.rand(4, generator=g).tolist() for g in (learner.acting, learner.learning, learner.exploring)
    ]
    assert len({tuple(draw) for draw in draws}) == 3


# --- the registry -------------------------------------------------------------------------------------------


def test_every_explorer_is_an_agent_and_so_is_the_uniform_one() -> None:
    assert set(AGENTS) >= {*REGISTRY, "uniform"}


@pytest.mark.parametrize("name", AGENTS)
def test_agents_build_from_their_small_preset(name: str) -> None:
    spec = AGENTS[name]
    assert spec.presets.keys() == {"paper", "cpu"}
    built: Any = spec.build(spec.presets["cpu"], SHAPES, Runtime(0, torch.device("cpu"), torch.float32))
    skill = np.zeros(built.skills.width, np.float32)
    action = built.act(np.zeros(2, np.float32), skill, 0, explore=True)
    assert action.shape == (2,) and action.dtype == np.float32
    assert (built.sampling is None) == (name == "uniform")


def test_small_preset_trades_width_for_learning_rate() -> None:
    small, paper = AGENTS["teb"].presets["cpu"], AGENTS["teb"].presets["paper"]
    assert (small.backbone.width, small.backbone.lr) == (256, 4e-4)
    assert (paper.backbone.width, paper.backbone.lr) == (1024, 1e-4)
    assert small.backbone.width * small.backbone.lr == paper.backbone.width * paper.backbone.lr
    assert isinstance(
        AGENTS["teb"].build(small, SHAPES, Runtime(0, torch.device("cpu"), torch.float32)), ComposedAgent
    )
