"""DrM: what it is without its additions, and each of these against its definition."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pixel_setup import CPU, GAMMA, IMAGE, SIZE, moved, parameters, pixel_batch, small_learner
from torch import Tensor

from teb.agents import drm
from teb.agents.registry import PIXEL_AGENTS
from teb.maths.dormancy import dormant_ratio
from teb.nets.actor_critic import noisy_action
from teb.nets.augment import shift_offsets, shifted
from teb.nets.dormancy import linear_layers, responses

NO_SKILL = np.zeros(0, np.float32)
BARE = {"value_weight": 0.0, "dropout": 0.0, "head_norm": False, "perturb_every": 0, "dormant_noise": False}
SILENT = {"target_dormant": 0.0}
"""No actor ever awakes."""


def agent(seed: int = 0, backbone: dict[str, Any] | None = None, **options: Any) -> drm.DrmAgent:
    return small_learner("drm", seed, backbone=backbone or {}, drm=options)


def spied(
    learner: drm.DrmAgent, monkeypatch: pytest.MonkeyPatch, env_steps: int = 1
) -> list[tuple[set[str], dict[str, Tensor]]]:
    """What each optimiser step of an update moves, and all gradients right before the optimiser acts on them."""
    steps: list[tuple[set[str], dict[str, Tensor]]] = []
    descend = drm.descend

    def spy(loss: Tensor, optimisers: Any) -> Any:
        before = parameters(learner)
        norm = descend(loss, optimisers)
        named = learner.backbone.named_parameters()
        gradients = {name: p.grad.clone() for name, p in named if p.grad is not None}
        steps.append((moved(before, parameters(learner)), gradients))
        return norm

    with monkeypatch.context() as patch:
        patch.setattr(drm, "descend", spy)
        learner.update(pixel_batch(), env_steps)
    return steps


def named(learner: drm.DrmAgent, *parts: str) -> set[str]:
    return {name for name in parameters(learner) if name.startswith(tuple(f"backbone.{p}." for p in parts))}


# --- beside DrQ-v2 --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compute", [torch.float32, torch.bfloat16])
def test_without_its_additions_it_is_drqv2_bit_for_bit(compute: torch.dtype) -> None:
    bare = small_learner("drm", compute=compute, drm=BARE)
    plain = small_learner("drqv2", compute=compute)
    for seed in range(5):
        metrics = [each.update(pixel_batch(seed), 100 * seed) for each in (plain, bare)]
        assert all(torch.equal(metrics[0][name], metrics[1][name]) for name in ("critic_loss", "actor_loss"))
    before, after = parameters(plain), parameters(bare)
    assert set(after) - set(before) == named(bare, "value")
    assert not moved(before, after)
    stack = pixel_batch().obs[0].numpy()
    acted = [each.act(stack, NO_SKILL, 5, explore=True) for each in (plain, bare)]
    assert np.array_equal(*acted)


@pytest.mark.parametrize("option", sorted(BARE))
def test_each_of_its_additions_changes_an_update(option: str) -> None:
    on = {"value_weight": 0.5, "dropout": 0.5, "head_norm": True, "perturb_every": 1, "dormant_noise": True}
    bare, other = agent(**BARE), agent(**{**BARE, **SILENT, option: on[option]})
    for learner in (bare, other):
        learner.update(pixel_batch(), 400_000)
    assert moved(parameters(bare), parameters(other)) - named(bare, "value")


def test_a_seed_gives_every_method_the_same_first_encoder() -> None:
    mine = agent(seed=3).backbone.encoder.state_dict()
    for other in ("drqv2", "teb", "icm+rep"):
        theirs = small_learner(other, 3).backbone.encoder.state_dict()
        kernels = [value for name, value in theirs.items() if "kernels" in name]
        assert len(kernels) == 4
        for kernel, value in zip(kernels, [mine[f"kernels.{i}"] for i in range(4)], strict=True):
            assert torch.equal(kernel, value)


def test_defaults_are_those_of_the_shared_protocol_and_the_official_ones_have_a_name() -> None:
    spec = PIXEL_AGENTS["drm"]
    paper = spec.presets["paper"]
    assert (paper.backbone.n_step, paper.backbone.gamma, paper.backbone.batch_size) == (3, 0.97, 256)
    assert paper.backbone == PIXEL_AGENTS["drqv2"].presets["paper"].backbone
    assert spec.presets["cpu"].backbone == PIXEL_AGENTS["drqv2"].presets["cpu"].backbone
    assert spec.presets["cpu"].encoder == PIXEL_AGENTS["drqv2"].presets["cpu"].encoder
    assert spec.readings == {"official": {"backbone": {"n_step": 10}}}


def test_layouts_without_a_trunk_of_the_actor_are_refused() -> None:
    with pytest.raises(ValueError, match=r"latent_layout: drm has .*'critic_trunk', got 'shared_trunk'"):
        small_learner("drm", encoder={"latent_layout": "shared_trunk"})


@pytest.mark.parametrize("wanted", [True, False])
def test_a_say_of_an_explorer_is_refused_where_there_is_none(wanted: bool) -> None:
    with pytest.raises(ValueError, match=f"^explorer_grad_to_encoder: .* must be None, got {wanted}"):
        small_learner("drm", encoder={"explorer_grad_to_encoder": wanted})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dormant_threshold", -0.1),
        ("expectile", 1.1),
        ("dropout", 1.0),
        ("noise_sharpness", 0.0),
        ("perturb_every", -1),
        ("perturb_max", 0.1),
        ("perturb_target", "both"),
    ],
)
def test_impossible_values_are_refused_with_field_and_value(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{field}: .*got '?{value}"):
        drm.DrmConfig(**{field: value})


# --- an update ------------------------------------------------------------------------------------------------------


def test_each_step_moves_exactly_what_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = agent()
    value, critic, actor = (names for names, _ in spied(learner, monkeypatch))
    assert value == named(learner, "value")
    assert critic == named(learner, "encoder", "critic")
    assert actor == named(learner, "actor")


def test_no_gradient_of_the_value_step_is_left_for_the_critic(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = agent()
    (_, after_value), *_ = spied(learner, monkeypatch)
    assert {f"backbone.{name}" for name in after_value} == named(learner, "value")
    loss, _ = learner.backbone.value_loss(learner.look(pixel_batch()).learnt_from())
    learner.backbone.zero_grad()
    loss.backward()
    gradients = {name for name, p in learner.backbone.named_parameters() if p.grad is not None}
    assert {f"backbone.{name}" for name in gradients} == named(learner, "value")


def head_values(critic: Any, x: Tensor, action: Tensor, drop: float, rng: torch.Generator) -> Tensor:
    """Both heads spelt out: linear, dropout, norm, ReLU, twice, then linear."""

    def dropped(h: Tensor) -> Tensor:
        return h * torch.empty_like(h).bernoulli_(1 - drop, generator=rng) / (1 - drop)

    def normed(h: Tensor, layer: Any, head: int) -> Tensor:
        return torch.relu(F.layer_norm(h, h.shape[-1:], layer.gain[head], layer.shift[head]))

    z = torch.cat([critic.trunk(x), action], -1)
    first = dropped(F.linear(z, critic.first.weight, critic.first.bias)).chunk(2, -1)
    inner = [layer(normed(h, critic.before_first, i))
             for i, (h, layer) in enumerate(zip(first, (critic.hidden1, critic.hidden2), strict=True))]  # fmt: skip
    outer = [normed(dropped(h), layer, 0)
             for h, layer in zip(inner, (critic.before1, critic.before2), strict=True)]  # fmt: skip
    return torch.cat([critic.value1(outer[0]), critic.value2(outer[1])], -1)


def test_an_update_is_that_of_the_definition() -> None:
    """Perturbation, dormant ratio, value, critic with encoder, actor, target, in this order."""
    drop, share = 0.3, 0.4
    learner = agent(dropout=drop, value_weight=share, perturb_every=7, perturb_min=0.5, target_dormant=0.3)
    for seed in range(2):
        learner.update(pixel_batch(seed), seed + 1)
    batch = pixel_batch(5)
    with torch.no_grad():
        learner.backbone.awake_step.fill_(4)
    twin = copy.deepcopy(learner)
    net: Any = twin.backbone

    net.perturb(twin.perturbing)
    images = [
        shifted(batch.window_obs[:, step], shift_offsets(SIZE, 2, twin.shifting, CPU), 2) for step in (0, 3)
    ]
    x, next_x = net.encoder(images[0]), net.encoder(images[1]).detach()
    beta = float(dormant_ratio(responses(net.actor, x.detach(), "pre"), 0.025))
    sigma = max(1 / (1 + np.exp(-10 * (beta - 0.3))), 1.0 - 0.9 * (14 - 4) / 500_000)

    with torch.no_grad():
        known = head_values(net.critic, x, batch.action, drop, twin.dropping).amin(-1, keepdim=True)
    error = net.value(x.detach()) - known
    value_loss = torch.where(error <= 0, 0.9 * error**2, 0.1 * error**2).mean()
    value_loss.backward()
    torch.optim.Adam(net.value.parameters(), 1e-3).step()
    with torch.no_grad():
        next_action = noisy_action(net.actor(next_x), sigma, twin.learning, 0.3)
        slow = head_values(net.target_critic, next_x, next_action, drop, twin.dropping).amin(-1, keepdim=True)
        y = batch.reward + GAMMA**3 * (share * net.value(next_x) + (1 - share) * slow)
    net.zero_grad()
    critic_loss = (head_values(net.critic, x, batch.action, drop, twin.dropping) - y).square().mean(0).sum()
    critic_loss.backward()
    for part in (net.encoder, net.critic):
        torch.optim.Adam(part.parameters(), 1e-3).step()
    action = noisy_action(net.actor(x.detach()), sigma, twin.learning, 0.3)
    actor_loss = -head_values(net.critic, x.detach(), action, drop, twin.dropping).amin(-1).mean()
    net.zero_grad()
    actor_loss.backward()
    torch.optim.Adam(net.actor.parameters(), 1e-3).step()
    with torch.no_grad():
        for slow_p, fast in zip(net.target_critic.parameters(), net.critic.parameters(), strict=True):
            slow_p.copy_(0.99 * slow_p + 0.01 * fast)

    metrics = learner.update(batch, 14)
    for name, loss in (("value_loss", value_loss), ("critic_loss", critic_loss), ("actor_loss", actor_loss)):
        assert float(metrics[name]) == pytest.approx(float(loss.detach()), rel=1e-4), name
    assert float(metrics["noise"]) == pytest.approx(sigma, rel=1e-6)
    assert float(metrics["dormant_ratio"]) == pytest.approx(beta)
    for name, p in learner.backbone.named_parameters():
        assert torch.allclose(p, net.get_parameter(name), atol=5e-6), name
    for mine, theirs in zip(learner._generators().values(), twin._generators().values(), strict=True):
        assert torch.equal(mine.get_state(), theirs.get_state())


def test_the_value_is_trained_before_the_critic_bootstraps_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = agent(value_weight=1.0)
    before = copy.deepcopy(learner.backbone.value)
    seen: list[tuple[Tensor, Tensor]] = []
    bootstrap = drm.DrmBackbone.bootstrap

    def spy(self: drm.DrmBackbone, next_x: Tensor, *others: Any) -> Tensor:
        value = bootstrap(self, next_x, *others)
        seen.append((value, before(next_x)))
        return value

    monkeypatch.setattr(drm.DrmBackbone, "bootstrap", spy)
    learner.update(pixel_batch(), 1)
    ((used, untrained),) = seen
    assert not torch.allclose(used, untrained)


def test_the_target_critic_drops_out_too() -> None:
    learner = agent(dropout=0.5)
    x = learner.look(pixel_batch()).features(0).detach()
    action = torch.zeros(SIZE, 2)
    for critic in (learner.backbone.critic, learner.backbone.target_critic):
        assert critic.training
        assert not torch.equal(critic(x, action), critic(x, action))


# --- dormancy and noise ---------------------------------------------------------------------------------------------


def spread(learner: drm.DrmAgent, env_steps: int) -> float:
    """Deviation of the noise that is added when acting, read off many small draws."""
    learner.act(np.zeros(IMAGE, np.uint8), NO_SKILL, env_steps, explore=True)
    return float(learner.backbone.sigma)


def test_before_the_first_update_noise_is_that_of_an_actor_that_is_all_dormant() -> None:
    learner = agent()
    assert spread(learner, 2000) == pytest.approx(0.99966, abs=1e-5)
    assert spread(learner, 10**6) == pytest.approx(0.99966, abs=1e-5)


def test_acting_follows_the_latest_dormant_ratio_and_the_clock_since_awakening() -> None:
    learner = agent(backbone={"noise": "linear(1.0,0.1,1000)"})
    with torch.no_grad():
        learner.backbone.dormant.fill_(0.5)
    assert spread(learner, 100) == pytest.approx(1 / (1 + np.exp(-3)))
    with torch.no_grad():
        learner.backbone.dormant.fill_(0.0)
        learner.backbone.awake_step.fill_(600)
    assert spread(learner, 600) == pytest.approx(1.0)
    assert spread(learner, 1100) == pytest.approx(0.55)
    assert spread(learner, 9000) == pytest.approx(0.11920, abs=1e-5)
    stack = np.zeros(IMAGE, np.uint8)
    mean = learner.act(stack, NO_SKILL, 9000, explore=False)
    drawn = [learner.act(stack, NO_SKILL, 9000, explore=True) - mean for _ in range(500)]
    assert float(np.std(drawn)) == pytest.approx(0.1192, rel=0.1)


def silence(learner: drm.DrmAgent, share: float) -> None:
    """Let a share of the actor's hidden units say nothing."""
    with torch.no_grad():
        for layer in linear_layers(learner.backbone.actor):
            rows = int(share * len(layer.weight))
            layer.weight[:rows], layer.bias[:rows] = 0.0, 0.0


