"""Agents that see pictures: what is encoded when, who is trained by what, and in which order."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from pixel_setup import (
    ACTIONS,
    CPU,
    GAMMA,
    IMAGE,
    LATENT,
    SIDE,
    SIZE,
    STACK,
    composed,
    leaves,
    moved,
    parameters,
    parts_of,
    pixel_batch,
    small_learner,
    small_pixel_agent,
    steps_of,
)
from torch import Tensor, nn

from teb.agents import compose
from teb.agents.compose import ComposedAgent
from teb.agents.protocol import Batch, Metrics, Paid, Policy, Shapes, Skills, Traits
from teb.agents.registry import PIXEL_AGENTS
from teb.nets.actor_critic import noisy_action
from teb.nets.augment import shift_offsets, shifted
from teb.nets.encoder import ConvEncoder

NO_SKILL = np.zeros(0, np.float32)


# --- every agent by name ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PIXEL_AGENTS)
def test_every_agent_learns_from_pixels_and_stays_finite(name: str) -> None:
    if PIXEL_AGENTS[name].build is PIXEL_AGENTS["uniform"].build:
        return
    agent = small_learner(name)
    shape = {"n": agent.sampling.n_step, "size": agent.sampling.batch_size, "skill": agent.skills.width}
    for seed in range(3):
        metrics = agent.update(pixel_batch(seed, **shape), seed)
        assert all(bool(value.isfinite()) and not value.requires_grad for value in metrics.values()), metrics
    stack = np.zeros(IMAGE, np.uint8)
    action = agent.act(stack, np.zeros(agent.skills.width, np.float32), 0, explore=True)
    assert action.shape == (ACTIONS,) and action.dtype == np.float32 and np.isfinite(action).all()


@pytest.mark.parametrize(
    "name", ["teb", "drqv2", "teb-p+rep", "teb-no-rep", "drm", "ctrlsr", "rap", "dbc", "mico"]
)
def test_the_same_seed_gives_the_same_updates_bit_for_bit_and_a_state_carries_all_of_it(name: str) -> None:
    first, second = small_learner(name), small_learner(name)
    for seed in range(6):
        if seed == 3:
            fresh = small_learner(name, seed=9)
            fresh.load(copy.deepcopy(second.state()))
            second = fresh
        for agent in (first, second):
            agent.update(pixel_batch(seed), seed)
    one, other = leaves(first.state()), leaves(second.state())
    assert one.keys() == other.keys() and not moved(one, other)


# --- DrQ-v2 ---------------------------------------------------------------------------------------------------------


def test_each_step_moves_exactly_what_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = small_pixel_agent("drqv2")
    critic, actor = steps_of(agent, pixel_batch(), monkeypatch)
    names = {f"backbone.{name}" for name, _ in agent.backbone.named_parameters()}
    assert critic == {n for n in names if n.startswith(("backbone.encoder.", "backbone.critic."))}
    assert actor == {n for n in names if n.startswith("backbone.actor.")}
    assert {p.grad is None for p in agent.backbone.target_critic.parameters()} == {True}


def test_an_update_is_that_of_the_definition() -> None:
    agent = small_pixel_agent("drqv2", backbone={"noise": 0.2})
    batch = pixel_batch()
    shifting, noise = (torch.Generator().set_state(g.get_state()) for g in (agent.shifting, agent.learning))
    twin = copy.deepcopy(agent.backbone)
    images = [shifted(batch.window_obs[:, step], shift_offsets(SIZE, 2, shifting, CPU), 2) for step in (0, 3)]
    x, next_x = (twin.encoder(picture) for picture in images)
    with torch.no_grad():
        next_action = noisy_action(twin.actor(next_x), 0.2, noise, 0.3)
        y = batch.reward + GAMMA**3 * twin.target_critic(next_x, next_action).amin(-1, keepdim=True)
    q = twin.critic(x, batch.action)
    loss = (q[:, :1] - y).square().mean() + (q[:, 1:] - y).square().mean()
    optimisers = [torch.optim.Adam(part.parameters(), 1e-3) for part in (twin.encoder, twin.critic)]
    loss.backward()
    for optimiser in optimisers:
        optimiser.step()
    twin.zero_grad()
    action = noisy_action(twin.actor(x.detach()), 0.2, noise, 0.3)
    actor_loss = -twin.critic(x.detach(), action).amin(-1).mean()
    actor_loss.backward()
    torch.optim.Adam(twin.actor.parameters(), 1e-3).step()
    metrics = agent.update(batch, 0)
    assert float(metrics["critic_loss"]) == pytest.approx(float(loss.detach()), rel=1e-5)
    assert float(metrics["actor_loss"]) == pytest.approx(float(actor_loss.detach()), rel=1e-5)
    for part in ("encoder", "critic", "actor"):
        for name, p in getattr(agent.backbone, part).named_parameters():
            assert torch.allclose(p, getattr(twin, part).get_parameter(name), atol=2e-6), (part, name)


def test_the_two_observations_of_a_window_are_shifted_independently() -> None:
    agent = small_pixel_agent("drqv2")
    batch = pixel_batch()
    still = batch._replace(window_obs=batch.window_obs[:, :1].expand(-1, 4, -1, -1, -1))
    sight = agent.look(still)
    same = (sight.images[0] == sight.images[3]).flatten(1).all(1)
    assert not bool(same.all())
    content = batch.window_obs.clone()
    agent.update(batch, 0)
    assert torch.equal(batch.window_obs, content)


def test_a_picture_keeps_its_shift_while_the_encoder_moves() -> None:
    agent = small_pixel_agent("teb")
    sight = agent.look(pixel_batch())
    first, latent = sight.images[0].clone(), sight.features(0).detach().clone()
    with torch.no_grad():
        for p in agent.backbone.encoder.parameters():
            p.add_(0.01)
    assert torch.equal(sight.features(0), latent)
    sight.moved()
    assert torch.equal(sight.images[0], first) and not torch.equal(sight.features(0), latent)
    assert torch.equal(sight.features(0), agent.backbone.encoder(first))


def test_acting_and_evaluation_see_the_picture_unshifted() -> None:
    agent = small_pixel_agent("drqv2")
    stack = np.random.default_rng(0).integers(0, 256, IMAGE, dtype=np.uint8)
    states = [g.get_state() for g in agent._generators().values()]
    features = agent.backbone.encoder(torch.from_numpy(stack)[None])
    expected = agent.backbone.actor(features).detach().numpy()[0]
    for _ in range(2):
        assert np.array_equal(agent.act(stack, NO_SKILL, 0, explore=False), expected)
    assert all(
        torch.equal(g.get_state(), s) for g, s in zip(agent._generators().values(), states, strict=True)
    )


def test_noise_follows_its_schedule_when_acting_and_when_learning() -> None:
    agent = small_pixel_agent("drqv2", backbone={"noise": "linear(1.0,0.0,100)"})
    stack = np.zeros(IMAGE, np.uint8)
    mean = agent.act(stack, NO_SKILL, 0, explore=False)
    spread = {
        step: np.std([agent.act(stack, NO_SKILL, step, explore=True) - mean for _ in range(300)])
        for step in (0, 50, 100, 10**6)
    }
    assert spread[100] == spread[10**6] == 0.0
    assert 0.35 < spread[50] < 0.55 < 0.6 < spread[0]
    agent.update(pixel_batch(), 25)
    assert agent.backbone.sigma == pytest.approx(0.75)


def test_bfloat16_products_stay_near_float32() -> None:
    exact, rounded = (small_pixel_agent("drqv2", compute=d) for d in (torch.float32, torch.bfloat16))
    for seed in range(3):
        one, other = (agent.update(pixel_batch(seed), 0) for agent in (exact, rounded))
        assert float(one["q_mean"]) == pytest.approx(float(other["q_mean"]), abs=0.1)
    assert all(p.dtype == torch.float32 for p in rounded.backbone.parameters())


# --- TEB with no weight is DrQ-v2 -----------------------------------------------------------------------------------

NOTHING = {"lambda_b": 0.0, "lambda_r": 0.0, "lambda_p": 0.0}


def test_without_weights_teb_is_drqv2_bit_for_bit() -> None:
    """The actor has a trunk of its own in this layout, so the potential is asked at common actions."""
    plain = small_pixel_agent("drqv2")
    teb = small_pixel_agent(
        "teb",
        encoder={"latent_layout": "critic_trunk"},
        representation=NOTHING,
        explorer={"eta": 0.0, "phi_action": "common"},
    )
    for seed in range(8):
        metrics = [agent.update(pixel_batch(seed), seed) for agent in (plain, teb)]
        assert torch.equal(metrics[0]["critic_loss"], metrics[1]["critic_loss"])
    before, after = (
        {n: v for n, v in parameters(agent).items() if n.startswith("backbone.")} for agent in (plain, teb)
    )
    assert not moved(before, after)


WEIGHTLESS = {
    "rap": {"lambda_b": 0.0, "lambda_r": 0.0, "lambda_p": 0.0},
    "dbc": {"lambda_b": 0.0, "lambda_p": 0.0},
    "mico": {"mico_weight": 0.0},
}


@pytest.mark.parametrize("name", WEIGHTLESS)
@pytest.mark.parametrize("when", ["after", "before", "joint"])
def test_without_weights_every_representation_is_drqv2_bit_for_bit(name: str, when: str) -> None:
    plain = small_pixel_agent("drqv2")
    weightless = small_pixel_agent(
        name,
        encoder={"latent_layout": "critic_trunk", "squash": "tanh"},
        representation={**WEIGHTLESS[name], "rep_update": when},
    )
    for seed in range(6):
        metrics = [agent.update(pixel_batch(seed), seed) for agent in (plain, weightless)]
        assert torch.equal(metrics[0]["critic_loss"], metrics[1]["critic_loss"])
    before, after = (
        {n: v for n, v in parameters(agent).items() if n.startswith("backbone.")}
        for agent in (plain, weightless)
    )
    assert not moved(before, after)


def test_the_same_seed_gives_every_composition_the_same_convolutions() -> None:
    first: Any = small_pixel_agent("drqv2").backbone.encoder
    composed_agents = {name: small_learner(name) for name in PIXEL_AGENTS if name != "uniform"}
    for name, agent in composed_agents.items():
        if isinstance(agent, ComposedAgent):
            encoder: Any = agent.backbone.encoder
            conv = encoder if isinstance(encoder, ConvEncoder) else encoder[0]
            assert not moved(first.state_dict(), conv.state_dict()), name


@pytest.mark.parametrize("layout", ["shared_trunk", "separate_head"])
def test_without_weights_the_representation_changes_nothing_in_other_layouts(layout: str) -> None:
    seeing = {"latent_layout": layout}
    plain, weightless = (
        small_pixel_agent("eta0", encoder=seeing),
        small_pixel_agent("teb-no-int", encoder=seeing, representation=NOTHING),
    )
    for seed in range(4):
        for agent in (plain, weightless):
            agent.update(pixel_batch(seed), seed)
    before = {n: v for n, v in parameters(plain).items() if n.startswith("backbone.")}
    assert not moved(before, parameters(weightless))


# --- who trains what ------------------------------------------------------------------------------------------------


def test_the_representation_steps_before_the_critic_and_both_train_the_encoder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    representation, critic, actor = steps_of(small_pixel_agent("teb"), pixel_batch(), monkeypatch)
    assert parts_of(representation) == {"backbone.encoder", "representation"}
    assert parts_of(critic) == {"backbone.encoder", "backbone.critic"}
    assert parts_of(actor) == {"backbone.actor"}


@pytest.mark.parametrize(
    ("layout", "trained"),
    [
        ("shared_trunk", {"backbone.encoder"}),
        ("critic_trunk", {"backbone.encoder", "backbone.critic"}),
        ("separate_head", {"backbone.encoder", "backbone.head"}),
    ],
)
def test_the_layout_says_what_makes_the_latent(
    layout: str, trained: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = small_pixel_agent("teb-no-int", encoder={"latent_layout": layout})
    representation, critic, _ = steps_of(agent, pixel_batch(), monkeypatch)
    assert parts_of(representation) == trained | {"representation"}
    assert all("trunk" in name for name in representation if name.startswith("backbone.critic"))
    assert parts_of(critic) == {"backbone.encoder", "backbone.critic"}


def test_without_representation_loss_the_models_learn_on_latents_that_they_do_not_shape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    representation, critic, _ = steps_of(small_pixel_agent("teb-no-rep"), pixel_batch(), monkeypatch)
    assert parts_of(representation) == {"representation"}
    assert parts_of(critic) == {"backbone.encoder", "backbone.critic"}


def test_the_critic_may_be_kept_from_the_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = small_pixel_agent("teb", encoder={"critic_grad_to_encoder": False})
    representation, critic, _ = steps_of(agent, pixel_batch(), monkeypatch)
    assert "backbone.encoder" in parts_of(representation) and parts_of(critic) == {"backbone.critic"}


def test_the_critic_learns_on_re_encoded_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, calls = small_pixel_agent("teb"), []
    critic_loss, pay = agent.backbone.critic_loss, agent.explorer.reward

    def spied_loss(features: Batch, *others: Any) -> Any:
        calls.append((features.obs.detach().clone(), features.next_obs.clone(), features.obs.requires_grad))
        return critic_loss(features, *others)

    def spied_pay(shown: Batch, *others: Any) -> Paid:
        calls.append((shown.obs, shown.next_obs, shown.obs.requires_grad))
        return pay(shown, *others)

    batch = pixel_batch()
    start = copy.deepcopy(agent)
    sight = start.look(batch)
    stale = sight.features(0).detach()
    monkeypatch.setattr(agent.backbone, "critic_loss", spied_loss)
    monkeypatch.setattr(agent.explorer, "reward", spied_pay)
    agent.update(batch, 0)
    (paid_obs, paid_next, paid_grad), (obs, next_obs, gradient) = calls
    assert gradient and not paid_grad
    assert torch.equal(paid_obs, obs) and torch.equal(paid_next, next_obs)
    assert not torch.equal(obs, stale)


def test_each_picture_is_encoded_as_often_as_it_must_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: dict[str, list[int]] = {}
    forward = ConvEncoder.forward

    def count(name: str) -> int:
        agent, seen = small_pixel_agent(name), []

        def spy(self: ConvEncoder, images: Tensor) -> Tensor:
            seen.append(len(images))
            return forward(self, images)

        with monkeypatch.context() as patch:
            patch.setattr(ConvEncoder, "forward", spy)
            agent.update(pixel_batch(), 0)
        encoded[name] = seen
        return seen.count(SIZE)

    assert count("drqv2") == 2
    assert count("teb-no-rep") == 3
    assert count("teb") == 4
    assert count("rap") == 4
    assert count("mico") == 4
    assert encoded["drqv2"].count(1) == 0


def test_a_joint_update_is_one_encoding_whose_gradient_is_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    joint = small_pixel_agent("teb-no-int", representation={"rep_update": "joint", "rep_grad_clip": 0.0})
    batch, twin = pixel_batch(), copy.deepcopy(joint)
    gradients: dict[str, Tensor] = {}
    descend = compose.descend

    def spy(loss: Tensor, optimisers: Any, *others: Any) -> Any:
        norm = descend(loss, optimisers, *others)
        if isinstance(optimisers, tuple):
            named = joint.backbone.encoder.named_parameters()
            gradients.update({n: p.grad.clone() for n, p in named if p.grad is not None})
        return norm

    with monkeypatch.context() as patch:
        patch.setattr(compose, "descend", spy)
        joint.update(batch, 0)
    sight = twin.look(batch)
    representation: Any = twin.representation
    loss, _ = representation.loss(sight.shown((0, 1), gradient=True), twin.policy, twin.representing)
    critic, _ = twin.backbone.critic_loss(sight.learnt_from(), batch.reward, twin.learning)
    (loss + critic).backward()
    for name, p in twin.backbone.encoder.named_parameters():
        assert p.grad is not None
        assert torch.allclose(gradients[name], p.grad, atol=1e-5), name


# --- after the critic; a slow copy of the encoder --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rap", "dbc"])
def test_a_representation_may_step_between_critic_and_actor(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    critic, representation, actor = steps_of(small_pixel_agent(name), pixel_batch(), monkeypatch)
    assert parts_of(critic) == {"backbone.encoder", "backbone.critic"}
    assert parts_of(representation) == {"backbone.encoder", "representation"}
    assert parts_of(actor) == {"backbone.actor"}
    first = steps_of(
        small_pixel_agent(name, representation={"rep_update": "before"}), pixel_batch(), monkeypatch
    )
    assert [parts_of(step) for step in first] == [parts_of(step) for step in (representation, critic, actor)]


def test_it_then_learns_on_re_encoded_pictures_and_the_actor_on_those_of_the_critic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = small_pixel_agent("rap")
    said: dict[str, Tensor] = {}

    def spied(name: str, plain: Any) -> Any:
        def spy(batch: Batch, *others: Any) -> Any:
            said[name] = batch.obs.detach().clone()
            said[f"{name}, encoded now"] = agent.backbone.encoder(sight.images[0]).detach()
            return plain(batch, *others)

        return spy

    representation: Any = agent.representation
    for part, name in (
        (agent.backbone, "critic_loss"),
        (representation, "loss"),
        (agent.backbone, "actor_loss"),
    ):
        monkeypatch.setattr(part, name, spied(name, getattr(part, name)))
    batch = pixel_batch()
    sight = agent.look(batch)
    monkeypatch.setattr(agent, "look", lambda _: sight)
    agent.update(batch, 0)
    assert torch.equal(said["loss"], said["loss, encoded now"])
    assert not torch.equal(said["loss"], said["critic_loss"])
    assert torch.equal(said["actor_loss"], said["critic_loss"])


@pytest.mark.parametrize("layout", ["shared_trunk", "critic_trunk", "separate_head"])
def test_a_slow_copy_of_what_makes_latents_follows_and_is_what_the_window_shows(layout: str) -> None:
    agent = small_pixel_agent(
        "mico",
        encoder={"latent_layout": layout, "encoder_lr": 0.1},
        representation={"slow_tau": 0.25, "mico_weight": 0.5},
    )
    backbone, batch = agent.backbone, pixel_batch()
    assert backbone.slow_encoder is not None
    assert not any(p.requires_grad for p in backbone.slow_encoder.parameters())

    def made_by() -> list[Tensor]:
        return [p.detach().clone() for p in backbone.encoder_parameters()]

    before = [p.clone() for p in backbone.slow_encoder.parameters()]
    assert all(torch.equal(slow, fast) for slow, fast in zip(before, made_by(), strict=True))
    agent.update(batch, 0)
    for old, slow, fast in zip(before, backbone.slow_encoder.parameters(), made_by(), strict=True):
        assert torch.allclose(slow, 0.75 * old + 0.25 * fast, atol=1e-6) and not torch.equal(old, fast)
    sight = agent.look(batch)
    shown = sight.shown((0, -1), gradient=True, slow=True)
    for step in (0, 3):
        assert torch.equal(shown.window_obs[:, step], backbone.slow_encoder(sight.images[step]))
    assert bool(shown.window_obs[:, 1:3].isnan().all())
    assert torch.equal(shown.obs, backbone.latent(backbone.encoder(sight.images[0])))
    assert shown.obs.requires_grad and not shown.window_obs.requires_grad
    assert not sight.shown((0, -1), slow=True).obs.requires_grad


def test_only_who_asks_has_a_slow_encoder() -> None:
    agent = small_pixel_agent("rap")
    assert agent.backbone.slow_encoder is None
    assert not any("slow" in name for name in agent.backbone.state_dict())
    with pytest.raises(ValueError, match="slow_tau"):
        agent.backbone.slow_latent(pixel_batch().obs)


@pytest.mark.parametrize("when", ["joint", "before", "after"])
def test_a_representation_without_parameters_trains_the_encoder_alone(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = small_pixel_agent("mico", representation={"rep_update": when, "mico_weight": 0.5})
    steps = [parts_of(step) for step in steps_of(agent, pixel_batch(), monkeypatch)]
    critic, actor, alone = {"backbone.encoder", "backbone.critic"}, {"backbone.actor"}, {"backbone.encoder"}
    assert (
        steps
        == {
            "joint": [set(), critic, actor],
            "before": [alone, critic, actor],
            "after": [critic, alone, actor],
        }[when]
    )
    weightless = small_pixel_agent("mico", representation={"mico_weight": 0.0})
    assert len(steps_of(weightless, pixel_batch(), monkeypatch)) == 2


# --- explorers on latents -------------------------------------------------------------------------------------------


class Toy(nn.Module):
    """Regresses the action from two latents, and notes what it is shown."""

    def __init__(self, traits: Traits, shapes: Shapes) -> None:
        super().__init__()
        self.traits, self.told = traits, shapes
        self.inverse = nn.Linear(2 * shapes.obs, shapes.action)
        self.seen: list[tuple[str, Batch]] = []

    def parameter_groups(self) -> list[dict[str, Any]]:
        return [{"params": list(self.inverse.parameters()), "lr": 1e-3}]

    def loss(self, batch: Batch, policy: Policy, rng: torch.Generator) -> tuple[Tensor, Metrics]:
        self.seen.append(("loss", batch))
        predicted = self.inverse(torch.cat([batch.obs, batch.next_obs], 1))
        return (predicted - batch.action).square().mean(), {}

    @torch.no_grad()
    def reward(self, batch: Batch, policy: Policy, rng: torch.Generator) -> Paid:
        self.seen.append(("reward", batch))
        return Paid(batch.obs[:, :1], {})

    def after_step(self, batch: Batch, policy: Policy, rng: torch.Generator) -> None:
        self.seen.append(("after", batch))


def toy(**traits: Any) -> ComposedAgent:
    return composed(lambda shapes, **terms: Toy(Traits(**traits), shapes))


@pytest.mark.parametrize("trains", [False, True])
def test_a_loss_may_train_the_encoder_as_well(trains: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    explorer, critic, _ = steps_of(toy(trains_encoder=trains), pixel_batch(), monkeypatch)
    assert parts_of(explorer) == ({"explorer", "backbone.encoder"} if trains else {"explorer"})
    assert parts_of(critic) == {"backbone.encoder", "backbone.critic"}


def test_only_the_first_latent_carries_a_gradient_and_only_in_the_loss() -> None:
    agent = toy(trains_encoder=True)
    agent.update(pixel_batch(), 0)
    shown: Any = dict(agent.explorer.seen)  # pyright: ignore[reportAttributeAccessIssue]
    assert shown["loss"].obs.requires_grad
    assert all(not shown[call].window_obs.requires_grad for call in ("reward", "after"))
    assert not torch.equal(shown["loss"].obs, shown["reward"].obs), "the encoder moved, latents did not"


@pytest.mark.parametrize("layout", ["shared_trunk", "critic_trunk", "separate_head"])
def test_no_later_latent_carries_a_gradient_into_whatever_makes_latents(layout: str) -> None:
    agent = composed(latent_layout=layout)
    shown = agent.look(pixel_batch()).shown(None, gradient=True)
    known = agent.backbone.encoder_parameters()
    gradients = [torch.autograd.grad(shown.window_obs[:, step].sum(), known, retain_graph=True, allow_unused=True)
                 for step in range(4)]  # fmt: skip
    reached = [any(g is not None and bool(g.any()) for g in found) for found in gradients]
    assert reached == [True, False, False, False]


@pytest.mark.parametrize(
    ("reads", "known"), [((0, -1), {0, 3}), ((0, 1), {0, 1}), (None, {0, 1, 2, 3}), ((), set[int]())]
)
def test_latents_are_there_for_what_an_explorer_reads(reads: tuple[int, ...] | None, known: set[int]) -> None:
    shown = small_pixel_agent("eta0").look(pixel_batch()).shown(reads)
    assert shown.window_obs.shape == (SIZE, 4, LATENT) and shown.first_obs.shape == (1, LATENT)
    for step in range(4):
        values = shown.window_obs[:, step]
        assert bool(values.isfinite().all()) if step in known else bool(values.isnan().all())
    assert torch.equal(shown.obs.nan_to_num(9), shown.window_obs[:, 0].nan_to_num(9))
    assert torch.equal(shown.next_obs.nan_to_num(9), shown.window_obs[:, 3].nan_to_num(9))


def test_single_steps_of_a_window_are_shown_as_latents() -> None:
    agent = toy(per_step=True, reads=None, trains_encoder=True)
    agent.update(pixel_batch(), 0)
    shown: Any = dict(agent.explorer.seen)  # pyright: ignore[reportAttributeAccessIssue]
    assert shown["reward"].obs.shape == (3 * SIZE, LATENT) and bool(shown["reward"].obs.isfinite().all())
    assert shown["loss"].obs.requires_grad


def test_explorers_are_built_for_the_width_of_a_latent() -> None:
    assert toy().explorer.told == Shapes(LATENT, ACTIONS)  # pyright: ignore[reportAttributeAccessIssue]


def test_skills_stand_beside_the_features() -> None:
    agent = toy(skills=Skills(3))
    agent.update(pixel_batch(skill=3), 0)
    stack = np.random.default_rng(0).integers(0, 256, IMAGE, dtype=np.uint8)
    one, other = (agent.act(stack, np.eye(3, dtype=np.float32)[index], 0, explore=False) for index in (0, 1))
    assert not np.allclose(one, other)


def test_an_actor_with_a_trunk_of_its_own_cannot_be_asked_at_latents() -> None:
    agent = small_pixel_agent("teb", encoder={"latent_layout": "critic_trunk"})
    with pytest.raises(ValueError, match=r"latent_layout: .* needs 'shared_trunk'"):
        agent.update(pixel_batch(), 0)


def test_teb_borrows_the_models_of_its_representation() -> None:
    agent = small_pixel_agent("teb")
    explorer: Any = agent.explorer
    representation: Any = agent.representation
    latent, action = torch.randn(5, LATENT), torch.rand(5, ACTIONS)
    assert explorer.predict(latent, action).next.equal(representation.predict(latent, action).next)
    assert list(explorer.parameters()) == [] and agent.explorer_optimiser is None
    assert (explorer.c_r, explorer.c_t) == (1.0, GAMMA)


@pytest.mark.parametrize("anchor", ["batch_mean", "random", "s0", "ema", "particles"])
def test_every_anchor_works_on_latents(anchor: str) -> None:
    agent = small_pixel_agent("teb", explorer={"anchor": anchor, "particles": 16})
    bonuses = [float(agent.update(pixel_batch(seed), 0)["bonus_std"]) for seed in range(3)]
    assert all(math.isfinite(value) for value in bonuses) and bonuses[-1] > 0


@pytest.mark.parametrize("shaping", ["window_gamma", "window_gamma_n", "sum", "one", "first_step"])
def test_every_shaping_works_on_latents(shaping: str) -> None:
    agent = small_pixel_agent("teb", explorer={"shaping": shaping})
    assert agent.sampling is not None
    batch = pixel_batch(n=agent.sampling.n_step)
    assert math.isfinite(float(agent.update(batch, 0)["bonus_mean"]))


def test_the_bonus_leaves_no_gradient_on_anything() -> None:
    agent = small_pixel_agent("teb")
    shown = agent.look(pixel_batch()).shown((0, -1))
    assert not agent.pay(shown).bonus.requires_grad


def test_stacks_are_what_agents_are_built_for() -> None:
    conv: Any = small_pixel_agent("teb").backbone.encoder
    assert conv[0].kernels[0].shape == (4, 3 * STACK, 3, 3) and IMAGE[1] == SIDE
