"""LBS: divergences, losses, what a bonus reads, and where the divergence comes to rest."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from explorer_setup import SHAPES, batch_for, changed, generator, policy, random_batch, small_agent, snapshot
from torch import Tensor

from teb.agents.protocol import Batch
from teb.explorers.lbs import Lbs, LbsConfig, PortBeliefs, VaeBeliefs
from teb.nets.mlp import initialised_from

BATCH = random_batch(0)
VARIANTS = ["vae", "port"]


def explorer(compute: torch.dtype = torch.float32, seed: int = 0, **changes: Any) -> Lbs:
    values: dict[str, Any] = {"hidden": 16} | changes
    with initialised_from(seed):
        return Lbs(LbsConfig(**values), SHAPES, gamma=0.97, n_step=3, compute=compute)


def paid(module: Lbs, batch: Batch, seed: int = 0) -> Tensor:
    return module.reward(batch, policy, generator(seed)).bonus.squeeze(1)


def layer(x: np.ndarray, linear: Any) -> np.ndarray:
    return x @ linear.weight.detach().numpy().T + linear.bias.detach().numpy()


def by_hand(module: VaeBeliefs, batch: Batch) -> list[np.ndarray]:
    """Posterior and prior, each mean and deviation, from the parameters alone."""
    o, a, following = (x.numpy() for x in (batch.obs, batch.action, batch.next_obs))
    m = np.maximum(layer(np.maximum(layer(np.hstack([o, a]), module.first), 0), module.second), 0)
    joined = m @ module.joined.hidden_weight.detach().numpy().T + layer(following, module.joined.raw)
    n = np.maximum(layer(np.maximum(joined, 0), module.third), 0)
    found = []
    for hidden, head in ((n, module.posterior), (m, module.prior)):
        mean, raw = np.split(layer(hidden, head), 2, axis=1)
        found += [mean, np.log1p(np.exp(raw)) + 1e-4]
    return found


def kl(mean_q: np.ndarray, sigma_q: np.ndarray, mean_p: np.ndarray, sigma_p: np.ndarray) -> np.ndarray:
    ratio = np.log(sigma_p / sigma_q) + (sigma_q**2 + (mean_q - mean_p) ** 2) / (2 * sigma_p**2) - 0.5
    return ratio.sum(1)


@pytest.mark.parametrize("compute", [torch.float32, torch.bfloat16], ids=str)
def test_bonus_of_vae_is_the_divergence_of_beliefs_computed_by_hand(compute: torch.dtype) -> None:
    module = explorer(compute, hidden=64)
    assert isinstance(module.beliefs, VaeBeliefs)
    expected = kl(*by_hand(module.beliefs, BATCH))
    tolerance = 1e-5 if compute == torch.float32 else 0.02 * expected.std()
    assert np.allclose(paid(module, BATCH).numpy(), expected, atol=tolerance)


def test_loss_of_vae_is_the_bound_with_one_draw() -> None:
    module = explorer(beta=0.3)
    assert isinstance(module.beliefs, VaeBeliefs)
    mean, sigma, *prior = by_hand(module.beliefs, BATCH)
    noise = torch.randn(mean.shape, generator=generator(3)).numpy()
    decoded = layer(mean + sigma * noise, module.beliefs.decode)
    squared = 0.5 * np.square(BATCH.next_obs.numpy() - decoded).sum(1)
    expected = (0.3 * kl(mean, sigma, *prior) + squared).mean() + math.log(2 * math.pi)
    loss, metrics = module.loss(BATCH, policy, generator(3))
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-5)
    assert float(metrics["kl_mean"]) == pytest.approx(kl(mean, sigma, *prior).mean(), rel=1e-4)
    assert float(metrics["decoder_rmse"]) == pytest.approx(math.sqrt(2 * squared.mean()), rel=1e-4)


def test_loss_of_port_is_the_bound_at_the_mean_and_the_regression_of_its_divergence() -> None:
    module = explorer(variant="port")
    beliefs = module.beliefs
    assert isinstance(beliefs, PortBeliefs) and module.beta == 1.0
    with torch.no_grad():
        known = torch.cat([BATCH.obs, BATCH.action], 1)
        q, p = beliefs.posterior(torch.cat([known, BATCH.next_obs], 1)).numpy(), beliefs.prior(known).numpy()
        decoded, expected = beliefs.decode(torch.from_numpy(q)).numpy(), beliefs.expected(known).numpy()[:, 0]
    divergence = 0.5 * np.square(q - p).sum(1)
    bound = divergence + 0.5 * np.square(BATCH.next_obs.numpy() - decoded).sum(1) + math.log(2 * math.pi)
    loss = float(module.loss(BATCH, policy, generator())[0].detach())
    assert loss == pytest.approx(bound.mean() + 0.5 * np.square(expected - divergence).mean(), rel=1e-5)
    assert np.allclose(paid(module, BATCH).numpy(), expected, atol=1e-6)


def test_gradients_of_port_keep_apart() -> None:
    module = explorer(variant="port")
    loss = module.loss(BATCH, policy, generator())[0]
    loss.backward()
    first = {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
    assert isinstance(module.beliefs, PortBeliefs)
    with torch.no_grad():
        for parameter in module.beliefs.expected.parameters():
            parameter.add_(1.0)
    module.zero_grad()
    module.loss(BATCH, policy, generator())[0].backward()
    differing = {name for name, p in module.named_parameters() if not torch.equal(first[name], p.grad)}  # pyright: ignore[reportArgumentType]
    assert differing and all(name.startswith("beliefs.expected") for name in differing)


def test_deviations_never_fall_below_their_floor() -> None:
    module = explorer(sigma_floor=0.01)
    assert isinstance(module.beliefs, VaeBeliefs)
    with torch.no_grad():
        for head in (module.beliefs.prior, module.beliefs.posterior):
            head.bias.sub_(1000.0)
        _, sigma, _, prior_sigma = module.beliefs(module.seen(BATCH))
    assert float(sigma.min()) == float(prior_sigma.min()) == pytest.approx(0.01)


@pytest.mark.parametrize("variant", VARIANTS)
def test_bonus_reads_neither_decoder_nor_sampling_noise(variant: str) -> None:
    module = explorer(variant=variant)
    before = paid(module, BATCH, seed=0)
    with torch.no_grad():
        for parameter in module.beliefs.decode.parameters():
            parameter.add_(1.0)
    assert torch.equal(paid(module, BATCH, seed=1), before)


def test_vae_pays_for_outcomes_and_port_for_actions() -> None:
    elsewhere = BATCH._replace(next_obs=BATCH.next_obs + 1.0)
    vae, port = (explorer(variant=variant) for variant in VARIANTS)
    assert not torch.allclose(paid(vae, BATCH), paid(vae, elsewhere))
    assert torch.equal(paid(port, BATCH), paid(port, elsewhere))
    assert bool((paid(vae, BATCH) >= 0).all())


def noisy_world(agent: Any, seed: int, variance: float) -> Batch:
    """Observations whose end is start and action plus noise of this variance on each axis."""
    batch = batch_for(agent, seed)
    noise = torch.randn(batch.obs.shape, generator=generator(seed)) * math.sqrt(variance)
    end = 0.5 * batch.obs + 0.5 * batch.action + noise
    return batch._replace(next_obs=end, window_obs=torch.cat([batch.window_obs[:, :-1], end[:, None]], 1))


def trained(module: Any, batches: list[Batch], updates: int, rate: float = 4e-3) -> list[float]:
    """Train the explorer alone, at a rate that falls to zero; its divergences on the way."""
    optimiser = torch.optim.Adam(module.parameters(), fused=True)
    rng, seen = generator(), []
    for step in range(updates):
        optimiser.param_groups[0]["lr"] = rate * (1 - step / updates)
        loss, metrics = module.loss(batches[step % len(batches)], policy, rng)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        seen.append(float(metrics["kl_mean"]))
    return seen


def merged(batches: list[Batch]) -> Batch:
    columns = (torch.cat(rows) for rows in zip(*(batch[:-1] for batch in batches), strict=True))
    return Batch(*columns, first_obs=batches[0].first_obs)


@pytest.mark.parametrize(
    ("variance", "beta", "nats_per_axis"), [(0.6, 0.1, 0.896), (0.072, 0.1, 0.0), (2.0, 1.0, 0.347)]
)
def test_divergence_settles_at_its_closed_form(variance: float, beta: float, nats_per_axis: float) -> None:
    agent = small_agent("lbs", beta=beta, hidden=32)
    batches = [noisy_world(agent, seed, variance) for seed in range(48)]
    divergence = trained(agent.explorer, [merged(batches[i::4]) for i in range(4)], 800)
    assert np.mean(divergence[-40:]) == pytest.approx(2 * nats_per_axis, abs=0.12)


@pytest.mark.parametrize("variant", VARIANTS)
def test_in_a_deterministic_world_the_bonus_dies_out_where_the_agent_has_been(variant: str) -> None:
    agent = small_agent("lbs", variant=variant, hidden=32)
    module: Any = agent.explorer
    visited = noisy_world(agent, 99, 0.0)
    divergence = trained(module, [noisy_world(agent, seed, 0.0) for seed in range(20)], 500)
    assert np.mean(divergence[-20:]) < 0.1 * np.mean(divergence[:20])
    known = paid(module, visited)
    assert float(known.abs().mean()) < 0.05
    never = visited._replace(obs=visited.obs + 9.0, next_obs=visited.next_obs + torch.tensor([9.0, -9.0]))
    assert float(paid(module, never).mean()) > 2 * float(known.abs().mean())


def test_rescaling_the_latent_space_of_port_changes_the_divergence_but_not_what_is_decoded() -> None:
    module = explorer(variant="port")
    beliefs: Any = module.beliefs
    seen = module.seen(BATCH)

    def outcome() -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            posterior, prior = beliefs(seen)
            return beliefs.decode(posterior), (posterior - prior).square().sum(1) / 2

    decoded, divergence = outcome()
    with torch.no_grad():
        for last in (beliefs.prior.last, beliefs.posterior.last):
            last.weight.mul_(3.0)
            last.bias.mul_(3.0)
        beliefs.decode.layers[0].weight.div_(3.0)
    again, larger = outcome()
    assert torch.allclose(decoded, again, atol=1e-5)
    assert torch.allclose(larger, 9.0 * divergence, rtol=1e-4)


def test_expected_divergence_converges_to_its_conditional_mean() -> None:
    module = explorer(variant="port", hidden=32)
    beliefs: Any = module.beliefs
    optimiser = torch.optim.Adam(beliefs.expected.parameters(), lr=1e-2)
    base = random_batch(1, size=400)
    kinds = torch.arange(400) % 2
    known = torch.tensor([[1.0, 0.0], [-1.0, 0.5]])[kinds]
    batch = base._replace(obs=known, action=known)  # two situations, many outcomes of each
    with torch.no_grad():
        posterior, prior = beliefs(module.seen(batch))
        divergence = (posterior - prior).square().sum(1) / 2
    for _ in range(300):
        loss = module.loss(batch, policy, generator())[0]
        optimiser.zero_grad()
        loss.backward(inputs=list(beliefs.expected.parameters()))
        optimiser.step()
    for kind in (0, 1):
        assert torch.allclose(paid(module, batch)[kinds == kind], divergence[kinds == kind].mean(), rtol=0.05)
    assert float(divergence[kinds == 0].std()) > 0.1 * float(divergence.mean())


def test_root_mean_square_scale_divides_by_the_running_deviation_of_what_is_paid() -> None:
    plain, scaled = explorer(), explorer(rew_norm="rms")
    values: list[np.ndarray] = []
    for seed in range(4):
        batch = random_batch(seed, obs_scale=1.0 + seed)
        value, found = paid(plain, batch).numpy(), paid(scaled, batch).numpy()
        values.append(value)
        assert np.allclose(found, value / np.concatenate(values).std(), rtol=0.05)
    assert changed(snapshot(explorer(rew_norm="rms")), snapshot(scaled)) == {
        f"reward_moments.{name}" for name in ("mean", "variance", "count")
    }


def test_running_standardisation_takes_over_after_an_update_and_clips() -> None:
    agent = small_agent("lbs", obs_norm="running")
    module: Any = agent.explorer
    batches = [batch_for(agent, seed, obs_scale=5.0) for seed in range(4)]
    assert torch.allclose(module.seen(batches[0]).obs, batches[0].obs.clamp(-10, 10), atol=1e-3)
    for batch in batches:
        agent.update(batch, 0)
    pooled = torch.cat([batch.obs for batch in batches])
    scaled = module.scaled(pooled)
    assert torch.allclose(scaled.mean(0), torch.zeros(2), atol=1e-3)
    assert torch.allclose(scaled.std(0), torch.ones(2), atol=0.05)
    assert float(module.scaled(pooled + 1e6).max()) == 10.0
    seen = module.seen(batches[0])
    assert torch.equal(seen.next_obs, module.scaled(batches[0].next_obs))
    assert torch.equal(seen.action, batches[0].action)


def test_defaults_that_follow_the_variant() -> None:
    vae, port = explorer(), explorer(variant="port")
    assert (vae.beta, port.beta) == (0.1, 1.0)
    assert isinstance(vae.beliefs, VaeBeliefs) and isinstance(port.beliefs, PortBeliefs)
    assert vae.beliefs.decode.weight.shape == (2, 2) and port.beliefs.prior.last.weight.shape == (16, 16)
    assert explorer(latent=5).beliefs.decode.weight.shape == (2, 5)
    assert explorer(variant="port", beta=0.5).beta == 0.5


def test_layers_of_vae_start_uniform_and_those_of_port_orthogonal() -> None:
    vae: Any = explorer(hidden=256).beliefs
    joined = torch.cat([vae.joined.hidden_weight, vae.joined.raw.weight], 1)
    for weight, inputs in ((vae.second.weight, 256), (joined, 258), (vae.joined.raw.bias, 258)):
        bound = inputs**-0.5
        assert 0.9 * bound < float(weight.detach().abs().max()) <= bound
    port: Any = explorer(variant="port", hidden=64).beliefs
    weight = port.prior.last.weight.detach()
    assert torch.allclose(weight @ weight.T, torch.eye(64), atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variant": "ppo"}, "variant: must be one of vae, port"),
        ({"beta": -1.0}, "beta: must lie in"),
        ({"latent": 0}, "latent: must be above 0"),
        ({"hidden": 0}, "hidden: must be above 0"),
        ({"obs_norm": "batch"}, "obs_norm: must be one of none, running"),
    ],
)
def test_impossible_options_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LbsConfig(**changes)
