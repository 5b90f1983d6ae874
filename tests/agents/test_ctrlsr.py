"""CTRL-SR: what its update computes, who is trained by what, and what shapes the features."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from pixel_setup import (
    ACTIONS,
    GAMMA,
    IMAGE,
    LATENT,
    SIZE,
    leaves,
    moved,
    pixel_batch,
    small_learner,
    small_pixel_agent,
)
from torch import Tensor

from teb.agents import ctrlsr
from teb.agents.ctrlsr import Contrast, CtrlsrAgent, SpectralConfig
from teb.agents.protocol import Batch
from teb.agents.registry import PIXEL_AGENTS
from teb.maths.diffusion import retained_signal
from teb.maths.ranking import ranking_loss, repeated_rows
from teb.nets.actor_critic import noisy_action
from teb.nets.augment import randomly_shifted
from teb.nets.ctrl import PairFeatures
from teb.nets.mlp import initialised_from

NO_SKILL = np.zeros(0, np.float32)
LAYOUTS = {"joint": {}, "apart": {"critic_grad_to_encoder": False}}
PARTS = ("encoder", "features", "critic", "actor")


def agent_of(
    layout: str = "joint", seed: int = 0, compute: torch.dtype = torch.float32, **changes: Any
) -> CtrlsrAgent:
    changes["encoder"] = {**LAYOUTS[layout], **changes.get("encoder", {})}
    built = small_learner("ctrlsr", seed, compute, **changes)
    assert isinstance(built, CtrlsrAgent)
    return built


def parts_moved(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """Modules and their parts that differ, such as fast.encoder."""
    return {
        ".".join(name.removeprefix("/modules/").replace("/", ".").split(".")[:2])
        for name in moved(before, after)
        if name.startswith("/modules/")
    }


def copied(agent: CtrlsrAgent) -> dict[str, Any]:
    return leaves(copy.deepcopy(agent.state()))


def steps_of(
    agent: CtrlsrAgent, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[set[str]], set[str]]:
    """What each optimiser step of an update moves, and what moves after the last one."""
    seen: list[set[str]] = []
    last: dict[str, Any] = {}
    descend = ctrlsr.descend

    def spy(*arguments: Any) -> None:
        before = copied(agent)
        descend(*arguments)
        last.clear()
        last.update(copied(agent))
        seen.append(parts_moved(before, last))

    with monkeypatch.context() as patch:
        patch.setattr(ctrlsr, "descend", spy)
        agent.update(batch, 0)
    return seen, parts_moved(last, copied(agent))


def repeated_batch() -> Batch:
    """The first two windows lead to the same o_{t+1}."""
    batch = pixel_batch()
    window = batch.window_obs.clone()
    window[1, 1] = window[0, 1]
    return batch._replace(obs=window[:, 0], next_obs=window[:, -1], window_obs=window)


# --- who is trained by what -----------------------------------------------------------------------------------------

SHAPED = {"fast.encoder", "fast.features", "contrast.embedding", "contrast.reward"}
SLOW = {f"slow.{part}" for part in PARTS}


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("joint", [SHAPED | {"fast.critic"}, {"fast.actor"}]),
        ("apart", [SHAPED, {"fast.critic"}, {"fast.actor"}]),
    ],
)
def test_each_step_moves_exactly_what_it_is_for(
    layout: str, expected: list[set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, after = steps_of(agent_of(layout), pixel_batch(), monkeypatch)
    assert steps == expected and after == SLOW


def losses_by_name(agent: CtrlsrAgent, monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    """The losses of an update, before any step is made on them."""
    found: dict[str, Tensor] = {}
    for place, name in ((agent.contrast, "loss"), (agent, "critic_loss"), (agent, "actor_loss")):
        original = getattr(place, name)

        def spy(*arguments: Any, original: Any = original, name: str = name) -> Any:
            found[name], metrics = original(*arguments)
            return found[name], metrics

        monkeypatch.setattr(place, name, spy)
    for step in ("descend", "follow"):
        monkeypatch.setattr(ctrlsr, step, lambda *arguments: None)
    agent.update(pixel_batch(), 0)
    return found


def reached(loss: Tensor, agent: CtrlsrAgent) -> set[str]:
    """The parts that a loss has a gradient for."""
    modules = {f"fast.{part}": getattr(agent.fast, part) for part in PARTS}
    modules |= {"slow": agent.slow, "mu": agent.contrast.embedding, "reward": agent.contrast.reward}
    found = set()
    for name, module in modules.items():
        parameters = [p for p in module.parameters() if p.requires_grad]
        if parameters:
            gradients = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
            found |= {name for gradient in gradients if gradient is not None and bool(gradient.any())}
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_reach_what_a_loss_is_for(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = agent_of(layout)
    losses = losses_by_name(agent, monkeypatch)
    through = {"fast.encoder", "fast.features"} if layout == "joint" else set[str]()
    assert reached(losses["loss"], agent) == {"fast.encoder", "fast.features", "mu", "reward"}
    assert reached(losses["critic_loss"], agent) == through | {"fast.critic"}
    assert {"fast.actor", "fast.critic"} == reached(losses["actor_loss"], agent)


def test_no_step_leaves_a_gradient_elsewhere() -> None:
    agent = agent_of()
    agent.update(pixel_batch(), 0)
    assert all(p.grad is None and not p.requires_grad for p in agent.slow.parameters())


# --- what an update computes ----------------------------------------------------------------------------------------


def first_standardised(latent: Tensor) -> Tensor:
    """In units of the first moments, in which a start at mean 0 and variance 1 weighs a ten-thousandth of a row."""
    rows, mean = len(latent) / (len(latent) + 1e-4), latent.mean(0)
    variance = (1 - rows) + rows * latent.var(0) + mean.square() * rows * (1 - rows)
    return (latent - rows * mean) / (variance + 1e-5).sqrt()


class Oracle:
    """An update, written out again with copies of an agent's networks and generators."""

    fast: Any
    slow: Any
    contrast: Any

    def __init__(self, agent: CtrlsrAgent, batch: Batch) -> None:
        self.fast, self.slow, self.contrast = map(copy.deepcopy, (agent.fast, agent.slow, agent.contrast))
        noise, shifting, representing = (
            torch.Generator().set_state(generator.get_state())
            for generator in (agent.learning, agent.shifting, agent.representing)
        )
        first, second, last = (randomly_shifted(batch.window_obs[:, step], 2, shifting) for step in (0, 1, 3))
        with torch.no_grad():
            seen, near, far = (self.slow.encoder(pictures) for pictures in (first, second, last))
            action = noisy_action(self.slow.actor(far), 0.2, noise, 0.3)
            q = self.slow.critic(self.slow.features(far, action))
            y = batch.reward + GAMMA**3 * torch.minimum(q[:, :1], q[:, 1:])
            clean = first_standardised(near)
        latent = self.fast.encoder(first)
        features = self.fast.features(latent, batch.action)
        eps = torch.randn(25, SIZE, LATENT, generator=representing)
        abar = retained_signal(25, 0.1, 10.0)
        blurred = torch.stack([a.sqrt() * clean + (1 - a).sqrt() * e for a, e in zip(abar, eps, strict=True)])
        logits = self.contrast.embedding.logits(features, blurred)
        self.nce = sum(torch.nn.functional.cross_entropy(level, torch.arange(SIZE)) / 25 for level in logits)
        self.reward = (self.contrast.reward(features) - batch.rewards[:, :1]).square().mean()
        joint = agent.config.encoder.critic_grad_to_encoder
        read = features if joint else self.slow.features(seen, batch.action)
        q = self.fast.critic(read)
        self.critic = (q[:, :1] - y).square().mean() + (q[:, 1:] - y).square().mean()
        shaped = [*self.fast.encoder.parameters(), *self.fast.features.parameters()]
        trained = [*shaped, *self.contrast.parameters(), *self.fast.critic.parameters()]
        optimiser = torch.optim.Adam(trained, 1e-3)
        (self.nce + self.reward + self.critic).backward()
        optimiser.step()
        self.fast.zero_grad()
        action = noisy_action(self.fast.actor(latent.detach()), 0.2, noise, 0.3)
        q = self.fast.critic(self.slow.features(seen, action))
        self.actor = -(q[:, 0].mean() + q[:, 1].mean()) / 2
        self.actor.backward()
        torch.optim.Adam(self.fast.actor.parameters(), 1e-3).step()
        with torch.no_grad():
            for slow, fast in zip(self.slow.parameters(), self.fast.parameters(), strict=True):
                slow.copy_(0.99 * slow + 0.01 * fast)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_update_is_that_of_the_definition(layout: str) -> None:
    """From networks whose slow copies differ from them, as they do in every update but the first."""
    agent = agent_of(layout, backbone={"noise": 0.2})
    with torch.no_grad():
        for p in agent.slow.parameters():
            p.add_(0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())))
    batch = pixel_batch()
    oracle = Oracle(agent, batch)
    metrics = agent.update(batch, 0)
    for name, loss in (
        ("nce_loss", oracle.nce),
        ("reward_loss", oracle.reward),
        ("critic_loss", oracle.critic),
        ("actor_loss", oracle.actor),
    ):
        assert float(metrics[name]) == pytest.approx(float(torch.as_tensor(loss).detach()), rel=1e-4), name
    for module, twin in ((agent.fast, oracle.fast), (agent.slow, oracle.slow)):
        for name, p in module.named_parameters():
            assert torch.allclose(p, twin.get_parameter(name), atol=1e-5), name
    for name, p in agent.contrast.named_parameters():
        if name == "embedding.body.last.bias":
            continue  # it moves all columns of a row alike: what Adam sees of it is rounding
        assert torch.allclose(p, oracle.contrast.get_parameter(name), atol=1e-5), name


