from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from explorer_setup import GAMMA, batch_for, bonus_of, fit, generator, made, policy, small_agent, windows
from torch import Tensor

from teb.agents.protocol import Batch
from teb.explorers.smm import SmmConfig
from teb.maths.skill_rewards import skill_log_likelihood
from teb.nets.mlp import Linear
from teb.nets.vae import code_cost, squared_error


def rarity(explorer: object, obs: Tensor, skill: Tensor) -> Tensor:
    """Squared reconstruction error of each state, [B], averaged over 20 draws of the code."""
    x, rng, model = torch.cat([obs, skill], 1), generator(), explorer.vae  # pyright: ignore[reportAttributeAccessIssue]
    with torch.no_grad():
        return torch.stack([squared_error(x, model(x, rng)) for _ in range(20)]).mean(0)


SMALL = {"hidden": 32, "vae_hidden": 48, "code": 16}
"""What the code is worth depends on the input's width alone, not on these."""


def cloud(deviations: tuple[float, float], size: int = 256) -> list[Batch]:
    """Batches of normal states around (1, -2) with skills that have nothing to do with them."""
    rng = generator(5)
    drawn = torch.tensor([1.0, -2.0]) + torch.tensor(deviations) * torch.randn(800, size, 2, generator=rng)
    skills = torch.eye(4)[torch.randint(4, (800, size), generator=rng)]
    return [windows(obs, obs, skill) for obs, skill in zip(drawn, skills, strict=True)]


def test_the_loss_averages_the_error_over_the_input_and_the_reward_sums_it() -> None:
    explorer, batch = made("smm", hidden=32), batch_for(small_agent("smm"), 0)
    learnt = explorer.loss(batch, policy, generator(5))[1]["vae_error"]
    paid = explorer.reward(batch, policy, generator(5)).metrics["rarity_mean"]
    assert float(learnt) * (2 + 4) == pytest.approx(float(paid), rel=1e-5)


def test_the_loss_sums_the_divergence_over_the_code_and_weighs_it_with_beta() -> None:
    batch = batch_for(small_agent("smm"), 0)
    x = torch.cat([batch.obs, batch.skill], 1)
    losses: list[float] = []
    for beta in (0.0, 0.5, 2.0):
        explorer = made("smm", hidden=32, beta=beta)
        losses.append(float(explorer.loss(batch, policy, generator(5))[0].detach()))
        kl = float(code_cost(explorer.vae(x, generator(5))).mean().detach())
    assert losses[1] - losses[0] == pytest.approx(0.5 * kl, rel=1e-3)
    assert losses[2] - losses[0] == pytest.approx(2.0 * kl, rel=1e-3)


@pytest.mark.parametrize(("sign", "direction"), [("official", -1.0), ("paper", 1.0)])
def test_the_bonus_is_rarity_prior_and_signed_recognition(sign: str, direction: float) -> None:
    weights: dict[str, Any] = {"state_weight": 2.0, "prior_weight": 3.0, "recognition_weight": 5.0}
    explorer = made("smm", hidden=32, sign=sign, **weights)
    batch = batch_for(small_agent("smm"), 0)
    x = torch.cat([batch.obs, batch.skill], 1)
    with torch.no_grad():
        error = squared_error(x, explorer.vae(x, generator(2)))
        sure = skill_log_likelihood(explorer.classifier(batch.obs), batch.skill)
    expected = 2 * error + 3 * math.log(4) + direction * 5 * sure
    assert torch.allclose(bonus_of(explorer, batch, seed=2), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("sign", "raises"), [("official", False), ("paper", True)])
def test_being_recognised_costs_officially_and_pays_in_the_paper(sign: str, raises: bool) -> None:
    explorer, batch = made("smm", hidden=32, sign=sign), batch_for(small_agent("smm"), 0)
    before = bonus_of(explorer, batch)
    explorer.classifier.last.bias.data = 5.0 * torch.eye(4)[0]
    after = bonus_of(explorer, batch)
    own = batch.skill[:, 0] == 1
    assert bool(((after > before) == (own == raises)).all())


def test_the_start_of_the_window_is_paid_and_learnt_from() -> None:
    explorer, batch = made("smm", hidden=32), batch_for(small_agent("smm"), 0)
    elsewhere = batch._replace(next_obs=batch.next_obs + 1, window_obs=batch.window_obs.flip(1))
    moved = batch._replace(obs=batch.obs + 1)
    assert torch.equal(bonus_of(explorer, elsewhere), bonus_of(explorer, batch))
    assert bool((bonus_of(explorer, moved) != bonus_of(explorer, batch)).all())
    losses = [explorer.loss(b, policy, generator())[0].item() for b in (batch, elsewhere, moved)]
    assert losses[0] == losses[1] != losses[2]


