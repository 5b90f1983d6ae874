"""What every explorer must keep to when it is shown latents of pictures; a new entry is picked up by itself."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from pixel_setup import (
    IMAGE,
    SIZE,
    moved,
    parameters,
    parts_of,
    pixel_batch,
    small_pixel_agent,
    steps_of,
)
from torch import Tensor

from teb.agents.compose import ComposedAgent
from teb.agents.protocol import Batch, Paid
from teb.agents.registry import REPRESENTED
from teb.explorers import REGISTRY
from teb.nets.dynamics import ForwardInverse

every_explorer = pytest.mark.parametrize("name", REGISTRY)
with_companions = pytest.mark.parametrize(
    "name", [*REGISTRY, *(f"{name}{REPRESENTED}" for name in ("icm", "cesd", "protorl"))]
)

TRAINS_ENCODER = {"icm", "disagreement", "protorl", "apt"}
"""Those whose loss steps the encoder in URLB, and nothing speaks against it."""
READS_THE_END_ALONE = {"diayn", "becl"}
"""Those whose loss could not train the encoder: it does not depend on o_t, the one latent that carries a gradient."""
CALIBRATED = {"icm", "rnd", "disagreement", "protorl", "lbs", "apt", "eme", "cesd"}
"""Those that pay without end; differences of potentials and the skill methods beside CeSD keep their own size."""


def explorer_of(name: str) -> str:
    return name.removesuffix(REPRESENTED)


def batch_for(agent: ComposedAgent, seed: int = 0) -> Batch:
    """Random pictures as this agent asks for them, under skills of its kind."""
    assert agent.sampling is not None
    size, n, width = agent.sampling.batch_size, agent.sampling.n_step, agent.skills.width
    batch = pixel_batch(seed, size=size, n=n, skill=width)
    rng = np.random.default_rng(seed)
    return batch._replace(skill=torch.from_numpy(np.stack([agent.skills.draw(rng) for _ in range(size)])))


def updated(name: str, updates: int = 1, **changes: Any) -> ComposedAgent:
    agent = small_pixel_agent(name, **changes)
    for seed in range(updates):
        agent.update(batch_for(agent, seed), seed)
    return agent


# --- gradients ------------------------------------------------------------------------------------------------------


@with_companions
@pytest.mark.parametrize("own", [True, False])
def test_the_explorer_s_loss_trains_the_encoder_exactly_if_it_says_so(
    name: str, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = small_pixel_agent(name)
    if agent.explorer_optimiser is None or name in READS_THE_END_ALONE:
        with pytest.raises(
            ValueError, match=r"^explorer_grad_to_encoder: .* no loss that depends on o_t, got True"
        ):
            small_pixel_agent(name, encoder={"explorer_grad_to_encoder": True})
    if agent.explorer_optimiser is None:
        return
    trained = (explorer_of(name) in TRAINS_ENCODER) == own and name not in READS_THE_END_ALONE
    if not own and name not in READS_THE_END_ALONE:
        changed = not agent.explorer_trains_encoder
        agent = small_pixel_agent(name, encoder={"explorer_grad_to_encoder": changed})
    reached = [parts_of(names) for names in steps_of(agent, batch_for(agent), monkeypatch)]
    if agent.representation_optimiser:
        assert reached.pop(0) == {"representation", "backbone.encoder"}
    batches = agent.explorer.traits.batches
    learning, acting, closing = reached[:batches], reached[batches : batches + 2], reached[batches + 2 :]
    assert learning == [{"explorer", "backbone.encoder"} if trained else {"explorer"}] * batches
    assert acting == [{"backbone.critic", "backbone.encoder"}, {"backbone.actor"}]
    assert closing in ([], [{"explorer"}])


@pytest.mark.parametrize("name", sorted(TRAINS_ENCODER))
def test_the_loss_s_gradient_reaches_every_layer_between_picture_and_latent(name: str) -> None:
    agent = small_pixel_agent(name)
    shown = agent.look(batch_for(agent)).shown(agent.explorer.traits.reads, gradient=True)
    loss, _ = agent.explorer.loss(shown, agent.policy, agent.exploring)
    found = torch.autograd.grad(loss, agent.backbone.encoder_parameters())
    assert all(bool(gradient.isfinite().all()) and bool(gradient.any()) for gradient in found)


@pytest.mark.parametrize("silenced", ["forward_error", "inverse_error"])
def test_each_of_icm_s_errors_reaches_the_encoder_by_itself(
    silenced: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = lambda *_: torch.zeros(SIZE, 1)  # noqa: E731
    monkeypatch.setattr(ForwardInverse, silenced, silent)
    agent = small_pixel_agent("icm")
    sight = agent.look(pixel_batch())
    loss, _ = agent.explorer.loss(sight.shown((0, -1), gradient=True), agent.policy, agent.exploring)
    assert all(bool(g.any()) for g in torch.autograd.grad(loss, agent.backbone.encoder_parameters()))


@every_explorer
def test_without_weight_and_gradient_the_backbone_is_the_plain_one_bit_for_bit(name: str) -> None:
    closed = {"explorer_grad_to_encoder": False}
    agent, plain = small_pixel_agent(name, encoder=closed), small_pixel_agent("eta0")
    traits = agent.explorer.traits
    if (
        traits.skills.width
        or traits.critic
        or agent.representation_optimiser
        or agent.sampling != plain.sampling
    ):
        return
    agent.explorer.traits = traits._replace(eta=0.0)
    for seed in range(2):
        batch = batch_for(agent, seed)
        agent.update(batch, seed)
        plain.update(batch, seed)
    assert not moved(plain.backbone.state_dict(), agent.backbone.state_dict())


# --- what is read and paid ------------------------------------------------------------------------------------------


@every_explorer
def test_latents_that_are_not_read_are_nan_and_bonus_and_loss_are_finite(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = updated(name)
    assert agent.sampling is not None
    n, reads = agent.sampling.n_step, agent.explorer.traits.reads
    read = set(range(n + 1)) if reads is None else {step % (n + 1) for step in reads}
    assert read <= {0, 1, n} or agent.explorer.traits.per_step
    shown: list[Batch] = []
    for verb in ("loss", "reward", "after_step"):
        asked = getattr(agent.explorer, verb)

        def spy(batch: Batch, *others: Any, asked: Any = asked) -> Any:
            shown.append(batch)
            return asked(batch, *others)

        monkeypatch.setattr(agent.explorer, verb, spy)
    metrics = agent.update(batch_for(agent, 7), 0)
    assert all(bool(value.isfinite()) for value in metrics.values()), metrics
    pay = type(agent.explorer).reward
    for batch in shown:
        if not agent.explorer.traits.per_step:
            known = [bool(batch.window_obs[:, step].isfinite().all()) for step in range(n + 1)]
            assert known == [step in read for step in range(n + 1)]
        paid = pay(agent.explorer, batch, agent.policy, agent.exploring)
        assert paid.bonus.shape == (len(batch.reward), 1) and paid.bonus.dtype == torch.float32
        assert bool(paid.bonus.isfinite().all()) and not paid.bonus.requires_grad


@pytest.mark.parametrize("name", ["liberty", "eme"])
def test_what_is_encoded_for_an_explorer_alone_is_read(name: str) -> None:
    """The latents of o_t and o_{t+n} cost nothing: actor and critic need the features."""
    agent = small_pixel_agent(name)
    reads = agent.explorer.traits.reads
    assert reads is not None and set(reads) - {0, -1} == {1}
    shown = agent.look(batch_for(agent)).shown(reads)
    window = shown.window_obs.clone()
    window[:, 1] += 1.0
    losses = [
        agent.explorer.loss(batch, agent.policy, torch.Generator().manual_seed(0))[0]
        for batch in (shown, shown._replace(window_obs=window))
    ]
    assert not torch.equal(*losses)


@pytest.mark.parametrize(
    ("changes", "beta"), [({}, 0.01), ({"variant": "port"}, 1.0), ({"variant": "port", "beta": 0.3}, 0.3)]
)
def test_lbs_weighs_the_divergence_as_its_authors_do_for_images(changes: dict[str, Any], beta: float) -> None:
    explorer: Any = small_pixel_agent("lbs", explorer=changes).explorer
    assert explorer.beta == beta


# --- state ----------------------------------------------------------------------------------------------------------


@with_companions
def test_a_fresh_agent_goes_on_from_a_state_bit_for_bit(name: str) -> None:
    first, fresh = updated(name), small_pixel_agent(name, seed=9)
    fresh.load(copy.deepcopy(first.state()))
    for seed in (1, 2):
        one, other = (agent.update(batch_for(agent, seed), seed) for agent in (first, fresh))
        assert one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)
    assert not moved(parameters(first), parameters(fresh))
    for part, module in first._modules().items():
        assert not moved(module.state_dict(), fresh._modules()[part].state_dict())
    stack, skill = np.zeros(IMAGE, np.uint8), first.skills.draw(np.random.default_rng(0))
    one, other = (agent.act(stack, skill, 0, explore=True) for agent in (first, fresh))
    assert np.array_equal(one, other)


# --- the size of the bonus --------------------------------------------------------------------------------------------


@every_explorer
def test_a_bonus_without_end_is_small_beside_a_task_s_reward_at_first(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = small_pixel_agent(name)
    assert (agent.calibration is not None) == (name in CALIBRATED)
    if agent.calibration is None:
        return
    paid: list[Tensor] = []
    earned: list[Tensor] = []
    critic_loss, pay = agent.backbone.critic_loss, agent.pay

    def spied_loss(batch: Batch, reward: Tensor, *others: Any) -> Any:
        earned.append(reward - batch.reward)
        return critic_loss(batch, reward, *others)

    def spied_pay(shown: Batch) -> Paid:
        told = pay(shown)
        paid.append(told.bonus)
        return told

    monkeypatch.setattr(agent.backbone, "critic_loss", spied_loss)
    monkeypatch.setattr(agent, "pay", spied_pay)
    for seed in range(2):
        factor = float(agent.update(batch_for(agent, seed), 0)["bonus_factor"])
        size = float(torch.stack(paid).abs().mean())
        assert factor == pytest.approx(0.05 / size if size else 1.0, rel=1e-4)
        assert torch.allclose(earned[-1], agent.explorer.traits.eta * factor * paid[-1], atol=1e-6)