def test_the_contrast_is_of_one_step_and_the_critic_of_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, batch, told = agent_of(encoder={"shift": 0}), pixel_batch(), {}
    loss, target = agent.contrast.loss, agent.target
    monkeypatch.setattr(agent.contrast, "loss", lambda *given: (told.update(loss=given), loss(*given))[1])
    monkeypatch.setattr(agent, "target", lambda *given: (told.update(target=given), target(*given))[1])
    slow = copy.deepcopy(agent.slow)
    agent.update(batch, 0)
    _, next_latent, reward, left_out, _ = told["loss"]
    near, far = slow.encoder(batch.window_obs[:, 1]), slow.encoder(batch.window_obs[:, 3])
    assert torch.equal(reward, batch.rewards[:, :1]) and left_out is None
    assert torch.allclose(next_latent, first_standardised(near), atol=1e-5)
    assert torch.equal(told["target"][1], far) and not next_latent.requires_grad


def test_a_window_that_ends_in_a_terminal_state_is_worth_its_reward() -> None:
    agent, batch = agent_of(), pixel_batch()
    ended = batch._replace(discount=torch.zeros(SIZE, 1))
    latent = torch.randn(SIZE, LATENT)
    assert torch.equal(agent.target(ended, latent), batch.reward)
    assert not torch.allclose(agent.target(batch, latent), batch.reward)


