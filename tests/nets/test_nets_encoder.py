from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from teb.nets.actor_critic import LatentActor, LatentTwinCritic
from teb.nets.encoder import STRIDES, ConvEncoder, LatentTrunk, side_after


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def images(batch: int = 3, channels: int = 9, side: int = 84) -> torch.Tensor:
    return torch.randint(
        0, 256, (batch, channels, side, side), dtype=torch.uint8, generator=torch.Generator()
    )


def test_sizes_are_those_of_the_reference() -> None:
    sides, side = [], 84
    for stride in STRIDES:
        side = (side - 3) // stride + 1
        sides.append(side)
    assert sides == [41, 39, 37, 35] and side_after(84) == 35
    assert ConvEncoder((9, 84, 84)).features == 39_200
    assert ConvEncoder((9, 84, 84))(images(1)).shape == (1, 39_200)


def test_parameter_counts_are_those_of_the_reference() -> None:
    actor = LatentActor(LatentTrunk(39_200, 50), 39_200, 50, 4, 1024)
    assert count(actor) == 3_066_074
    assert count(ConvEncoder((9, 84, 84))) == 9 * 32 * 9 + 32 + 3 * (32 * 32 * 9 + 32)
    critic = LatentTwinCritic(LatentTrunk(39_200, 50), 39_200, 54, 1024)
    head = 54 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 + 1
    assert count(critic) == 39_200 * 50 + 50 + 100 + 2 * head


@pytest.mark.parametrize(("height", "width"), [(24, 24), (32, 20), (15, 15)])
def test_small_pictures_fit_and_too_small_ones_are_refused(height: int, width: int) -> None:
    encoder = ConvEncoder((3, height, width), 8)
    batch = torch.zeros(2, 3, height, width, dtype=torch.uint8)
    assert encoder(batch).shape == (2, encoder.features)
    with pytest.raises(ValueError, match=r"image: must have sides of at least 15 pixels, got 14 x 24"):
        ConvEncoder((3, 14, 24))


def test_the_encoder_computes_what_the_reference_does() -> None:
    encoder, pictures = ConvEncoder((9, 40, 40)), images(4, side=40)
    for bias in encoder.biases:
        nn.init.normal_(bias, generator=torch.Generator().manual_seed(1))
    x = pictures.float() / 255 - 0.5
    for kernel, bias, stride in zip(encoder.kernels, encoder.biases, STRIDES, strict=True):
        x = F.relu(F.conv2d(x, kernel, bias, stride))
    expected = x.permute(0, 2, 3, 1).flatten(1)
    assert torch.allclose(encoder(pictures), expected, atol=1e-5)
    strided = pictures.contiguous(memory_format=torch.channels_last)
    assert torch.allclose(encoder(strided), expected, atol=1e-5)


def test_bytes_are_centred_without_rounding_in_bfloat16() -> None:
    every = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(every.to(torch.bfloat16).sub_(127.5).double(), every.double() - 127.5)


def test_bfloat16_stays_near_float32_and_hands_out_bfloat16() -> None:
    exact, pictures = ConvEncoder((9, 40, 40)), images(4, side=40)
    rounded = ConvEncoder((9, 40, 40), compute=torch.bfloat16)
    rounded.load_state_dict(exact.state_dict())
    features, fine = rounded(pictures), exact(pictures)
    assert features.dtype == torch.bfloat16
    assert float((features.float() - fine).detach().norm() / fine.detach().norm()) < 0.02
    trunk = LatentTrunk(exact.features, 50)
    latent = trunk(features)
    assert latent.dtype == torch.float32
    assert float((latent - trunk(fine)).detach().abs().max()) < 0.1


def test_initial_weights_are_orthogonal_and_biases_zero() -> None:
    encoder = ConvEncoder((9, 24, 24))
    for kernel in encoder.kernels:
        matrix = kernel.detach().flatten(1)
        assert torch.allclose(matrix @ matrix.T, 2 * torch.eye(32), atol=1e-4)
    assert not any(bool(bias.any()) for bias in encoder.biases)
    critic = LatentTwinCritic(LatentTrunk(encoder.features, 50), encoder.features, 54, 64)
    for block in critic.first.weight.detach().chunk(2):
        assert torch.allclose(block.T @ block, torch.eye(54), atol=1e-4)
    trunk: Any = critic.trunk.linear
    normed: Any = critic.trunk.norm
    assert torch.allclose(trunk.weight @ trunk.weight.T, torch.eye(50), atol=1e-4)
    assert not bool(trunk.bias.any()) and torch.equal(normed.weight, torch.ones(50))


@pytest.mark.parametrize(("squash", "bounded"), [("tanh", True), ("none", False)])
def test_squash_says_what_follows_the_layer_norm(squash: str, bounded: bool) -> None:
    trunk = LatentTrunk(30, 50, squash)  # pyright: ignore[reportArgumentType]
    latent = trunk(10 * torch.randn(64, 30, generator=torch.Generator()))
    assert bool((latent.abs() <= 1).all()) == bounded
    if not bounded:
        assert torch.allclose(latent.square().sum(-1), torch.full((64,), 50.0), rtol=1e-3)


def test_a_skill_joins_behind_the_trunk() -> None:
    trunk = LatentTrunk(30, 5)
    actor = LatentActor(trunk, 30, 5 + 3, 2, 16)
    critic = LatentTwinCritic(trunk, 30, 5 + 3 + 2, 16)
    features, skill, action = torch.randn(4, 30), torch.randn(4, 3), torch.rand(4, 2)
    x = torch.cat([features, skill], -1)
    z = torch.cat([trunk(features), skill], -1)
    h = torch.relu(actor.hidden(torch.relu(actor.first(z))))
    assert torch.allclose(actor(x), torch.tanh(actor.mean(h)))
    h1, h2 = torch.relu(critic.first(torch.cat([z, action], -1))).chunk(2, -1)
    first, second = (
        critic.value1(torch.relu(critic.hidden1(h1))),
        critic.value2(torch.relu(critic.hidden2(h2))),
    )
    assert torch.allclose(critic(x, action), torch.cat([first, second], -1))
