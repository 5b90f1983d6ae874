from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from teb.maths.diffusion import noised, retained_signal, sinusoidal_embedding
from teb.maths.ranking import ranking_loss
from teb.nets.ctrl import FourierHead, FourierTwin, NoisedEmbedding, NormedActor, PairFeatures, ResidualMlp
from teb.nets.mlp import initialised_from

LATENT, ACTIONS, WIDTH, FEATURES, LEVELS = 5, 2, 16, 12, 4


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def small(kind: str) -> tuple[PairFeatures, NoisedEmbedding]:
    compute = {"fp32": torch.float32, "bf16": torch.bfloat16}[kind]
    with initialised_from(0):
        phi = PairFeatures(LATENT, ACTIONS, WIDTH, FEATURES, 2, compute)
        return phi, NoisedEmbedding(LATENT, WIDTH, FEATURES, 2, LEVELS, 8, compute)


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([0.0, 1e-6, 1.0, 1e4]))
@pytest.mark.parametrize("kind", ["fp32", "bf16"])
def test_features_have_unit_length_for_every_input(kind: str, seed: int, scale: float) -> None:
    phi, _ = small(kind)
    features = phi(scale * drawn(7, LATENT, seed=seed), drawn(7, ACTIONS, seed=seed + 1))
    assert features.shape == (7, FEATURES) and features.dtype == torch.float32
    assert np.allclose(features.detach().norm(dim=1), 1.0, atol=1e-5)


@pytest.mark.parametrize(("rows", "expected"), [(256, 5.545), (512, 6.238)])
def test_at_the_start_no_contrast_is_told(rows: int, expected: float) -> None:
    with initialised_from(0):
        phi = PairFeatures(50, 4, 512, 512, 2)
        mu = NoisedEmbedding(50, 512, 512, 2, 25, 128)
    levels = torch.tensor([0, 12, 24])
    noise = drawn(25, rows, 50)
    with torch.no_grad():
        blurred = noised(drawn(rows, 50, seed=1), retained_signal(25, 0.1, 10.0), noise)
        logits = mu.logits(phi(drawn(rows, 50, seed=2).tanh(), drawn(rows, 4, seed=3)), blurred)
    assert np.allclose(ranking_loss(logits[levels]), expected, atol=0.02)


def test_a_temperature_divides_the_logits_of_its_own_level() -> None:
    phi, mu = small("fp32")
    features, blurred = phi(drawn(6, LATENT), drawn(6, ACTIONS)), drawn(LEVELS, 6, LATENT)
    before = mu.logits(features, blurred).detach()
    with torch.no_grad():
        mu.log_temperature[2] += math.log(2)
    after = mu.logits(features, blurred).detach()
    assert np.allclose(after[2], before[2] / 2, atol=1e-7)
    assert torch.equal(after[[0, 1, 3]], before[[0, 1, 3]])


def test_logits_are_inner_products_of_features_and_embeddings_at_each_level() -> None:
    phi, mu = small("fp32")
    features, blurred = phi(drawn(6, LATENT), drawn(6, ACTIONS)), drawn(LEVELS, 6, LATENT)
    logits = mu.logits(features, blurred)
    for k in range(LEVELS):
        level = mu.level(sinusoidal_embedding(torch.tensor([k + 1]), 8))[0]
        for j in range(6):
            embedded = mu.body(torch.cat([blurred[k, j], level]))
            for i in range(6):
                assert torch.allclose(logits[k, i, j], (features[i] * embedded).sum(), atol=1e-5)


def test_levels_are_told_apart() -> None:
    _, mu = small("fp32")
    same = drawn(1, 3, LATENT).expand(LEVELS, -1, -1)
    embedded = mu(same)
    assert not torch.allclose(embedded[0], embedded[1])


def test_a_residual_network_is_that_of_the_definition() -> None:
    with initialised_from(0):
        net = ResidualMlp(LATENT, WIDTH, FEATURES, 2)
    x = drawn(3, LATENT)
    weights = dict(net.named_parameters())

    def linear(name: str, h: torch.Tensor) -> torch.Tensor:
        return h @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def mish(h: torch.Tensor) -> torch.Tensor:
        return h * torch.tanh(torch.log1p(h.exp()))

    h = linear("first", x)
    for block in ("blocks.0", "blocks.1"):
        centred = (h - h.mean(-1, keepdim=True)) / (h.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
        h = h + linear(f"{block}.outer", mish(linear(f"{block}.inner", centred)))
    assert torch.allclose(net(x), linear("last", mish(h)), atol=1e-5)


def test_a_head_reads_sines_and_cosines_of_normed_features() -> None:
    with initialised_from(0):
        head = FourierHead(FEATURES, 10, WIDTH)
    x = 3 * drawn(4, FEATURES)
    angles = head.angles[1](F.layer_norm(x, (FEATURES,)))
    h = head.hidden(torch.cat([torch.sin(angles), torch.cos(angles)], 1))
    expected = head.value(F.elu(F.layer_norm(h, (WIDTH,))))
    assert torch.allclose(head(x), expected, atol=1e-6)


def test_twin_heads_share_nothing() -> None:
    with initialised_from(0):
        twin = FourierTwin(FEATURES, 10, WIDTH)
    x = drawn(4, FEATURES)
    values = twin(x)
    assert values.shape == (4, 2) and not torch.allclose(values[:, 0], values[:, 1])
    twin(x)[:, 0].sum().backward()
    one, other = twin.heads
    assert all(p.grad is not None for p in one.parameters())
    assert all(p.grad is None or not p.grad.any() for p in other.parameters())


def test_the_actor_normalises_before_each_relu() -> None:
    with initialised_from(0):
        actor = NormedActor(LATENT, ACTIONS, WIDTH)
    h = x = drawn(4, LATENT)
    for layer in actor.layers:
        h = F.layer_norm(layer(h), (WIDTH,)).clamp(min=0)
    assert torch.allclose(actor(x), actor.mean(h).tanh(), atol=1e-6)


def test_layers_start_uniform_within_the_root_of_their_inputs() -> None:
    with initialised_from(0):
        net = ResidualMlp(100, 64, 32, 2)
    for layer, inputs in ((net.first, 100), (net.last, 64)):
        for parameter in (layer.weight, layer.bias):
            assert 0.9 * inputs**-0.5 < float(parameter.detach().abs().max()) <= inputs**-0.5


def test_bfloat16_products_stay_near_float32() -> None:
    results = []
    for kind in ("fp32", "bf16"):
        phi, mu = small(kind)
        logits = mu.logits(phi(drawn(6, LATENT), drawn(6, ACTIONS)), drawn(LEVELS, 6, LATENT))
        assert logits.dtype == torch.float32
        assert all(p.dtype == torch.float32 for net in (phi, mu) for p in net.parameters())
        results.append(logits.detach())
    assert np.allclose(*results, atol=0.02) and not torch.equal(*results)
