from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from teb.maths.gaussian import SigmaParam
from teb.nets.metric import (
    TRANSITION_SIGMA,
    LatentDynamics,
    MetricModels,
    Prediction,
    Transition,
    inverse_dynamics,
)
from teb.nets.mlp import initialised_from


def models(
    transition: Transition = "gaussian", sigma_param: SigmaParam = "affine_sigmoid", hidden: int = 16
) -> MetricModels:
    with initialised_from(0):
        return MetricModels(
            3, 2, hidden=hidden, sigma_range=(1e-4, 1.0), sigma_param=sigma_param, transition=transition
        )


def inputs(batch: int = 8, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(1)
    return scale * torch.randn(batch, 3, generator=rng), torch.rand(batch, 2, generator=rng)


def test_shapes_and_ranges_of_predictions() -> None:
    prediction = models()(*inputs(scale=1e3))
    assert [tuple(x.shape) for x in prediction] == [(8, 1), (8, 1), (8, 3), (8, 3)]
    low, high = TRANSITION_SIGMA
    assert bool(((prediction.reward_sigma >= 1e-4) & (prediction.reward_sigma <= 1.0)).all())
    assert bool(((prediction.next_sigma >= low) & (prediction.next_sigma <= high)).all())


def test_deterministic_transition_has_no_spread_and_half_as_many_outputs() -> None:
    gaussian, deterministic = models("gaussian"), models("deterministic")
    prediction = deterministic(*inputs())
    assert bool((prediction.next_sigma == 0).all())
    counts = [sum(p.numel() for p in m.transition.parameters()) for m in (gaussian, deterministic)]
    assert counts[0] - counts[1] == 3 * (16 + 1)


def test_models_have_the_declared_shape() -> None:
    net = models(hidden=512)
    reward = (5 * 512 + 512) + 2 * 512 + (512 * 2 + 2)
    transition = (5 * 512 + 512) + 2 * 512 + (512 * 6 + 6)
    assert sum(p.numel() for p in net.parameters()) == reward + transition


def test_reward_loss_is_the_mean_likelihood_of_scipy() -> None:
    net = models()
    prediction, target = net(*inputs()), torch.linspace(-1, 1, 8).unsqueeze(1)
    mean, sigma = (x.detach().numpy() for x in prediction[:2])
    expected = -stats.norm.logpdf(target.numpy(), mean, sigma).mean() - 0.5 * math.log(2 * math.pi)
    assert float(net.reward_loss(prediction, target).detach()) == pytest.approx(expected, rel=1e-4)


def test_transition_losses_against_scipy_and_half_the_squared_error() -> None:
    following = torch.randn(8, 3, generator=torch.Generator().manual_seed(2))
    net = models()
    prediction = net(*inputs())
    mean, sigma = (x.detach().numpy() for x in prediction[2:])
    expected = -stats.norm.logpdf(following.numpy(), mean, sigma).mean() - 0.5 * math.log(2 * math.pi)
    assert float(net.transition_loss(prediction, following).detach()) == pytest.approx(expected, rel=1e-4)

    net = models("deterministic")
    prediction = net(*inputs())
    half = 0.5 * np.square(following.numpy() - prediction.next.detach().numpy()).mean()
    assert float(net.transition_loss(prediction, following).detach()) == pytest.approx(half, rel=1e-5)


@pytest.mark.parametrize("transition", ["gaussian", "deterministic"])
def test_transition_loss_trains_its_input_and_its_own_model_but_not_the_next_latent(
    transition: Transition,
) -> None:
    net = models(transition)
    latent, action = inputs()
    latent.requires_grad_()
    following = torch.randn(8, 3).requires_grad_()
    net.transition_loss(net(latent, action), following * 1.0).backward()
    assert following.grad is None
    assert latent.grad is not None and bool((latent.grad != 0).any())
    assert all(p.grad is not None for p in net.transition.parameters())
    assert all(p.grad is None for p in net.reward.parameters())


def test_reward_loss_leaves_the_transition_model_alone() -> None:
    net = models()
    net.reward_loss(net(*inputs()), torch.zeros(8, 1)).backward()
    assert all(p.grad is not None for p in net.reward.parameters())
    assert all(p.grad is None for p in net.transition.parameters())


def trained_on(target: Tensor, updates: int) -> Prediction:
    """What the reward predictor says after some steps on targets that its inputs say nothing about."""
    net, (latent, action) = models(hidden=32), inputs(len(target))
    optimiser = torch.optim.Adam(net.reward.parameters(), lr=3e-3)
    for _ in range(updates):
        optimiser.zero_grad()
        net.reward_loss(net(latent, action), target).backward()
        optimiser.step()
    with torch.no_grad():
        return net(latent, action)


def test_predictor_trained_on_zeros_becomes_certain_of_zero() -> None:
    prediction = trained_on(torch.zeros(32, 1), 500)
    assert float(prediction.reward.abs().max()) < 0.05
    assert float(prediction.reward_sigma.max()) < 0.1


def test_predictor_trained_on_noise_finds_its_standard_deviation() -> None:
    target = 0.3 * torch.randn(1024, 1, generator=torch.Generator().manual_seed(3))
    prediction = trained_on(target, 250)
    assert float(prediction.reward.mean()) == pytest.approx(float(target.mean()), abs=0.02)
    assert float(prediction.reward_sigma.mean()) == pytest.approx(0.3, abs=0.03)


def test_sampled_rewards_and_next_latents_follow_the_predicted_normals() -> None:
    size = 20_000
    prediction = Prediction(
        torch.full((size, 1), 0.5),
        torch.full((size, 1), 0.2),
        torch.full((size, 2), -1.0),
        torch.full((size, 2), 3.0),
    )
    rng = torch.Generator().manual_seed(0)
    reward, following = prediction.sampled_reward(rng), prediction.drawn_next(rng)
    assert reward.shape == (size, 1) and following.shape == (size, 2)
    assert stats.kstest(reward.flatten().numpy(), stats.norm(0.5, 0.2).cdf).pvalue > 1e-3
    assert stats.kstest(following.flatten().numpy(), stats.norm(-1.0, 3.0).cdf).pvalue > 1e-3


@pytest.mark.parametrize("kind", ["affine_sigmoid", "clamp", "bounded_log"])
def test_reward_sigma_obeys_its_parametrisation(kind: SigmaParam) -> None:
    net = models(sigma_param=kind)
    latent, action = inputs()
    raw = net.reward(torch.cat([latent, action], 1)).detach().numpy()[:, 1:]
    logistic = 1 / (1 + np.exp(-raw))
    expected = {
        "affine_sigmoid": 1e-4 + (1 - 1e-4) * logistic,
        "clamp": np.clip(raw, 1e-4, 1.0),
        "bounded_log": 1e-4 ** (1 - logistic),
    }[kind]
    assert np.allclose(net(latent, action).reward_sigma.detach().numpy(), expected, rtol=1e-4)


# --- models of RAP and DBC ------------------------------------------------------------------------------------------


def dynamics(transition: Transition = "gaussian", radius: float = math.inf) -> LatentDynamics:
    with initialised_from(0):
        return LatentDynamics(
            3, 2, hidden=16, transition=transition, sigma_range=(0.2, 0.9), reward_decoder=True, radius=radius
        )


@pytest.mark.parametrize("transition", ["gaussian", "deterministic"])
def test_dynamics_lose_the_likelihood_of_the_next_latent_and_the_error_of_a_reward_decoded_from_a_draw(
    transition: Transition,
) -> None:
    model, (latent, action) = dynamics(transition), inputs()
    following, reward = latent.flip(0), action[:, :1]
    loss, (mean, sigma), metrics = model.loss(
        latent, action, following, reward, torch.Generator().manual_seed(7)
    )
    noise = torch.randn(mean.shape, generator=torch.Generator().manual_seed(7))
    assert model.decoder is not None
    error = (model.decoder(mean + sigma * noise) - reward).square().mean()
    # The constant of the density is left out; a point prediction counts as a normal of deviation 1.
    spread = sigma if transition == "gaussian" else torch.ones_like(sigma)
    density = stats.norm.logpdf(following.numpy(), mean.numpy(), spread.numpy())
    nll = -float(density.mean()) - 0.5 * math.log(2 * math.pi)
    assert float(metrics["transition_nll"]) == pytest.approx(nll, rel=1e-4)
    assert float(loss.detach()) == pytest.approx(nll + float(error.detach()), rel=1e-4)
    assert not mean.requires_grad and not sigma.requires_grad
    assert transition == "deterministic" or bool(((sigma >= 0.2) & (sigma <= 0.9)).all())


def test_means_and_draws_of_dynamics_stay_within_their_radius() -> None:
    model, free, seen = dynamics(radius=0.1), dynamics(), []
    (latent, action), rng = inputs(), torch.Generator()
    assert model.decoder is not None
    model.decoder.register_forward_pre_hook(lambda _, given: seen.append(given[0].norm(dim=-1)))
    model.loss(latent, action, latent, action[:, :1], rng)
    assert torch.allclose(model(latent, action)[0].norm(dim=-1), torch.full((8,), 0.1))
    assert bool((free(latent, action)[0].norm(dim=-1) > 0.1).all())
    assert len(seen) == 1 and bool((seen[0] <= 0.1 + 1e-6).all())


def test_inverse_dynamics_has_two_layers_and_one_output_per_action() -> None:
    net = inverse_dynamics(3, 2)
    assert [tuple(p.shape) for p in net.parameters() if p.ndim == 2] == [(256, 6), (128, 256), (2, 128)]
    assert net(torch.zeros(4, 6)).shape == (4, 2)
