"""CeSD on latents of pictures, alone and beside the paper's representation."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from pixel_setup import moved, parameters, pixel_batch, small_pixel_agent

from teb.agents.backbone import Backbone, BackboneConfig, EncoderConfig, Pictures
from teb.agents.compose import ComposedAgent
from teb.agents.protocol import Batch, Runtime, Shapes, to_batch
from teb.explorers.cesd import Cesd, PixelCesdConfig
from teb.nets.ensemble import EnsembleCritic
from teb.replay.sample import Sample
from teb.replay.stacking import windows_of_stacks

LATENT, ACTIONS, K, SIZE = 50, 4, 16, 256
IMAGE = (9, 16, 16)


def agent(skills: int = K, **changes: Any) -> ComposedAgent:
    def build(shapes: Shapes, **terms: Any) -> Cesd:
        return Cesd(PixelCesdConfig(skills=skills, hidden=32, **changes), shapes, **terms)

    return ComposedAgent(
        BackboneConfig(batch_size=SIZE, width=24, lr=1e-3),
        build,
        Shapes(LATENT, ACTIONS),
        Runtime(0, torch.device("cpu"), torch.float32),
        Pictures(EncoderConfig(channels=4), IMAGE),
    )


def batch(skills: int = K, seed: int = 0) -> Batch:
    """Random pictures and rewards under skills drawn by chance."""
    rng = np.random.default_rng(seed)
    frames = rng.integers(0, 256, (SIZE, 6, 3, 16, 16), dtype=np.uint8)
    window = windows_of_stacks(frames, 3)
    action = rng.uniform(-1, 1, (SIZE, 4, ACTIONS)).astype(np.float32)
    rewards = rng.normal(size=(SIZE, 3)).astype(np.float32)
    skill = np.eye(skills, dtype=np.float32)[rng.integers(skills, size=SIZE)]
    gamma = np.full((SIZE, 1), 0.97, np.float32)
    return to_batch(
        Sample(
            window[:, 0], action[:, 0], rewards[:, :1], gamma, window[:, -1], rewards, window, action, skill
        ),
        window[0, 0],
        torch.device("cpu"),
    )


def test_skills_join_behind_the_latent_and_members_have_two_layers_on_latent_and_action() -> None:
    backbone: Any = agent().backbone
    assert backbone.actor.first.weight.shape == (24, LATENT + K)
    critic = backbone.critic
    assert isinstance(critic, EnsembleCritic) and not list(critic.trunk.parameters())
    assert critic.hidden_weight.shape == (K, 2 * 24, LATENT + ACTIONS)
    assert critic.deeper_weight is not None and critic.deeper_weight.shape == (K, 2, 24, 24)


@pytest.mark.parametrize("seed", [0, 1])
def test_with_256_windows_four_fifths_of_them_are_paid(seed: int) -> None:
    explorer: Any = (made := agent()).explorer
    assert explorer.neighbours(SIZE) == 4
    assert float(made.update(batch(seed=seed), 0)["unpaid_share"]) < 0.2


def test_other_skills_give_other_actions() -> None:
    made = agent()
    for seed in range(3):
        made.update(batch(seed=seed), 0)
    stack = np.random.default_rng(0).integers(0, 256, IMAGE, dtype=np.uint8)
    actions = [made.act(stack, np.eye(K, dtype=np.float32)[z], 0, explore=False) for z in range(K)]
    assert min(float(np.abs(a - b).max()) for i, a in enumerate(actions) for b in actions[:i]) > 1e-3


def test_one_skill_without_bonus_is_drqv2() -> None:
    """With the actor blind to the skill and the weights of one copied to the other, both losses agree."""
    made: Any = agent(1, eta=0.0).backbone
    seeing = Pictures(EncoderConfig(channels=4), IMAGE)
    other: Any = Backbone(made.config, Shapes(LATENT, ACTIONS), pictures=seeing)
    with torch.no_grad():
        made.actor.first.weight[:, LATENT:] = 0.0
        other.actor.first.weight.copy_(made.actor.first.weight[:, :LATENT])
        for name in ("first.bias", "hidden.weight", "hidden.bias", "mean.weight", "mean.bias"):
            other.actor.get_parameter(name).copy_(made.actor.get_parameter(name))
        for mine, theirs in ((made.critic, other.critic), (made.target_critic, other.target_critic)):
            theirs.first.weight.copy_(mine.hidden_weight[0])
            theirs.first.bias.copy_(mine.hidden_bias[0])
            for index, (hidden, value) in enumerate(
                ((theirs.hidden1, theirs.value1), (theirs.hidden2, theirs.value2))
            ):
                hidden.weight.copy_(mine.deeper_weight[0, index])
                hidden.bias.copy_(mine.deeper_bias[0, index, 0])
                value.weight.copy_(mine.value_weight[0, index : index + 1])
                value.bias.copy_(mine.value_bias[0, index : index + 1])
    rng = torch.Generator().manual_seed(0)
    latents = torch.tanh(torch.randn(2, SIZE, LATENT, generator=rng))
    seen = batch(1)._replace(obs=latents[0], next_obs=latents[1])
    blind = seen._replace(skill=torch.zeros(SIZE, 0))
    for loss in ("critic_loss", "actor_loss"):
        reward = (seen.reward,) if loss == "critic_loss" else ()
        one, two = (
            getattr(backbone, loss)(given, *reward, torch.Generator().manual_seed(1))[0]
            for backbone, given in ((made, seen), (other, blind))
        )
        assert torch.allclose(one, two, atol=1e-6), loss


def test_beside_the_representation_the_weight_of_the_bonus_reaches_none_of_its_losses() -> None:
    agents = [small_pixel_agent("cesd+rep", explorer={"eta": eta, "skills": 4}) for eta in (1.0, 100.0)]
    agents[0].update(skilled(4), 0)
    agents[1].load(copy.deepcopy(agents[0].state()))
    one, other = (made.update(skilled(4, 1), 1) for made in agents)
    for name in ("representation_loss", "reward_nll", "bisim_loss", "explorer_loss"):
        assert torch.equal(one[name], other[name]), name
    assert not torch.equal(one["critic_loss"], other["critic_loss"])


def test_beside_a_representation_without_weights_it_is_cesd_bit_for_bit() -> None:
    plain = small_pixel_agent("cesd", explorer={"skills": 4})
    weightless = {"lambda_b": 0.0, "lambda_r": 0.0, "lambda_p": 0.0}
    beside = small_pixel_agent("cesd+rep", explorer={"skills": 4}, representation=weightless)
    for seed in range(3):
        for made in (plain, beside):
            made.update(skilled(4, seed), seed)
    assert not moved(parameters(plain), parameters(beside))


def skilled(skills: int, seed: int = 0) -> Batch:
    """A small batch under skills drawn by chance."""
    drawn = torch.eye(skills)[torch.randint(skills, (8,), generator=torch.Generator().manual_seed(seed))]
    return pixel_batch(seed, skill=skills)._replace(skill=drawn)
