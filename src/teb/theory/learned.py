"""How far learnt distances are from the exact metric: a maze in cells, models trained on uniform play."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.stats
import torch
from torch import Tensor, nn

from teb.envs.maze2d import HORIZON, Maze2D
from teb.maths.bisimulation import (
    bisim_loss,
    metric_target,
    pair_indices,
    reward_differential,
    transition_distance,
)
from teb.maths.distances import latent_distance, safe_norm
from teb.nets.metric import MetricModels
from teb.nets.mlp import Linear, hidden_mlp, initialised_from
from teb.report import theory as draw
from teb.seeding import child_seed, numpy_generator, torch_generator
from teb.theory.maze import CutMaze, cut_maze
from teb.theory.operators import table
from teb.theory.processes import Floats
from teb.theory.statement import Picture, Setting, Statement

MAZE = "square-a"
PLAIN, MODELS, LATENTS = "plain distance", "d_pre of learnt models", "learnt latents (L_bisim)"
MOVES_PER_CELL = 1500
PLAYED = 20_000
"""Environment steps of uniform play that the models learn from."""
UPDATES, BATCH, WIDTH, LATENT = 1500, 256, 128, 50
LEARNING_RATE = 1e-3
SIGMA_RANGE = (1e-4, 1.0)
LAMBDA_B, LAMBDA_R, LAMBDA_P = 0.5, 0.5, 1e-4
"""Weights of the representation loss (paper)."""


@dataclass(frozen=True)
class Play:
    """Transitions of uniform play: o_t, a_t, the reward of o_t, o_{t+1}."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    next_obs: Tensor


def learned(setting: Setting) -> Statement:
    """Rank agreement and scale of three distances with the exact metrics of the same maze."""
    maze = cut_maze(MAZE, MOVES_PER_CELL, numpy_generator(setting.seed, "theory", "cells"))
    weights = setting.c_r, setting.c_t
    rewarded = maze.process(True, 0.0).classical(*weights, tolerance=1e-7).distance
    shared = maze.process(False, setting.sigma).predictive(*weights, "shared", 1e-7).distance
    independent = maze.process(False, setting.sigma).predictive(*weights, tolerance=1e-7).distance
    points = torch.from_numpy(maze.centres).float()
    plain = np.linalg.norm(maze.centres[:, None] - maze.centres[None], axis=-1)
    candidates = {PLAIN: plain}
    ratios: list[float] = []
    for where, play in (
        ("everywhere", rewarded_by(maze, *maze.moves)),
        ("episodes", uniform_play(maze, setting.seed)),
    ):
        candidates[f"{MODELS}, {where}"] = model_distance(trained_models(play, setting), points, setting)
        candidates[f"{LATENTS}, {where}"], ratio = latents_distance(play, points, setting)
        ratios.append(ratio)
    of_models, of_latents = (candidates[f"{kind}, everywhere"] for kind in (MODELS, LATENTS))
    rows: list[list[object]] = []
    agreement: dict[str, tuple[float, float]] = {}
    for name, d in candidates.items():
        agreement[name] = rank_correlation(d, rewarded), rank_correlation(d, shared)
        rows.append(
            [name, *(f"{value:+.2f}" for value in agreement[name]), scale(d, rewarded), scale(d, shared)]
        )
    by_models, by_latents = (agreement[f"{kind}, everywhere"] for kind in (MODELS, LATENTS))
    return Statement(
        "Learned metric",
        "The distance that TEB computes stands for the fixed point of the operator.",
        "measured",
        f"Rank correlation with the exact metric of a rewarded maze: {by_models[0]:+.2f} for d_pre of learnt models, "
        f"{by_latents[0]:+.2f} for latents trained by L_bisim, {agreement[PLAIN][0]:+.2f} for plain "
        "distance. Without "
        f"reward (one draw per state): {by_models[1]:+.2f}, {by_latents[1]:+.2f}, {agreement[PLAIN][1]:+.2f}.",
        table(
            rows,
            ["distance", "rank, rewarded", "rank, no reward", "scale, rewarded", "scale, no reward"],
        ),
        (
            f"The maze is {MAZE} in {len(maze.centres)} cells, the policy uniform; transitions between "
            "cells are estimated from "
            f"{MOVES_PER_CELL:,} moves out of each. In the rewarded variant a far unit square pays 1 per "
            "step. Rank is "
            "Spearman's correlation over all pairs of cells; scale is the median of learnt over exact "
            "distance. The models "
            f"make {UPDATES:,} updates on the rewarded maze: on the same moves from *everywhere*, or on "
            f"{PLAYED:,} steps of "
            "*episodes* of uniform actions from the start region, which seldom get far.",
            "Without reward and with independent draws there is nothing to compare with: the exact metric "
            "is one constant "
            f"({independent.mean():.4g}, spread {np.ptp(independent):.0e}). With one draw per state it "
            "measures how soon paths "
            "can meet.",
            "`d_pre` on positions compares predictions of one step by Euclidean distance. It is one "
            "application of the operator "
            "to a ground metric that knows no walls, not the operator's fixed point; hence it agrees with "
            "plain distance "
            f"(rank {rank_correlation(of_models, plain):+.2f}).",
            f"On the last batch the latents' mean distance was {ratios[0]:.2f} (everywhere) and "
            f"{ratios[1]:.2f} (episodes) of "
            "its own bootstrapped target.",
        ),
        (
            Picture(
                "learned",
                "Distance from one cell of the start region (white dot) to every cell: two exact metrics "
                "above, two learnt "
                "distances below. The green square pays in the rewarded variant.",
                draw.maze_distances(
                    {
                        "exact, rewarded": rewarded[maze.start],
                        "exact, no reward, one draw per state": shared[maze.start],
                        f"{MODELS}, everywhere": of_models[maze.start],
                        f"{LATENTS}, everywhere": of_latents[maze.start],
                    },
                    maze.centres,
                    maze.layout.walls,
                    maze.layout.bounds,
                    maze.start,
                    maze.goal,
                ),
            ),
        ),
    )