def test_the_bonus_is_that_of_the_models_before_their_step(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = small_agent("smm")
    calls: list[str] = []
    for name in ("loss", "reward"):
        inner = getattr(agent.explorer, name)

        def spy(*arguments: Any, _inner: Any = inner, _name: str = name) -> Any:
            calls.append(_name)
            return _inner(*arguments)

        monkeypatch.setattr(agent.explorer, name, spy)
    agent.update(batch_for(agent, 0), 0)
    assert calls == ["reward", "loss"]


def test_a_state_seen_all_the_time_is_known_and_one_three_units_away_is_not() -> None:
    explorer = made("smm", hidden=32)
    here, skill = torch.tensor([[1.0, -0.5]]).expand(64, -1), torch.eye(4)[[2] * 64]
    fit(explorer, [windows(here, here, skill)] * 400)
    assert rarity(explorer, here, skill).mean().item() < 1e-2
    for step in ([3.0, 0.0], [0.0, 3.0], [-2.1, -2.1]):
        assert rarity(explorer, here + torch.tensor(step), skill).mean().item() > 1.0


def test_data_narrower_than_the_codes_worth_is_not_encoded() -> None:
    """The best residual variance per coordinate is beta (D + K) / 2 = 1.5: narrower ones, one-hots too, get no code."""
    explorer, batches = made("smm", **SMALL), cloud((0.7, 0.7))
    seen = fit(explorer, batches, lr=3e-3)
    assert sum(row["vae_kl"] for row in seen[-50:]) / 50 < 0.05
    far = torch.tensor([[1.0, -2.0], [3.0, -2.0], [1.0, 0.5]])
    distance = torch.tensor([0.0, 4.0, 6.25])
    found = rarity(explorer, far, torch.eye(4)[[0, 1, 2]])
    assert torch.allclose(found, distance + 0.75, atol=0.35)


def test_data_wider_than_the_codes_worth_is_encoded_down_to_it() -> None:
    explorer, batches = made("smm", **SMALL), cloud((3.0, 0.2))
    seen = fit(explorer, batches, lr=3e-3)
    assert sum(row["vae_kl"] for row in seen[-50:]) / 50 > 0.3
    rng, errors = generator(9), list[Tensor]()
    with torch.no_grad():
        for batch in batches[-20:]:
            x = torch.cat([batch.obs, batch.skill], 1)
            errors.append((x - explorer.vae(x, rng).reconstruction)[:, 0].square().mean())
    assert torch.stack(errors).mean().item() == pytest.approx(1.5, abs=0.35)


def test_the_density_model_reads_state_and_skill_and_the_classifier_the_state_alone() -> None:
    explorer = made("smm")
    vae, classifier = (
        [tuple(m.weight.shape) for m in part.modules() if isinstance(m, Linear)]
        for part in (explorer.vae, explorer.classifier)
    )
    assert vae == [(150, 6), (150, 150), (256, 150), (150, 128), (150, 150), (6, 150)]
    assert classifier == [(1024, 2), (1024, 1024), (4, 1024)]


def test_each_model_has_its_own_learning_rate() -> None:
    assert [group["lr"] for group in made("smm", hidden=8).parameter_groups()] == [1e-2, 1e-3]


def test_a_skill_lasts_an_episode() -> None:
    skills = made("smm", hidden=8).traits.skills
    assert (skills.width, skills.kind, skills.period) == (4, "one-hot", None)
    assert [skills.due(step) for step in (0, 1, 49, 50, 100)] == [True, False, False, False, False]


@pytest.mark.parametrize(("mode", "n", "steps"), [("window", 3, 1), ("sum", 3, 3), ("one", 1, 1)])
def test_modes_of_the_window(mode: str, n: int, steps: int) -> None:
    agent = small_agent("smm", n_step_mode=mode, beta=0.0)
    assert agent.sampling is not None and agent.sampling.n_step == n
    torch.nn.init.zeros_(agent.explorer.vae.decoder.last.weight)  # pyright: ignore[reportAttributeAccessIssue]
    batch = batch_for(agent, 0)  # without the decoder's weights the code's noise does not matter
    starts = [batch.window_obs[:, i] for i in range(steps)]
    paid = [bonus_of(agent.explorer, windows(start, start, batch.skill)) for start in starts]
    expected = torch.stack([GAMMA**i * each for i, each in enumerate(paid)]).sum(0)
    assert torch.allclose(agent.pay(batch).bonus.squeeze(1), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "wrong",
    [{"skill_count": 1}, {"beta": -1.0}, {"code": 0}, {"vae_lr": 0.0}, {"state_weight": -1.0}, {"sign": "both"}],
)  # fmt: skip
def test_values_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))}: must"):
        SmmConfig(**wrong)  # pyright: ignore[reportArgumentType]