def test_the_actor_climbs_the_mean_of_both_heads() -> None:
    agent = agent_of()
    one, other = agent.fast.critic.heads
    with torch.no_grad():
        for head, value in ((one, 1.0), (other, 5.0)):
            head.value.weight.zero_()  # pyright: ignore
            head.value.bias.fill_(value)  # pyright: ignore
    latent = torch.randn(SIZE, LATENT)
    assert float(agent.actor_loss(latent, latent)[0].detach()) == -3.0
    agent.slow.load_state_dict(agent.fast.state_dict())
    batch = pixel_batch(rewards=0.0)
    assert np.allclose(agent.target(batch, latent), GAMMA**3)


def test_noise_is_drawn_once_for_each_level_and_row() -> None:
    """Windows with the same features then rank the same columns alike: whatever noise a row saw would tell."""
    agent, seen = agent_of(), []
    embedding: Any = agent.contrast.embedding
    logits = embedding.logits
    embedding.logits = lambda *given: (seen.append((given[1], logits(*given))), seen[-1][1])[1]
    clean = torch.zeros(SIZE, LATENT)
    features = torch.ones(1, 12).expand(SIZE, -1) / math.sqrt(12)
    agent.contrast.loss(features, clean, torch.zeros(SIZE, 1), None, torch.Generator().manual_seed(0))
    ((blurred, told),) = seen
    assert blurred.shape == (25, SIZE, LATENT) and told.shape == (25, SIZE, SIZE)
    assert torch.allclose(told, told[:, :1].expand_as(told), atol=1e-6)
    rows = blurred.flatten(0, 1)
    assert not bool(repeated_rows(rows).any())
    scale = rows.view(25, -1).std(1)
    assert np.allclose(scale, (1 - retained_signal(25, 0.1, 10.0)).sqrt(), rtol=0.4)


# --- what shapes the features ---------------------------------------------------------------------------------------

STATES = 32


