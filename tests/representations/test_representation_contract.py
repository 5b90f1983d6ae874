"""What every representation keeps to, found by the registry."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from latent_setup import GAMMA, SHAPES, B, D, generator, latents, policy

from teb.agents.protocol import Batch
from teb.nets.mlp import initialised_from
from teb.representations import REPRESENTATIONS

SHAPING = {name: entry for name, entry in REPRESENTATIONS.items() if name != "none"}
READINGS = [(name, reading) for name, entry in SHAPING.items() for reading in ("default", *entry.readings)]


def built(name: str, reading: str = "default", **changes: Any) -> Any:
    entry = SHAPING[name]
    known = {field.name for field in dataclasses.fields(entry.config)}
    small = {"pred_hidden": 16} if "pred_hidden" in known else {}
    config = dataclasses.replace(entry.config, **{**small, **entry.readings.get(reading, {}), **changes})
    with initialised_from(0):
        return entry.build(config, SHAPES, gamma=GAMMA, n_step=3)


def seen(point: float | None = None, scale: float = 1.0) -> Batch:
    """A batch of random latents, or of one latent alone."""
    batch = latents()
    window = scale * batch.window_obs if point is None else torch.full_like(batch.window_obs, point)
    obs = window[:, 0].clone().requires_grad_()
    return batch._replace(obs=obs, window_obs=window, next_obs=window[:, -1], reward=batch.rewards[:, :1])


@pytest.mark.parametrize(("name", "reading"), READINGS)
@pytest.mark.parametrize("batch", [seen(), seen(0.0), seen(1.0), seen(scale=1e4)], ids=["", "0", "1", "1e4"])
def test_losses_and_gradients_are_finite_and_metrics_carry_none(
    name: str, reading: str, batch: Batch
) -> None:
    model, batch = built(name, reading), batch._replace(obs=batch.obs.detach().clone().requires_grad_())
    loss, metrics = model.loss(batch, policy, generator())
    loss.backward()
    assert loss.shape == () and bool(loss.isfinite())
    assert batch.obs.grad is not None and bool(batch.obs.grad.isfinite().all())
    assert all(value.shape == () and bool(value.isfinite()) for value in metrics.values()), metrics
    assert not any(value.requires_grad for value in metrics.values())
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())


@pytest.mark.parametrize(("name", "reading"), READINGS)
def test_what_tells_of_a_collapse_is_logged(name: str, reading: str) -> None:
    batch = seen()
    _, metrics = built(name, reading).loss(batch, policy, generator())
    z = batch.obs.detach().double().numpy()
    assert float(metrics["latent_norm"]) == pytest.approx(((z**2).sum(1) ** 0.5).mean(), rel=1e-5)
    assert float(metrics["latent_std"]) == pytest.approx(z.std(0, ddof=1).mean(), rel=1e-5)
    assert {"metric_distance", "metric_target", "bisim_loss"} <= metrics.keys()


@pytest.mark.parametrize(("name", "reading"), READINGS)
def test_it_trains_the_latent_of_now_and_all_of_its_models_and_no_other_latent(
    name: str, reading: str
) -> None:
    model, batch = built(name, reading), seen()
    window = batch.window_obs.clone().requires_grad_()
    batch = batch._replace(window_obs=window, next_obs=window[:, -1])
    model.loss(batch, policy, generator())[0].backward()
    assert model.traits.trains_encoder and batch.obs.grad is not None and bool(batch.obs.grad.any())
    assert window.grad is None or not bool(window.grad.any())
    learnt = {id(p) for group in model.parameter_groups() for p in group["params"]}
    for key, p in model.named_parameters():
        assert (p.grad is not None and bool(p.grad.any())) == (id(p) in learnt) == p.requires_grad, key


@pytest.mark.parametrize(("name", "reading"), READINGS)
def test_the_same_state_batch_and_generator_give_the_same_loss(name: str, reading: str) -> None:
    model, batch = built(name, reading), seen()
    one, other = (model.loss(batch, policy, generator(5))[0] for _ in range(2))
    assert torch.equal(one, other)


@pytest.mark.parametrize(("name", "reading"), READINGS)
def test_it_reads_the_latents_that_its_traits_name_and_no_other(name: str, reading: str) -> None:
    model, batch = built(name, reading), seen()
    steps = {step % 4 for step in model.traits.reads}
    window = batch.window_obs.clone()
    for step in {0, 1, 2, 3} - steps:
        window[:, step] = torch.nan
    blind = batch._replace(window_obs=window, next_obs=window[:, -1], first_obs=torch.full((1, D), torch.nan))
    losses = [model.loss(shown, policy, generator())[0] for shown in (batch, blind)]
    assert torch.equal(*losses)
    rewards = batch.rewards.clone()
    rewards[:, model.traits.horizon :] = torch.nan
    assert torch.equal(losses[0], model.loss(batch._replace(rewards=rewards), policy, generator())[0])


@pytest.mark.parametrize("name", ["rap", "dbc", "mico"])
@pytest.mark.parametrize("when", ["after", "before", "joint"])
def test_its_step_may_be_after_the_critic_s_before_it_or_joined_to_it(name: str, when: str) -> None:
    traits = built(name, rep_update=when).traits
    assert (traits.after_critic, traits.joint) == (when == "after", when == "joint")


@pytest.mark.parametrize("name", ["rap", "dbc"])
@pytest.mark.parametrize(
    "changes",
    [
        {"pairing": "derange"}, {"pairing": "all"}, {"transition": "deterministic"}, {"reward_decoder": False},
        {"detach_second": True}, {"aux_horizon": "n"}, {"c_t": 0.5}, {"rep_grad_clip": 40.0},
    ],
    ids=str,
)  # fmt: skip
def test_every_option_of_both_changes_what_is_learnt(name: str, changes: dict[str, Any]) -> None:
    batch = seen()._replace(reward=latents(1).rewards[:, :1])
    gradients = []
    for model in (built(name), built(name, **changes)):
        obs = batch.obs.detach().clone().requires_grad_()
        model.loss(batch._replace(obs=obs), policy, generator())[0].backward()
        assert obs.grad is not None and bool(obs.grad.isfinite().all())
        gradients.append(obs.grad)
    assert torch.equal(*gradients) == ("rep_grad_clip" in changes)
    assert built(name, **changes).traits.grad_clip == changes.get("rep_grad_clip", 0.0)
    assert gradients[0].shape == (B, D)