def test_the_actor_awakes_once() -> None:
    learner = agent(perturb_every=0)
    silence(learner, 0.75)
    assert int(learner.update(pixel_batch(0), 10)["awake_step"]) == -1
    assert float(learner.backbone.dormant) > 0.5
    fresh = agent(seed=4)
    learner.backbone.actor.load_state_dict(fresh.backbone.actor.state_dict())
    assert int(learner.update(pixel_batch(1), 12)["awake_step"]) == 12
    silence(learner, 0.75)
    metrics = learner.update(pixel_batch(2), 14)
    assert float(metrics["dormant_ratio"]) > 0.5 and int(metrics["awake_step"]) == 12
    learner.backbone.actor.load_state_dict(fresh.backbone.actor.state_dict())
    assert int(learner.update(pixel_batch(3), 16)["awake_step"]) == 12


def test_dormancy_is_that_before_any_parameter_moves_and_reaches_this_update() -> None:
    learner = agent(perturb_every=0)
    silence(learner, 0.75)
    twin = copy.deepcopy(learner)
    metrics = learner.update(pixel_batch(), 10)
    sight = twin.look(pixel_batch())
    expected = dormant_ratio(responses(twin.backbone.actor, sight.features(0), "pre"), 0.025)  # pyright: ignore[reportArgumentType]
    assert torch.equal(metrics["dormant_ratio"], expected)
    assert float(metrics["noise"]) == pytest.approx(float(torch.sigmoid(10 * (expected - 0.2))))


