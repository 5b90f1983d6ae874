from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from teb.maths.skill_rewards import (
    RecognitionSign,
    centred_one_hot,
    matching_bonus,
    recognition_bonus,
    skill_log_likelihood,
)


def one_hot(*indices: int, count: int) -> torch.Tensor:
    return torch.eye(count)[list(indices)]


def test_log_likelihood_is_that_of_the_softmax() -> None:
    logits, z = np.random.default_rng(0).normal(size=(20, 5)), np.arange(20) % 5
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    found = skill_log_likelihood(torch.from_numpy(logits).float(), one_hot(*z.tolist(), count=5))
    assert np.allclose(found.numpy(), np.log(chances[np.arange(20), z]), atol=1e-5)


def test_log_likelihood_refuses_another_number_of_skills() -> None:
    with pytest.raises(ValueError, match="skill: expected shape"):
        skill_log_likelihood(torch.zeros(2, 4), torch.zeros(2, 3))


@pytest.mark.parametrize("count", [2, 16])
def test_recognition_pays_nothing_for_a_guess_and_log_k_for_certainty(count: int) -> None:
    z = one_hot(1, count=count)
    assert recognition_bonus(torch.full((1, count), 3.0), z).item() == pytest.approx(0.0, abs=1e-6)
    assert recognition_bonus(1e4 * z, z).item() == pytest.approx(math.log(count), abs=1e-6)
    if count == 16:
        assert recognition_bonus(1e4 * z, z).item() == pytest.approx(2.7726, abs=1e-4)


@given(st.integers(2, 20), st.integers(0, 2**31), st.floats(0.1, 10.0))
def test_exponentials_of_recognition_average_to_one_over_skills(count: int, seed: int, scale: float) -> None:
    logits = scale * torch.randn(1, count, generator=torch.Generator().manual_seed(seed))
    paid = recognition_bonus(logits.double().expand(count, -1), torch.eye(count, dtype=torch.float64))
    assert paid.exp().mean().item() == pytest.approx(1.0, abs=1e-6)


def exact_mixture(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A finite state set with exact rho(s | z), rho(s), d(z | s): [K, S], [S], [S, K], p(z) uniform."""
    rng = np.random.default_rng(seed)
    given_skill = rng.dirichlet(np.ones(7), size=4)
    marginal = given_skill.mean(0)
    posterior = (given_skill / 4 / marginal).T
    return tuple(torch.from_numpy(x) for x in (given_skill, marginal, posterior))  # pyright: ignore[reportReturnType]


def matching_with(sign: RecognitionSign, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The bonus of every state under every skill from exact densities, [S, K], and -log rho(s), [S]."""
    given_skill, marginal, posterior = exact_mixture(seed)
    return matching_bonus(-given_skill.T.log(), posterior.log(), 4, sign=sign), -marginal.log()


@pytest.mark.parametrize("seed", range(5))
def test_matching_with_exact_densities_pays_for_rarity_in_the_mixture_whatever_the_skill(seed: int) -> None:
    """Bayes: rho(s | z) p(z) = rho(s) d(z | s), so the paper's reward is log p* - log rho(s), p* left out."""
    paid, rarity = matching_with("paper", seed)
    assert torch.allclose(paid, rarity.unsqueeze(1).expand(-1, 4), atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_the_official_sign_breaks_the_identity_by_twice_the_recognition(seed: int) -> None:
    paid, rarity = matching_with("official", seed)
    _, _, posterior = exact_mixture(seed)
    assert torch.allclose(paid - rarity.unsqueeze(1), -2 * posterior.log(), atol=1e-9)
    assert float(paid.std(1).max()) > 0.1, "the official reward depends on the skill"


def test_recognition_raises_the_papers_matching_bonus_and_lowers_the_official_one() -> None:
    rarity, sure = torch.ones(3), torch.tensor([0.1, 0.5, 0.9]).log()
    paper, official = (matching_bonus(rarity, sure, 4, sign=sign) for sign in ("paper", "official"))
    assert bool((paper.diff() > 0).all()) and bool((official.diff() < 0).all())


def test_matching_weighs_its_three_terms() -> None:
    found = matching_bonus(torch.tensor([5.0]), torch.tensor([-0.5]), 4, (2.0, 3.0, 10.0), "paper")
    assert found.item() == pytest.approx(10.0 + 3 * math.log(4) - 5.0)


def test_the_prior_of_matching_changes_no_preference() -> None:
    rarity, sure = torch.rand(50), -torch.rand(50)
    without, with_prior = (matching_bonus(rarity, sure, 4, (1.0, weight, 1.0)) for weight in (0.0, 7.0))
    assert torch.allclose(with_prior - without, torch.full((50,), 7 * math.log(4)), atol=1e-5)
    assert int(without.argmax()) == int(with_prior.argmax())


@pytest.mark.parametrize("count", [2, 3, 16])
def test_centred_skills_score_one_at_their_own_place_and_nothing_together(count: int) -> None:
    scores = centred_one_hot(torch.eye(count))
    assert torch.allclose(scores.diagonal(), torch.ones(count), atol=1e-6)
    assert torch.allclose(scores.sum(1), torch.zeros(count), atol=1e-5)
    others = scores[~torch.eye(count, dtype=torch.bool)]
    assert torch.allclose(others, torch.full_like(others, -1 / (count - 1)), atol=1e-6)
    assert torch.allclose(scores.norm(dim=1), torch.full((count,), math.sqrt(1 + 1 / (count - 1))), atol=1e-5)


def test_two_centred_skills_are_opposite() -> None:
    assert torch.allclose(centred_one_hot(torch.eye(2)), torch.tensor([[1.0, -1.0], [-1.0, 1.0]]))


def test_one_skill_cannot_be_centred() -> None:
    with pytest.raises(ValueError, match="at least 2 skills, got 1"):
        centred_one_hot(torch.ones(1, 1))
