from __future__ import annotations

import torch

from teb.maths.infonce import infonce
from teb.nets.contrast import SkillContrast
from teb.nets.mlp import Linear, initialised_from


def contrast(compute: torch.dtype = torch.float32) -> SkillContrast:
    with initialised_from(0):
        return SkillContrast(3, 6, 32, compute)


def transitions(rows: int = 20) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    obs = torch.randn(rows, 3, generator=rng)
    return obs, obs + 0.3 * torch.randn(rows, 3, generator=rng), torch.rand(rows, 6, generator=rng)


def test_three_networks_of_two_hidden_layers_embed_into_the_width_of_a_skill() -> None:
    net = contrast()
    shapes = {name: [tuple(m.weight.shape) for m in part.modules() if isinstance(m, Linear)]
              for name, part in net.named_children()}  # fmt: skip
    assert shapes == {
        "state": [(32, 3), (32, 32), (6, 32)],
        "skill": [(32, 6), (32, 32), (6, 32)],
        "transition": [(32, 12), (32, 32), (6, 32)],
    }


def test_skills_look_for_transitions_whose_ends_one_network_embeds() -> None:
    net, (obs, next_obs, skill) = contrast(), transitions()
    both = torch.cat([net.state(obs), net.state(next_obs)], 1)
    expected = infonce(net.skill(skill), net.transition(both), 0.5, "official")
    assert torch.allclose(net.loss(obs, next_obs, skill, 0.5, "official"), expected)
    assert not torch.allclose(net.loss(next_obs, obs, skill, 0.5, "official"), expected)
    assert not torch.allclose(net.loss(obs, next_obs, skill, 0.5, "none"), expected)


def test_all_three_networks_learn() -> None:
    net = contrast()
    net.loss(*transitions(), 0.5, "official").backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in net.parameters())


def test_in_bfloat16_states_are_embedded_to_float32_near_the_exact_place() -> None:
    exact, rounded = contrast(), contrast(torch.bfloat16)
    obs, next_obs, skill = transitions(200)
    found, expected = rounded.state(obs), exact.state(obs)
    assert found.dtype == torch.float32 and not torch.equal(found, expected)
    assert torch.allclose(found, expected, atol=0.02)
    assert len(found.detach().flatten().unique()) > 1000, "bfloat16 would have left a few hundred values"
    losses = [float(net.loss(obs, next_obs, skill, 0.5, "official").detach()) for net in (exact, rounded)]
    assert abs(losses[0] - losses[1]) < 0.02
