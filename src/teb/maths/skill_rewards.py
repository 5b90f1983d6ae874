"""What skill methods pay for: being recognised, being rare, moving along a skill. Skills are one-hot rows."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

RecognitionSign = Literal["official", "paper"]


def skill_log_likelihood(logits: Tensor, skill: Tensor) -> Tensor:
    """The log q(z | o) of a classifier over K skills, logits and one-hot skills [B, K] -> [B]."""
    if logits.shape != skill.shape:
        raise ValueError(f"skill: expected shape {tuple(logits.shape)}, got {tuple(skill.shape)}")
    return (torch.log_softmax(logits, -1) * skill).sum(-1)


def recognition_bonus(logits: Tensor, skill: Tensor) -> Tensor:
    """The log q(z | o) - log p(z) with uniform p(z) = 1 / K, [B, K] and [B, K] -> [B] (Eysenbach et al. 2019).

    At most log K; its mean over skills and states is a lower bound of their mutual information.
    """
    return skill_log_likelihood(logits, skill) + math.log(skill.shape[-1])


def matching_bonus(
    rarity: Tensor,
    log_likelihood: Tensor,
    skills: int,
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0),
    sign: RecognitionSign = "paper",
) -> Tensor:
    """State marginal matching, elementwise: c_s e + c_z log K + c_d log d(z | s) (Lee et al. 2019, eq. 3).

    `rarity` e stands for -log rho(s | z), the target p* is uniform and left out, and so is p(z) = 1 / K. The authors'
    and URLB's code subtract the last term instead: sign `official` pays for not being recognised.
    """
    state, prior, recognition = weights
    direction = 1.0 if sign == "paper" else -1.0
    return state * rarity + prior * math.log(skills) + direction * recognition * log_likelihood


def centred_one_hot(skill: Tensor) -> Tensor:
    """m(z) = K / (K - 1) (e_z - 1 / K): 1 at its own place, -1 / (K - 1) elsewhere, [B, K] (Park et al. 2022)."""
    count = skill.shape[-1]
    if count < 2:
        raise ValueError(f"centred_one_hot: needs at least 2 skills, got {count}")
    return (skill - 1.0 / count) * (count / (count - 1))