def rank_correlation(one: Floats, other: Floats) -> float:
    """Spearman's correlation over pairs of different states."""
    pairs = np.triu_indices(len(one), 1)
    found: Any = scipy.stats.spearmanr(one[pairs], other[pairs])
    return float(found.statistic)


def scale(one: Floats, other: Floats) -> float:
    """The median ratio over pairs of different states."""
    pairs = np.triu_indices(len(one), 1)
    return float(np.median(one[pairs] / other[pairs]))


def uniform_play(maze: CutMaze, seed: int) -> Play:
    """Episodes of uniform actions from the start region."""
    env = Maze2D(MAZE)
    rng = numpy_generator(seed, "theory", "play")
    paths, actions = [], []
    for episode in range(PLAYED // HORIZON):
        path = [env.reset(seed=child_seed(seed, "theory episode", episode) % 2**31)[0]]
        chosen = rng.uniform(-1.0, 1.0, (HORIZON, 2)).astype(np.float32)
        path.extend(env.step(action)[0] for action in chosen)
        paths.append(path)
        actions.append(chosen)
    walked = np.array(paths)
    obs, following = (walked[:, some].reshape(-1, 2) for some in (slice(-1), slice(1, None)))
    return rewarded_by(maze, obs, np.concatenate(actions), following)


def rewarded_by(maze: CutMaze, obs: Floats, action: Floats, following: Floats) -> Play:
    """Moves with the reward of where they start."""
    goal = maze.centres[maze.goal].mean(0)
    reward = (np.abs(obs - goal) < 0.5).all(1)[:, None]
    return Play(*(torch.from_numpy(x.astype(np.float32)) for x in (obs, action, reward, following)))


def new_models(width: int) -> MetricModels:
    """The two models of the metric, of this project's usual shape."""
    return MetricModels(
        width, 2, hidden=WIDTH, sigma_range=SIGMA_RANGE, sigma_param="affine_sigmoid", transition="gaussian"
    )


def trained_models(play: Play, setting: Setting) -> MetricModels:
    """Reward and transition model on positions, as in mazes, where the latent is the observation."""
    with initialised_from(child_seed(setting.seed, "theory models")):
        models = new_models(2)
    adam = torch.optim.Adam(models.parameters(), LEARNING_RATE)
    rng = torch_generator(setting.seed, "theory", "models")
    for _ in range(UPDATES):
        rows = torch.randint(len(play.obs), (BATCH,), generator=rng)
        said = models(play.obs[rows], play.action[rows])
        loss = models.reward_loss(said, play.reward[rows]) + models.transition_loss(said, play.next_obs[rows])
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(models.parameters(), 10.0)
        adam.step()
    return models


@torch.no_grad()
def model_distance(models: MetricModels, points: Tensor, setting: Setting) -> Floats:
    """c_R |mu_i - mu_j| + c_T ||P(s_i, a) - P(s_j, a)|| at the uniform policy's mean action, [S, S] (TEB eq. 12)."""
    said = models(points, torch.zeros(len(points), 2))
    reward = (said.reward - said.reward.T).abs()
    return (setting.c_r * reward + setting.c_t * torch.cdist(said.next, said.next)).double().numpy()


def latents_distance(play: Play, points: Tensor, setting: Setting) -> tuple[Floats, float]:
    """||phi(s_i) - phi(s_j)|| after training phi by TEB's representation loss, and its mean over its last targets."""
    with initialised_from(child_seed(setting.seed, "theory latents")):
        encoder = nn.Sequential(
            hidden_mlp(2, WIDTH, WIDTH), nn.ReLU(), Linear(WIDTH, LATENT), nn.LayerNorm(LATENT), nn.Tanh()
        )
        models = new_models(LATENT)
    parameters = [*encoder.parameters(), *models.parameters()]
    adam = torch.optim.Adam(parameters, LEARNING_RATE)
    rng = torch_generator(setting.seed, "theory", "latents")
    distance = target = torch.ones(())
    for _ in range(UPDATES):
        rows = torch.randint(len(play.obs), (BATCH,), generator=rng)
        latent, following = encoder(play.obs[rows]), encoder(play.next_obs[rows]).detach()
        said = models(latent, play.action[rows])
        i, j = pair_indices(BATCH, "perm", rng, latent.device)
        noise = torch.randn(said.reward.shape, generator=rng)
        mean, sigma = said.reward.detach(), said.reward_sigma.detach()
        delta = reward_differential(mean[i], sigma[i], mean[j], sigma[j], noise[i], noise[j], "sample")
        w1 = transition_distance(said.next[i], said.next_sigma[i], said.next[j], said.next_sigma[j])
        target = metric_target(delta.squeeze(1), w1, setting.c_r, setting.c_t)
        distance = latent_distance(latent[i], latent[j])
        loss = (
            LAMBDA_B * bisim_loss(distance, target)
            + LAMBDA_R * models.reward_loss(said, play.reward[rows])
            + LAMBDA_P * models.transition_loss(said, following)
        )
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 10.0)
        adam.step()
    with torch.no_grad():
        z = encoder(points)
        found = safe_norm(z[:, None] - z[None]).squeeze(-1).double().numpy()
    return found, float((distance.mean() / target.mean()).detach())
