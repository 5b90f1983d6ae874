"""What trained agents say of single states, held against what they learn from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pixel_setup import SIZE, pixel_batch, small_pixel_agent

from teb.agents.compose import ComposedAgent
from teb.agents.protocol import Batch, states_batch
from teb.maths.shaping import end_discount

CPU = torch.device("cpu")


def at(batch: Batch, step: int) -> Batch:
    """The states of one step of each window by themselves."""
    after = batch.window_action[:, step]
    pictures, action, skill, first = (
        each.numpy() for each in (batch.window_obs[:, step], after, batch.skill, batch.first_obs[0])
    )
    return states_batch(pictures, action, skill, first, CPU)


def latents(agent: ComposedAgent, batch: Batch) -> torch.Tensor:
    with torch.no_grad():
        return agent.backbone.latent(agent.backbone.encoder(batch.obs))


@pytest.mark.parametrize("name", ["teb", "teb-no-rep", "centroid+rep", "teb-p"])
@pytest.mark.parametrize(
    "explorer", [{}, {"anchor": "s0"}, {"phi_action": "replay_policy"}, {"phi_action": "common"}]
)
def test_differences_of_potentials_are_the_bonus(name: str, explorer: dict[str, str]) -> None:
    """F of a window is gamma Phi at its end minus Phi at its start, with the anchor of the batch."""
    options = {"shaping": "window_gamma", "phi_action": "policy", **explorer}
    agent = small_pixel_agent(name, encoder={"shift": 0}, explorer=options)
    batch = pixel_batch()
    for step in range(3):  # fills the ring of particles
        agent.update(batch, step)
    start, end = agent.appraise(at(batch, 0), batch), agent.appraise(at(batch, -1), batch)
    if explorer.get("phi_action") == "replay_policy":
        free = at(batch, -1)
        free = free._replace(window_action=torch.full_like(free.window_action, torch.nan))
        end = agent.appraise(free, batch)
    agent.exploring.manual_seed(0)
    with torch.no_grad():
        paid = agent.pay(agent._shown(agent.look(batch))).bonus.squeeze(1)
    expected = end_discount("window_gamma", agent.backbone.config.gamma, 3) * end.values - start.values
    assert start.name == "potential"
    assert paid.abs().max() > 1e-4
    torch.testing.assert_close(paid, expected, atol=2e-6, rtol=1e-4)


def test_the_anchor_is_that_of_the_experience_not_of_the_episode() -> None:
    agent = small_pixel_agent("teb")
    batch, other = pixel_batch(), pixel_batch(seed=1)
    states = at(batch, 0)
    whole = agent.appraise(states, other).values
    half = Batch(*(rows[: SIZE // 2] for rows in states[:-1]), first_obs=states.first_obs)
    torch.testing.assert_close(agent.appraise(half, other).values, whole[: SIZE // 2], atol=1e-6, rtol=1e-5)
    assert (agent.appraise(states, batch).values - whole).abs().max() > 1e-4


@pytest.mark.parametrize(
    "explorer", [{"anchor": "random"}, {"phi_action": "common"}, {"phi_reward": "sample"}]
)
def test_every_episode_is_measured_alike(explorer: dict[str, str]) -> None:
    agent = small_pixel_agent("teb", explorer=explorer)
    batch = pixel_batch()
    before = agent.exploring.get_state()
    one, again = (agent.appraise(at(batch, 0), batch).values for _ in range(2))
    assert torch.equal(one, again)
    assert torch.equal(agent.exploring.get_state(), before), "training goes on as if nobody had looked"


def test_before_there_are_particles_the_potential_is_zero() -> None:
    agent = small_pixel_agent("teb-p+rep")
    batch = pixel_batch()
    assert not agent.appraise(at(batch, 0), batch).values.any()
    agent.update(batch, 0)
    assert agent.appraise(at(batch, 0), batch).values.any()


@pytest.mark.parametrize("name", ["drqv2", "teb-no-int", "icm+rep"])
def test_without_a_potential_it_is_the_smaller_value_at_the_mean_action(name: str) -> None:
    agent = small_pixel_agent(name)
    batch = pixel_batch()
    agent.update(batch, 0)
    said = agent.appraise(at(batch, 0), batch)
    with torch.no_grad():
        features = agent.backbone.encoder(batch.obs)
        values = agent.backbone.critic(features, agent.backbone.actor(features))
    assert said.name == "critic's value"
    torch.testing.assert_close(said.values, torch.minimum(values[:, 0], values[:, 1]))


def test_distances_of_a_bisimulation_metric_are_norms_between_latents() -> None:
    agent = small_pixel_agent("teb")
    batch = pixel_batch()
    said, z = agent.distances(at(batch, 0)), latents(agent, batch)
    assert said.name == "bisimulation metric"
    for i in range(SIZE):
        for j in range(SIZE):
            assert said.values[i, j] == pytest.approx(float(torch.linalg.norm(z[i] - z[j])), abs=2e-4)


def test_distances_without_that_loss_are_what_the_potential_measures() -> None:
    """c_R |r_i - r_j| + c_T |z'_i - z'_j| at the mean action."""
    agent = small_pixel_agent("teb-no-rep")
    batch = pixel_batch()
    said, z = agent.distances(at(batch, 0)), latents(agent, batch)
    with torch.no_grad():
        models = agent.representation.online(z, agent.backbone.actor(z))  # pyright: ignore
    reward, following = models.reward.squeeze(1), models.next
    gamma = agent.backbone.config.gamma
    assert said.name == "predictive distance"
    for i in range(0, SIZE, 2):
        for j in range(SIZE):
            expected = abs(reward[i] - reward[j]) + gamma * torch.linalg.norm(following[i] - following[j])
            assert said.values[i, j] == pytest.approx(float(expected), abs=2e-4)


def test_distances_without_any_metric_are_between_the_critics_latents() -> None:
    agent = small_pixel_agent("drqv2")
    batch = pixel_batch()
    said, z = agent.distances(at(batch, 0)), latents(agent, batch)
    assert said.name == "Euclidean distance of the critic's latents"
    np.testing.assert_allclose(said.values, torch.cdist(z, z), atol=2e-3)


def test_looking_shifts_no_picture() -> None:
    agent = small_pixel_agent("teb", encoder={"shift": 4})
    batch = pixel_batch()
    one, two = (agent.distances(at(batch, 0)).values for _ in range(2))
    assert torch.equal(one, two)
    before = agent.shifting.get_state()
    agent.appraise(at(batch, 0), batch)
    assert torch.equal(agent.shifting.get_state(), before)