def test_listening_behind_the_activations_is_another_count() -> None:
    before, behind = agent(), agent(dormant_on="post")
    counts = [float(each.update(pixel_batch(), 1)["dormant_ratio"]) for each in (before, behind)]
    assert counts[0] < counts[1]


def test_the_share_of_the_value_may_follow_dormancy() -> None:
    learner = agent(value_follows="dormancy", value_weight=0.6)
    assert float(learner.backbone.share()) == pytest.approx(0.0, abs=1e-8)
    with torch.no_grad():
        learner.backbone.dormant.fill_(0.2)
    assert float(learner.backbone.share()) == pytest.approx(0.3)


# --- perturbation ---------------------------------------------------------------------------------------------------


def moments(learner: drm.DrmAgent) -> dict[str, int]:
    return {name: len(optimiser.state) for name, optimiser in learner.optimisers.items()}


@pytest.mark.parametrize(("env_steps", "due"), [(99, False), (100, True), (101, False), (300, True)])
def test_perturbations_come_at_multiples_before_anything_else(
    env_steps: int, due: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = agent(perturb_every=100)
    called: list[str] = []
    for name in ("perturb", "listen", "value_loss", "critic_loss", "actor_loss", "follow"):
        inner = getattr(drm.DrmBackbone, name)

        def spy(*arguments: Any, _inner: Any = inner, _name: str = name) -> Any:
            called.append(_name)
            return _inner(*arguments)

        monkeypatch.setattr(drm.DrmBackbone, name, spy)
    learner.update(pixel_batch(), env_steps)
    order = ["perturb", "listen", "value_loss", "critic_loss", "actor_loss", "follow"]
    assert called == order[0 if due else 1 :]


def test_a_perturbation_that_keeps_all_leaves_every_parameter_and_empties_every_optimiser() -> None:
    learner = agent(perturb_min=1.0, perturb_max=1.0)
    learner.update(pixel_batch(), 1)
    assert set(moments(learner)) == {"encoder", "actor", "critic", "value"} and all(moments(learner).values())
    before = parameters(learner)
    learner.perturb()
    assert not moved(before, parameters(learner))
    assert not any(moments(learner).values())
    learner.update(pixel_batch(), 2)
    steps = {float(s["step"]) for o in learner.optimisers.values() for s in o.state.values()}
    assert steps == {1.0}


def test_a_perturbation_that_keeps_nothing_is_a_fresh_start_of_all_linear_layers() -> None:
    learner = agent(perturb_min=0.0, perturb_max=0.0)
    learner.update(pixel_batch(), 1)
    before = parameters(learner)
    learner.perturb()
    after, net = parameters(learner), learner.backbone
    changed = moved(before, after)
    assert not changed & named(learner, "encoder")
    assert changed == {
        name
        for name in before
        if name.split(".")[1] != "encoder" and "norm" not in name and ".before" not in name
    }
    for part in (net.actor, net.critic, net.target_critic, net.value):
        for layer in linear_layers(part):
            for block in layer.weight.detach().chunk(layer.blocks):
                wide = block if block.shape[0] <= block.shape[1] else block.T
                assert torch.allclose(wide @ wide.T, torch.eye(len(wide)), atol=1e-5)


@pytest.mark.parametrize(("how", "same"), [("independent", False), ("shared", True)])
def test_online_and_target_critic_move_apart_unless_they_share(how: str, same: bool) -> None:
    learner = agent(perturb_min=0.0, perturb_max=0.0, perturb_target=how)
    learner.update(pixel_batch(), 1)
    learner.perturb()
    critics = [linear_layers(net) for net in (learner.backbone.critic, learner.backbone.target_critic)]
    for layer, other in zip(*critics, strict=True):
        if layer.weight.shape[0] > 1:
            assert torch.equal(layer.weight, other.weight) == same


def test_a_perturbation_goes_by_the_ratio_of_the_update_before() -> None:
    learner = agent(perturb_every=10)
    with torch.no_grad():
        learner.backbone.dormant.fill_(0.3)
    metrics = learner.update(pixel_batch(), 20)
    assert float(metrics["perturb_kept"]) == pytest.approx(0.4)
    assert float(metrics["dormant_ratio"]) < 0.3
    assert float(learner.update(pixel_batch(), 21)["perturb_kept"]) == pytest.approx(0.4)


def test_global_generators_are_left_alone() -> None:
    torch.manual_seed(11)
    before, learner = torch.get_rng_state(), agent(perturb_every=1, dropout=0.5)
    learner.update(pixel_batch(), 1)
    assert torch.equal(torch.get_rng_state(), before)
