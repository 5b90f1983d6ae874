"""DBC: the loss as printed and as coded against loops over pairs, when latents collapse, and the robust remedies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from latent_setup import GAMMA, SHAPES, B, D, generator, latents, policy
from torch import Tensor

from teb.agents.protocol import Shapes
from teb.nets.mlp import initialised_from
from teb.representations.dbc import PUBLISHED, ROBUST, Dbc, DbcConfig


def dbc(shapes: Shapes = SHAPES, **changes: Any) -> Dbc:
    with initialised_from(0):
        return Dbc(DbcConfig(**{"pred_hidden": 16, **changes}), shapes, gamma=GAMMA, n_step=3)


def said(width: int = D, rewards: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    rng = generator(3)
    mean, spread = 2 * torch.randn(B, width, generator=rng), torch.rand(B, width, generator=rng)
    return rewards * torch.randn(B, 1, generator=rng), mean, spread


def huber(x: float) -> float:
    return 0.5 * x**2 if abs(x) < 1 else abs(x) - 0.5


def by_loops(z: Tensor, predicted: tuple[Tensor, ...], form: str, following: str, c_r: float) -> float:
    points = z.detach().double().numpy()
    reward, mean, spread = (x.double().numpy() for x in predicted)
    errors = []
    for i in range(B):
        for j in range(B):
            difference, r = points[i] - points[j], reward[i, 0] - reward[j, 0]
            dm, ds = mean[i] - mean[j], spread[i] - spread[j]
            if form == "huber":
                for d in range(D):
                    w = np.hypot(dm[d], ds[d]) if following == "w2" else huber(dm[d]) + huber(ds[d])
                    errors.append(huber(difference[d]) - c_r * huber(r) - GAMMA * w)
            else:
                norm = np.abs(difference).sum() if form == "l1" else np.sqrt(difference @ difference)
                errors.append(norm - c_r * abs(r) - GAMMA * np.sqrt(dm @ dm + ds @ ds))
    return float(np.square(errors).mean())


@pytest.mark.parametrize(
    ("form", "following"), [("huber", "w2"), ("huber", "huber"), ("l1", "w2"), ("l2", "w2")]
)
def test_the_metric_loss_is_that_of_loops_over_all_pairs(
    form: Any, following: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = dbc(pairing="all", latent_dist=form, next_dist=following, c_r=0.7)
    batch, predicted = latents(), said()
    learnt = model.models_loss(batch, generator())
    monkeypatch.setattr(model, "models_loss", lambda *_: learnt._replace(said=predicted))
    _, metrics = model.loss(batch, policy, generator())
    assert float(metrics["bisim_loss"]) == pytest.approx(
        by_loops(batch.obs, predicted, form, following, 0.7), rel=1e-4
    )


def test_the_whole_loss_is_half_the_metric_s_and_both_of_its_models() -> None:
    loss, metrics = dbc().loss(latents(), policy, generator())
    expected = 0.5 * metrics["bisim_loss"] + metrics["transition_nll"] + metrics["decoder_error"]
    assert torch.allclose(loss, expected)


@pytest.mark.parametrize("changes", [{}, PUBLISHED, {"next_dist": "huber"}])
def test_equal_rewards_and_predictions_have_target_zero(changes: dict[str, Any]) -> None:
    _, mean, spread = said()
    equal = (torch.zeros(B, 1), mean[:1].expand(B, D), spread[:1].expand(B, D))
    found = dbc(**changes).regressed(latents(), equal, policy, generator())
    assert bool((found.target == 0).all()) and found.target.shape == found.distance.shape


def test_in_one_dimension_all_forms_are_one_where_differences_exceed_one() -> None:
    """Both Huber functions are then the absolute value less a half, and the two halves cancel."""
    order = torch.randperm(B, generator=generator())
    batch = latents()._replace(obs=2.0 * torch.arange(B).float().view(B, 1))
    predicted = (3.0 * order.float().view(B, 1), *said(1)[1:])
    errors = []
    for form in ("huber", "l1", "l2"):
        model = dbc(Shapes(1, 2), latent_dist=form, pairing="derange")
        found = model.regressed(batch, predicted, policy, generator())
        errors.append((found.distance - found.target).flatten())
    assert torch.allclose(errors[0], errors[1], atol=1e-4) and torch.allclose(errors[1], errors[2], atol=1e-4)


def test_the_gradient_runs_through_both_of_a_pair_and_never_into_predictions_or_the_next_latent() -> None:
    batch = latents()
    window = batch.window_obs.clone().requires_grad_()
    model = dbc(inverse_weight=1.0)
    model.loss(batch._replace(window_obs=window), policy, generator())[0].backward()
    assert window.grad is None or not bool(window.grad.any())
    metric, other = dbc(lambda_p=0.0), latents()
    metric.loss(other, policy, generator())[0].backward()
    assert all(p.grad is None or not bool(p.grad.any()) for p in metric.parameters())
    single, detached = latents(), dbc(lambda_p=0.0, detach_second=True)
    detached.loss(single, policy, generator())[0].backward()
    assert other.obs.grad is not None and single.obs.grad is not None
    assert not torch.allclose(other.obs.grad, single.obs.grad)


# --- collapse -------------------------------------------------------------------------------------------------------


def spread_kept(scale: float, steps: int = 600, **changes: Any) -> float:
    """How much of their variance free latents keep without reward, next latents being those of other ones."""
    rng = generator(1)
    latent = (scale * torch.randn(B, D, generator=rng)).requires_grad_()
    model, batch = dbc(c_t=0.5, **changes), latents(rewards=0.0)
    optimiser = torch.optim.Adam([latent], 0.02 * scale)
    start = float(latent.detach().var(0).mean())
    for step in range(steps):
        following = latent.detach()[torch.randperm(B, generator=rng)]
        predicted = (torch.zeros(B, 1), following, torch.zeros(B, D))
        found = model.regressed(batch._replace(obs=latent), predicted, policy, generator(step))
        optimiser.zero_grad()
        (found.distance - found.target).square().mean().backward()
        optimiser.step()
    return float(latent.detach().var(0).mean()) / start


@pytest.mark.parametrize("changes", [PUBLISHED, {"latent_dist": "l2"}, {"next_dist": "huber"}], ids=str)
@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_without_reward_latents_collapse(scale: float, changes: dict[str, Any]) -> None:
    assert spread_kept(scale, **changes) < 0.1


def test_in_the_form_of_the_released_code_small_latents_spread_without_reward() -> None:
    """d^2 / 2 of a small difference stands against c_t d of the next one, so nothing small is a fixed point."""
    assert spread_kept(0.1) > 2.0


# --- remedies -------------------------------------------------------------------------------------------------------


def test_the_cap_is_half_the_largest_distance_that_rewards_of_unit_range_leave() -> None:
    assert dbc(norm_cap=True).radius == pytest.approx(1 / (2 * (1 - GAMMA)))
    assert dbc(norm_cap=True, c_t=0.99).radius == pytest.approx(50.0)
    assert dbc(norm_cap=True, c_t=0.5, c_r=3.0).radius == pytest.approx(3.0)
    assert dbc().radius == math.inf


@pytest.mark.parametrize(("scale", "same"), [(0.01, True), (100.0, False)])
def test_small_latents_do_not_notice_the_cap_and_large_ones_are_compared_on_its_rim(
    scale: float, same: bool
) -> None:
    batch = latents()
    batch = batch._replace(
        obs=(scale * batch.obs.detach()).requires_grad_(), window_obs=scale * batch.window_obs
    )
    losses = []
    for cap in (False, True):
        model = dbc(norm_cap=cap, c_t=0.5, inverse_weight=1.0, reward_decoder=False)
        torch.nn.init.zeros_(model.dynamics.transition[-1].weight)  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]
        losses.append(model.loss(batch, policy, generator())[0])
        distance = model.regressed(batch, said(), policy, generator()).distance
        assert not cap or float(distance.detach().max()) <= 2 * model.radius
    assert torch.equal(*losses) == same


def test_predicted_means_are_capped_as_well() -> None:
    model, batch = dbc(norm_cap=True, c_t=0.5), latents()
    torch.nn.init.constant_(model.dynamics.transition[-1].bias, 7.0)  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]
    mean, _ = model.dynamics(batch.obs, batch.action)
    assert torch.allclose(mean.norm(dim=-1), torch.full((B,), 1.0))


def test_inverse_dynamics_is_the_mean_absolute_error_of_the_action_and_trains_the_latent() -> None:
    model, batch = dbc(inverse_weight=2.0, lambda_b=0.0, lambda_p=0.0), latents()
    loss, metrics = model.loss(batch, policy, generator())
    assert model.inverse is not None and model.traits.trains_encoder
    said = model.inverse(torch.cat([batch.obs, batch.window_obs[:, 1]], 1))
    assert torch.allclose(metrics["inverse_error"], (batch.action - said).abs().mean())
    assert torch.allclose(loss, 2.0 * metrics["inverse_error"])
    loss.backward()
    assert batch.obs.grad is not None and bool(batch.obs.grad.any())
    assert [group.get("weight_decay") for group in model.parameter_groups()] == [1e-7, 1e-5]


def test_every_model_is_in_one_group_and_the_robust_reading_has_all_remedies() -> None:
    model = dbc(**ROBUST)
    grouped = [p for group in model.parameter_groups() for p in group["params"]]
    assert len(grouped) == len(list(model.parameters())) == len({id(p) for p in grouped})
    assert model.inverse is not None and model.radius < math.inf
    assert dbc().inverse is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("c_r", 0.0),
        ("inverse_weight", -1.0),
        ("inverse_lr", 0.0),
        ("decoder_decay", -1.0),
        ("latent_dist", "l3"),
    ],
)
def test_impossible_values_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{field}: .*got "):
        DbcConfig(**{field: value})


def test_distances_per_dimension_do_not_stand_against_norms() -> None:
    with pytest.raises(ValueError, match=r"^next_dist: must be 'w2' .*'l1', got 'huber'"):
        DbcConfig(latent_dist="l1", next_dist="huber")
