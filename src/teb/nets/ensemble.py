"""A twin critic for each skill: many pairs of heads, of which each row wants one."""

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

    Of latents, which come from a trunk already, each member has DrQ-v2's heads: two hidden layers.
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
        *,
        latents: bool = False,
    ) -> None:
        """`init`: uniform heads, bounded by one over the square root of their inputs, or, officially, outputs."""
        super().__init__()
        self.obs_dim = obs_dim
        self.compute = compute
        self.loss_scale = 1.0 / members
        """Losses are means over K members of which each row concerns one."""
        inputs = obs_dim + action_dim if latents else max(1, width // 2)
        self.trunk = nn.Identity() if latents else Trunk(obs_dim + action_dim, inputs, compute)
        fans = (width, 1) if init == "official" else (inputs, width)
        self.hidden_weight = _uniform(fans[0], members, 2 * width, inputs)
        self.hidden_bias = _uniform(fans[0], members, 2 * width)
        self.deeper_weight = _uniform(width, members, 2, width, width) if latents else None
        self.deeper_bias = _uniform(width, members, 2, 1, width) if latents else None
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
            self._deeper(),
            self.value_weight.unbind(),
            self.value_bias.unbind(),
            strict=True,
        )
        values = torch.cat([self._member_values(*group) for group in groups])
        return values.index_select(0, order.argsort())

    def _deeper(self) -> list[tuple[Tensor, Tensor] | None]:
        """Each member's second hidden layer, if there is one."""
        if self.deeper_weight is None or self.deeper_bias is None:
            return [None] * len(self.hidden_weight)
        weight, bias = (layer.to(self.compute).unbind() for layer in (self.deeper_weight, self.deeper_bias))
        return list(zip(weight, bias, strict=True))

    def _member_values(
        self,
        h: Tensor,
        weight: Tensor,
        bias: Tensor,
        deeper: tuple[Tensor, Tensor] | None,
        last_weight: Tensor,
        last_bias: Tensor,
    ) -> Tensor:
        """One member's two values for its rows, [n, I] -> [n, 2].

        The first product is in the precision of its input; the last one is in float32, since values of tens differ by
        less than bfloat16 can tell.
        """
        hidden = torch.relu(F.linear(h, weight, bias))
        if deeper is not None:
            pairs = hidden.to(self.compute).view(len(h), *last_weight.shape).transpose(0, 1)
            hidden = torch.relu(torch.baddbmm(deeper[1], pairs, deeper[0].transpose(1, 2))).transpose(0, 1)
        heads = hidden.float().reshape(len(h), *last_weight.shape)
        return torch.bmm(heads.transpose(0, 1), last_weight.unsqueeze(2)).squeeze(2).T + last_bias


def _uniform(fan: int, *shape: int) -> nn.Parameter:
    bound = 1.0 / math.sqrt(fan)
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
