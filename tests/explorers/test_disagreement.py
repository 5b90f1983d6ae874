from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from explorer_setup import batch_of, generator, pay, policy, random_batch, small_explorer, teach

from teb.agents.protocol import Batch, Shapes
from teb.explorers.disagreement import Disagreement, DisagreementConfig
from teb.nets.mlp import Linear


def built(**options: Any) -> Disagreement:
    """The explorer at the width of the paper."""
    return Disagreement(DisagreementConfig(**options), Shapes(2, 2), gamma=0.99, n_step=3)


def test_size_and_start_at_the_width_of_the_paper() -> None:
    explorer = built()
    assert sum(p.numel() for p in explorer.parameters()) == 35_850
    layers = [layer for layer in explorer.modules() if isinstance(layer, Linear)]
    assert len(layers) == 10
    for layer in layers:
        bound = layer.weight.shape[1] ** -0.5
        for parameter in (layer.weight, layer.bias):
            assert 0 < float(parameter.detach().abs().max()) <= bound
        assert float(layer.weight.detach().abs().max()) > 0.95 * bound
    assert not any(bool(layer.bias.any()) for layer in built(init="orthogonal").modules()
                   if isinstance(layer, Linear))  # fmt: skip


def members_say(explorer: Any, said: list[list[float]]) -> None:
    """Let each member predict the same outputs everywhere."""
    with torch.no_grad():
        for member, outputs in zip(explorer.members, said, strict=True):
            for parameter in member.parameters():
                parameter.zero_()
            member.last.bias.copy_(torch.tensor(outputs))


def test_members_that_are_alike_pay_exactly_nothing() -> None:
    explorer = small_explorer("disagreement")
    for member in explorer.members:
        member.load_state_dict(explorer.members[0].state_dict())
    bonus = explorer.reward(random_batch(0), policy, generator()).bonus
    assert torch.equal(bonus, torch.zeros(32, 1))


def test_the_variance_is_unbiased_and_averaged_over_outputs() -> None:
    explorer = small_explorer("disagreement")
    members_say(explorer, [[0.0, 1.0]] * 4 + [[5.0, 1.0]])
    bonus = explorer.reward(random_batch(0), policy, generator()).bonus
    assert bonus.shape == (32, 1)
    assert torch.allclose(bonus, torch.full((32, 1), 5.0 / 2))


def test_what_all_members_add_does_not_matter() -> None:
    explorer, batch = small_explorer("disagreement"), random_batch(0)
    before = pay(explorer, batch)
    with torch.no_grad():
        for member in explorer.members:
            member.last.bias += torch.tensor([2.0, -1.0])
    assert torch.allclose(pay(explorer, batch), before, rtol=1e-4)


def test_bonus_is_the_variance_of_what_members_expect_of_the_start_and_its_action() -> None:
    explorer, batch = small_explorer("disagreement"), random_batch(0)
    x = np.concatenate([batch.window_obs[:, 0].numpy(), batch.window_action[:, 0].numpy()], 1)
    said: list[np.ndarray] = []
    for member in explorer.members:
        w1, b1, w2, b2 = (p.detach().numpy() for p in member.parameters())
        said.append(np.maximum(x @ w1.T + b1, 0) @ w2.T + b2)
    expected = np.var(said, axis=0, ddof=1).mean(1)
    assert np.allclose(pay(explorer, batch).numpy(), expected, rtol=1e-4)
    misses = [np.linalg.norm(batch.window_obs[:, 3].numpy() - outputs, axis=1).mean() for outputs in said]
    loss, metrics = explorer.loss(batch, policy, generator())
    assert float(loss.detach()) == pytest.approx(np.mean(misses), rel=1e-5)
    assert float(metrics["forward_error"]) == pytest.approx(np.mean(misses), rel=1e-5)


def test_bonus_does_not_look_at_where_the_window_ends() -> None:
    explorer, batch = small_explorer("disagreement"), random_batch(0)
    window_obs = batch.window_obs.clone()
    window_obs[:, 1:] += 3.0
    assert torch.equal(pay(explorer, batch), pay(explorer, batch_of(window_obs, batch.window_action)))


def test_the_later_latent_gets_no_gradient_and_the_first_one_does() -> None:
    explorer, batch = small_explorer("disagreement"), random_batch(0)
    latent, next_latent = (rows.clone().requires_grad_() for rows in (batch.obs, batch.next_obs))
    explorer.loss(batch._replace(obs=latent, next_obs=next_latent), policy, generator())[0].backward()
    assert latent.grad is not None and bool(latent.grad.any())
    assert next_latent.grad is None


def moves(noise: float, seed: int = 0, centre: float = 0.0) -> Iterator[Batch]:
    """One-step windows around a place: o' = o + a, plus noise that nothing foretells."""
    rng = torch.Generator().manual_seed(seed)
    while True:
        obs, action = (2 * torch.rand(256, 2, 2, generator=rng) - 1 for _ in range(2))
        obs = obs + centre
        obs[:, 1] = obs[:, 0] + action[:, 0] + noise * torch.randn(256, 2, generator=rng)
        yield batch_of(obs, action)


def test_members_start_apart_and_agree_where_they_have_learnt_but_not_far_away() -> None:
    explorer = small_explorer("disagreement", hidden=64)
    (lesson,) = islice(moves(0.0), 1)
    (elsewhere,) = islice(moves(0.0, centre=20.0), 1)
    before = pay(explorer, lesson)
    assert float(before.min()) > 0
    teach(explorer, [lesson] * 300)
    after, away = pay(explorer, lesson), pay(explorer, elsewhere)
    assert float(after.mean()) < 0.05 * float(before.mean())
    assert float(away.mean()) > 20 * float(after.mean())


def test_noise_surprises_a_single_model_for_ever_but_many_agree_about_it() -> None:
    noise = 0.5
    shown = list(islice(moves(noise), 500))
    curious, ensemble = (small_explorer(name, hidden=64) for name in ("icm", "disagreement"))
    before = pay(ensemble, shown[0])
    for explorer in (curious, ensemble):
        teach(explorer, shown[:300])
        teach(explorer, shown[300:], lr=1e-4)
    fresh = next(moves(noise, seed=1))
    # The mean length of a two-dimensional normal of deviation s is s sqrt(pi / 2).
    floor = np.log1p(noise * np.sqrt(np.pi / 2))
    assert float(pay(curious, fresh).mean()) > 0.85 * floor
    left = pay(ensemble, fresh).mean()
    assert float(left) < 0.02 * float(before.mean()) and float(left) < 0.02 * noise**2


def test_bonus_may_be_divided_by_its_running_deviation() -> None:
    plain, scaled = (small_explorer("disagreement", rew_norm=norm) for norm in ("none", "rms"))
    seen: list[float] = []
    for seed in range(5):
        batch = random_batch(seed, obs_scale=1.0 + seed)
        raw, bonus = pay(plain, batch), pay(scaled, batch)
        seen.extend(raw.tolist())
        assert torch.allclose(bonus, raw / float(np.std(seen)), rtol=0.05)
    assert float(scaled.moments.count) == pytest.approx(len(seen), abs=1)
    assert float(plain.moments.count) < 1


@pytest.mark.parametrize(
    "wrong", [{"members": 1}, {"init": "zero"}, {"rew_norm": "std"}, {"hidden": -3}, {"eta": -1.0}], ids=str
)
def test_values_that_cannot_work_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        DisagreementConfig(**wrong)
