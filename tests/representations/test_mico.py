"""MICo: all pairs against loops, its fixed point against the exact one, and who gets a gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from latent_setup import GAMMA, SHAPES, B, D, generator, latents, policy

from teb.maths.fixed_point import solve_mico
from teb.representations.mico import Mico, MicoConfig


def mico(gamma: float = GAMMA, **changes: Any) -> Mico:
    return Mico(MicoConfig(**changes), SHAPES, gamma=gamma, n_step=3)


def u(x: np.ndarray, y: np.ndarray, beta: float) -> float:
    cosine = np.clip(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)), -1, 1)
    return float(0.5 * (x @ x + y @ y) + beta * np.arccos(cosine))


def test_the_loss_is_that_of_loops_over_all_pairs() -> None:
    batch = latents()
    ahead = batch.obs.detach() + 0.3 * torch.randn(B, D, generator=generator(4))  # of the slow encoder
    batch = batch._replace(obs=ahead.requires_grad_(), reward=torch.randn(B, 1, generator=generator(2)))
    model = mico(mico_weight=0.2, beta=0.3)
    loss, metrics = model.loss(batch, policy, generator())
    online, window = batch.obs.detach().double().numpy(), batch.window_obs.double().numpy()
    reward = batch.reward.double().numpy()[:, 0]
    losses, targets = [], []
    for i in range(B):
        for j in range(B):
            target = abs(reward[i] - reward[j]) + GAMMA**3 * u(window[i, 3], window[j, 3], 0.3)
            error = u(online[i], window[j, 0], 0.3) - target
            losses.append(0.5 * error**2 if abs(error) < 1 else abs(error) - 0.5)
            targets.append(target)
    assert float(metrics["bisim_loss"]) == pytest.approx(np.mean(losses), rel=1e-4)
    assert float(metrics["metric_target"]) == pytest.approx(np.mean(targets), rel=1e-4)
    # (1 - w) L_TD + w L_MICo is (1 - w) times the critic's loss plus this.
    assert float(loss.detach()) == pytest.approx(0.2 / 0.8 * np.mean(losses), rel=1e-4)


def test_the_first_of_a_pair_gets_the_gradient_and_the_slow_latents_none() -> None:
    batch = latents()
    window = batch.window_obs.clone().requires_grad_()
    mico(mico_weight=0.5).loss(batch._replace(window_obs=window), policy, generator())[0].backward()
    assert batch.obs.grad is not None and bool(batch.obs.grad.any()) and window.grad is None


def test_gradients_are_finite_where_latents_coincide() -> None:
    for point in (torch.zeros(B, D), torch.ones(B, D)):
        obs = point.clone().requires_grad_()
        window = point.unsqueeze(1).expand(-1, 4, -1)
        mico(mico_weight=0.5).loss(latents()._replace(obs=obs, window_obs=window), policy, generator())[
            0
        ].backward()
        assert obs.grad is not None and bool(obs.grad.isfinite().all())


def test_a_latent_is_away_from_itself_by_its_squared_norm() -> None:
    x = torch.randn(B, D, generator=generator())
    diagonal = mico().distance(x, x).diagonal()
    assert torch.allclose(diagonal, x.square().sum(-1), atol=1e-4)


def test_one_window_more_or_less_changes_the_discount() -> None:
    batch = latents()
    targets = [
        mico().regressed(batch._replace(window_obs=window), None, policy, generator()).target
        for window in (batch.window_obs, batch.window_obs[:, [0, 3]])
    ]
    gap = (batch.reward - batch.reward.T).abs()
    assert torch.allclose((targets[0] - gap) * GAMMA**-2, targets[1] - gap, rtol=1e-4)


def test_regressing_free_numbers_on_the_sampled_target_finds_the_exact_metric() -> None:
    """The target's mean over sampled next states is the operator of independent couplings."""
    rng, states, gamma = np.random.default_rng(0), 4, 0.7
    kernel, reward = rng.dirichlet(np.ones(states), size=states), rng.normal(size=states)
    gap = np.abs(reward[:, None] - reward[None])
    exact = solve_mico(reward, kernel, 1.0, gamma).distance
    assert np.allclose(gap + gamma * kernel @ exact @ kernel.T, exact, atol=1e-6)
    # The same operator from the method's own target: every state sampled often, next states one-hot.
    table = torch.from_numpy(exact)
    start = torch.arange(states).repeat_interleave(400)
    draws = [
        torch.multinomial(torch.from_numpy(kernel[i]), 400, True, generator=generator(i)) for i in range(4)
    ]
    following = torch.cat(draws)
    model = mico(gamma)
    lookup: Any = lambda x, y: table[x[:, 0].long()][:, y[:, 0].long()]  # noqa: E731
    model.distance = lookup
    window = torch.stack([start, following], 1).unsqueeze(-1)
    batch = latents()._replace(
        obs=start.unsqueeze(-1), window_obs=window, reward=torch.from_numpy(reward)[start].unsqueeze(1)
    )
    target = model.regressed(batch, None, policy, generator()).target
    blocks = target.view(states, 400, states, 400).mean((1, 3)).numpy()
    assert np.allclose(blocks, exact, atol=0.1 * exact.max())


def test_without_reward_distances_fall_only_as_norms_do() -> None:
    rng = generator(1)
    x = torch.randn(B, D, generator=rng)
    sphere = torch.nn.functional.normalize(x)
    assert float(mico().distance(sphere, sphere).min()) >= 1.0 - 1e-5
    free, model = x.clone().requires_grad_(), mico(mico_weight=0.5)
    optimiser = torch.optim.Adam([free], 0.02)
    for step in range(500):
        slow = free.detach()
        order = torch.randperm(B, generator=rng)
        window = torch.stack([slow, slow, slow, slow[order]], 1)
        batch = latents()._replace(obs=free, window_obs=window, reward=torch.zeros(B, 1))
        optimiser.zero_grad()
        model.loss(batch, policy, generator(step))[0].backward()
        optimiser.step()
    # The angle keeps U above 0 however short vectors are, so norms stop where it balances them.
    assert float(free.detach().norm(dim=-1).mean()) < 0.6 * float(x.norm(dim=-1).mean())


def test_weight_zero_trains_nobody() -> None:
    assert not mico(mico_weight=0.0).traits.trains_encoder and mico().parameter_groups() == []


@pytest.mark.parametrize(
    ("field", "value"),
    [("mico_weight", 1.0), ("beta", -0.1), ("slow_tau", 0.0), ("slow_tau", 1.5), ("rep_update", "no")],
)
def test_impossible_values_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{field}: .*got "):
        MicoConfig(**{field: value})
