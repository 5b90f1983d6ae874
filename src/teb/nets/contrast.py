"""Embeddings of states, skills and transitions, learnt by telling which skill made which transition."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from teb.maths.infonce import Offset, infonce
from teb.nets.mlp import Mlp


class SkillContrast(nn.Module):
    """CIC's three networks (Laskin et al. 2022): f of states, g of skills, h of transitions.

    All embed into as many dimensions as a skill has. One f reads both ends of a transition.
    """

    def __init__(
        self, obs_dim: int, skill_dim: int, hidden: int, compute: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        self.state = Mlp(obs_dim, hidden, skill_dim, 2, compute)
        self.skill = Mlp(skill_dim, hidden, skill_dim, 2, compute, raw=False, wide=True)
        self.transition = Mlp(2 * skill_dim, hidden, skill_dim, 2, compute, raw=False, wide=True)

    def loss(
        self, obs: Tensor, next_obs: Tensor, skill: Tensor, temperature: float, offset: Offset
    ) -> Tensor:
        """The skill's embedding has to find its own transition's among those of the batch; [B, ...] -> scalar."""
        ends = self.state(torch.cat([obs, next_obs])).chunk(2)
        return infonce(self.skill(skill), self.transition(torch.cat(ends, 1)), temperature, offset)