def chain() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A deterministic chain with two actions: states, actions, next states, which are all different, and rewards."""
    places = torch.linspace(-1.7, 1.7, STATES)
    angle = torch.linspace(0.0, 2 * math.pi, STATES + 1)[:-1]
    embedded = torch.stack([places, 1.4 * angle.cos(), 1.4 * angle.sin()], 1)
    action = torch.ones(STATES, 1)
    return embedded, action, embedded.roll(-1, 0), places.view(-1, 1)


def learnt_chain(steps: int = 150) -> tuple[PairFeatures, Contrast]:
    obs, action, next_obs, reward = chain()
    with initialised_from(0):
        phi = PairFeatures(3, 1, 32, 32, 1)
        contrast = Contrast(SpectralConfig(32, 32, 1, fourier_pairs=32, level_width=16), 3, 32, torch.float32)
    optimiser = torch.optim.Adam([*phi.parameters(), *contrast.parameters()], 1e-2)
    rng = torch.Generator().manual_seed(0)
    for _ in range(steps):
        optimiser.zero_grad()
        contrast.loss(phi(obs, action), next_obs, reward, None, rng)[0].backward()
        optimiser.step()
    return phi, contrast


def test_a_chain_is_told_at_the_clean_level_and_not_at_the_noisy_one() -> None:
    obs, action, next_obs, reward = chain()
    phi, contrast = learnt_chain()
    embedding = contrast.embedding
    noise = torch.randn(20, 25, STATES, 3, generator=torch.Generator().manual_seed(1))
    retained = retained_signal(25, 0.1, 10.0).view(-1, 1, 1)

    def loss(next_obs: Tensor, order: Tensor | None = None) -> Tensor:
        rows = slice(None) if order is None else order
        features = phi(obs[rows], action[rows])
        each = [
            ranking_loss(
                embedding.logits(
                    features, (retained.sqrt() * next_obs + (1 - retained).sqrt() * eps)[:, rows]
                )
            )
            for eps in noise[: 1 if order is not None else None]
        ]
        return torch.stack(each).mean(0)

    with torch.no_grad():
        by_level = loss(next_obs)
        told = contrast.loss(phi(obs, action), next_obs, reward, None, torch.Generator().manual_seed(2))[1]
        order = torch.randperm(STATES, generator=torch.Generator().manual_seed(3))
        alike = loss(next_obs, order), loss(next_obs, torch.arange(STATES))
        misled = loss(next_obs[order])
    uninformed = math.log(STATES)
    assert float(by_level[0]) < 0.4 * uninformed
    assert abs(float(by_level[24]) - uninformed) < 0.1 * uninformed
    assert bool((by_level[[4, 12]].diff() > 0).all()) and float(told["reward_loss"]) < 0.1
    assert torch.allclose(*alike, atol=1e-4)
    assert float(misled[0]) > float(by_level[0]) + 1


def test_next_latents_are_in_units_of_all_that_were_seen() -> None:
    contrast = agent_of().contrast
    rng = torch.Generator().manual_seed(0)
    spread = torch.tensor([0.01, 0.1, 1.0, 5.0, 20.0, 0.3])
    batches = 7 + spread * torch.randn(50, 64, LATENT, generator=rng)
    for batch in batches[:-1]:
        contrast.standardised(batch)
    last = contrast.standardised(batches[-1])
    seen = batches.flatten(0, 1)
    expected = (batches[-1] - seen.mean(0)) / (seen.var(0) + 1e-5).sqrt()
    assert np.allclose(last, expected, atol=0.05)
    assert "moments.mean" in contrast.state_dict()


def test_repeated_next_observations_are_counted_and_left_out_if_asked_for() -> None:
    plain, masked = agent_of(), agent_of(spectral={"mask_duplicates": True})
    batch, told = repeated_batch(), []
    contrast: Any = masked.contrast
    loss = contrast.loss
    contrast.loss = lambda *given: (told.append(given[3]), loss(*given))[1]
    one, other = plain.update(batch, 0), masked.update(batch, 0)
    assert float(one["duplicates"]) == float(other["duplicates"]) == 2 / SIZE
    assert {tuple(pair) for pair in told[0].nonzero().tolist()} == {(0, 1), (1, 0)}
    # One of 8 columns is gone in two of 8 rows: near the start a row's loss falls by log(8 / 7).
    gap = float(one["nce_loss"] - other["nce_loss"])
    assert gap == pytest.approx(2 / SIZE * math.log(8 / 7), rel=0.5)
    assert float(plain.update(pixel_batch(1), 0)["duplicates"]) == 0.0


# --- its place among the agents -------------------------------------------------------------------------------------


def test_encoders_start_as_those_of_drqv2() -> None:
    for seed in (0, 3):
        drqv2: Any = small_pixel_agent("drqv2", seed).backbone.encoder
        own: Any = agent_of(seed=seed).fast.encoder[0]
        assert not moved(dict(own.named_parameters()), dict(drqv2.named_parameters()))


def test_acting_sees_the_picture_unshifted_and_evaluation_draws_nothing() -> None:
    agent = agent_of()
    stack = np.random.default_rng(0).integers(0, 256, IMAGE, dtype=np.uint8)
    before = copied(agent)
    with torch.no_grad():
        expected = agent.fast.actor(agent.fast.encoder(torch.from_numpy(stack)[None])).numpy()[0]
    for _ in range(2):
        assert np.array_equal(agent.act(stack, NO_SKILL, 0, explore=False), expected)
    assert not moved(before, copied(agent))


def test_noise_follows_its_schedule_when_acting_and_when_learning() -> None:
    agent = agent_of(backbone={"noise": "linear(1.0,0.0,100)"})
    stack = np.zeros(IMAGE, np.uint8)
    mean = agent.act(stack, NO_SKILL, 0, explore=False)
    spread = {
        step: np.std([agent.act(stack, NO_SKILL, step, explore=True) - mean for _ in range(300)])
        for step in (0, 50, 100)
    }
    assert spread[100] == 0.0 and 0.35 < spread[50] < 0.55 < 0.6 < spread[0]
    agent.update(pixel_batch(), 25)
    assert agent.sigma == pytest.approx(0.75)
    action = agent._noisy(torch.zeros(1000, ACTIONS))
    assert 0.2 < float(action.std()) < float(action.abs().max()) == pytest.approx(0.3)


def test_windows_of_one_step_are_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, encoded = agent_of(backbone={"n_step": 1}), []
    assert agent.sampling is not None and agent.sampling.n_step == 1
    forward = agent.slow.encoder.forward
    monkeypatch.setattr(agent.slow.encoder, "forward", lambda x: (encoded.append(len(x)), forward(x))[1])
    metrics = agent.update(pixel_batch(n=1), 0)
    assert encoded == [SIZE] * 2 and all(bool(value.isfinite()) for value in metrics.values())


def test_bfloat16_products_stay_near_float32() -> None:
    exact, rounded = agent_of(), agent_of(compute=torch.bfloat16)
    for seed in range(3):
        one, other = (agent.update(pixel_batch(seed), 0) for agent in (exact, rounded))
        for name in ("q_mean", "nce_loss"):
            assert float(one[name]) == pytest.approx(float(other[name]), abs=0.1)
    assert all(
        p.dtype == torch.float32 for module in (rounded.fast, rounded.contrast) for p in module.parameters()
    )


def test_defaults_are_those_of_the_papers() -> None:
    config = PIXEL_AGENTS["ctrlsr"].presets["paper"]
    own, backbone = dataclasses.asdict(config.spectral), config.backbone
    assert own == {
        "feature_dim": 512,
        "hidden": 512,
        "residual_blocks": 2,
        "fourier_pairs": 512,
        "noise_levels": 25,
        "beta_min": 0.1,
        "beta_max": 10.0,
        "level_width": 128,
        "feature_lr": 1e-4,
        "reward_weight": 1.0,
        "critic_weight": 1.0,
        "mask_duplicates": False,
    }
    assert (backbone.batch_size, backbone.width, backbone.lr, backbone.gamma) == (256, 512, 1e-4, 0.97)
    assert (backbone.n_step, backbone.tau, backbone.noise_clip) == (3, 0.01, 0.3)
    assert config.encoder.critic_grad_to_encoder and config.encoder.latent_dim == 50


@pytest.mark.parametrize(
    ("part", "fields", "said"),
    [
        ("backbone", {"batch_size": 1}, "batch_size: a contrast needs at least 2 windows, got 1"),
        (
            "encoder",
            {"latent_layout": "critic_trunk"},
            "latent_layout: .* 'shared_trunk', got 'critic_trunk'",
        ),
        (
            "encoder",
            {"explorer_grad_to_encoder": True},
            "explorer_grad_to_encoder: .* must be None, got True",
        ),
        ("spectral", {"level_width": 7}, "level_width: must be even and at least 4, got 7"),
        ("spectral", {"noise_levels": 0}, "noise_levels: must be above 0, got 0"),
        ("spectral", {"beta_min": 11.0}, r"beta_min: must lie in \[0, 10\], got 11"),
    ],
)
def test_values_that_cannot_work_are_refused(part: str, fields: dict[str, Any], said: str) -> None:
    changes: dict[str, Any] = {part: fields}
    with pytest.raises(ValueError, match=said):
        agent_of(**changes)
