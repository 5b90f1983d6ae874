"""A twin critic for each skill: many heads on one trunk, of which each row wants one."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from teb.nets.mlp import Trunk

HeadInit = Literal["official", "fan_in"]


class EnsembleCritic(nn.Module):
    """K twin critics on a shared trunk of half the width (Bai et al. 2024). No member sees the skill: it has its own.

    Only the member that a row wants is evaluated for it: rows are sorted by member, and each group is one product. On a
    CPU that beats padding groups to one batched product, whose cost is that of the largest group. On a GPU the sizes
    of the groups are waited for.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        members: int,
        width: int,
        compute: torch.dtype = torch.float32,
        init: HeadInit = "official",
    ) -> None:
        """`init`: uniform heads, bounded by one over the square root of their inputs, or, officially, outputs."""
        super().__init__()
        self.obs_dim = obs_dim
        self.loss_scale = 1.0 / members
        """Losses are means over K members of which each row concerns one."""
        inputs = max(1, width // 2)
        self.trunk = Trunk(obs_dim + action_dim, inputs, compute)
        fans = (width, 1) if init == "official" else (inputs, width)
        self.hidden_weight = _uniform(fans[0], members, 2 * width, inputs)
        self.hidden_bias = _uniform(fans[0], members, 2 * width)
        self.value_weight = _uniform(fans[1], members, 2, width)
        self.value_bias = _uniform(fans[1], members, 2)

    def forward(self, x: Tensor, action: Tensor, member: Tensor | None = None) -> Tensor:
        """[B, D + K], [B, A] and which member each row wants, [B] -> both its values, [B, 2], float32.

        Without `member` it is that of the row's skill.
        """
        obs, skill = x[:, : self.obs_dim], x[:, self.obs_dim :]
        member = skill.argmax(1) if member is None else member
        order = member.argsort(stable=True)
        sizes = torch.bincount(member, minlength=len(self.hidden_weight)).tolist()
        h = self.trunk(torch.cat([obs, action], -1)).index_select(0, order)
        groups = zip(
            h.split(sizes),
            self.hidden_weight.to(h.dtype).unbind(),
            self.hidden_bias.to(h.dtype).unbind(),
            self.value_weight.unbind(),
            self.value_bias.unbind(),
            strict=True,
        )
        values = torch.cat([_member_values(*group) for group in groups])
        return values.index_select(0, order.argsort())


def _member_values(h: Tensor, weight: Tensor, bias: Tensor, last_weight: Tensor, last_bias: Tensor) -> Tensor:
    """One member's two values for its rows, [n, I] -> [n, 2].

    The last product is in float32: values of tens differ by less than bfloat16 can tell.
    """
    hidden = torch.relu(F.linear(h, weight, bias)).float().view(len(h), *last_weight.shape)
    return torch.bmm(hidden.transpose(0, 1), last_weight.unsqueeze(2)).squeeze(2).T + last_bias


def _uniform(fan: int, *shape: int) -> nn.Parameter:
    bound = 1.0 / math.sqrt(fan)
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
