"""Potential, anchor and bonus against NumPy, given what the models predict."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
import torch
from explorer_setup import GAMMA, changed, generator, policy, random_batch, small_teb, snapshot
from scipy import stats
from scipy.spatial.distance import cdist
from torch import Tensor

from teb.agents.protocol import Batch
from teb.explorers.teb import Teb
from teb.maths.distances import LatentDistance, latent_distance
from teb.nets.metric import Prediction

BATCH = random_batch(0, terminal=2, ended=4, reward_scale=1.0)


def predicted(explorer: Teb, obs: Tensor, action: Tensor) -> dict[str, np.ndarray]:
    """The online models' predictions as arrays."""
    assert explorer.online is not None
    with torch.no_grad():
        prediction = explorer.online(obs, action)
    return {name: value.numpy() for name, value in prediction._asdict().items()}


def bonus(explorer: Teb, batch: Batch = BATCH, seed: int = 0) -> np.ndarray:
    return explorer.reward(batch, policy, generator(seed))[0].squeeze(1).numpy()


def mean_actions(obs: Tensor) -> Tensor:
    return policy(obs, obs[:, :0], None)


def replayed_actions(batch: Batch, step: int) -> Tensor:
    """Replayed actions, the policy's where none was taken."""
    action = batch.window_action[:, step]
    return torch.where(action.isnan(), mean_actions(batch.window_obs[:, step]), action)


def phi(
    explorer: Teb,
    obs: Tensor,
    action: Tensor,
    anchor_reward: np.ndarray,
    anchor_next: np.ndarray,
    c_r: float = 1.0,
    c_t: float = GAMMA,
) -> np.ndarray:
    """c_R |mu - r*| + c_T ||P - z'*||, by hand."""
    p = predicted(explorer, obs, action)
    distance = np.linalg.norm(p["next"] - anchor_next, axis=1)
    return c_r * np.abs(p["reward"] - anchor_reward)[:, 0] + c_t * distance


def batch_mean(explorer: Teb, batch: Batch, action: Tensor) -> tuple[np.ndarray, np.ndarray]:
    p = predicted(explorer, batch.obs, action)
    return p["reward"].mean(0, keepdims=True), p["next"].mean(0, keepdims=True)


def ended(values: np.ndarray, batch: Batch = BATCH) -> np.ndarray:
    """The potential of a terminal state is 0."""
    return np.where(batch.discount.numpy()[:, 0] == 0, 0.0, values)


def default_potentials(explorer: Teb, batch: Batch = BATCH) -> list[np.ndarray]:
    """Phi at every step of the window, under the default reading and without the rule for terminal states."""
    anchor = batch_mean(explorer, batch, mean_actions(batch.obs))
    return [phi(explorer, obs, mean_actions(obs), *anchor) for obs in batch.window_obs.unbind(1)]


def close(found: np.ndarray, expected: np.ndarray, atol: float = 2e-5) -> bool:
    return np.allclose(found, expected, atol=atol, rtol=1e-5)


# --- anchor and potential -----------------------------------------------------------------------------------


def test_anchor_is_the_mean_prediction_over_the_batch() -> None:
    explorer = small_teb()
    anchor = explorer.anchor(BATCH, policy, generator())
    reward, following = batch_mean(explorer, BATCH, mean_actions(BATCH.obs))
    assert close(anchor.reward.numpy(), reward) and close(anchor.next.numpy(), following)
    assert bool((anchor.next_sigma == 0).all())
    assert not anchor.reward.requires_grad and not anchor.next.requires_grad


def test_default_bonus_by_hand() -> None:
    explorer = small_teb()
    potentials = default_potentials(explorer)
    assert close(bonus(explorer), GAMMA * ended(potentials[3]) - potentials[0])


def test_permuting_the_batch_permutes_the_bonus() -> None:
    explorer = small_teb()
    order = torch.randperm(len(BATCH.obs), generator=generator(5))
    shuffled = Batch(*(x[order] if len(x) == len(order) else x for x in BATCH))
    assert close(bonus(explorer, shuffled), bonus(explorer)[order.numpy()])


@pytest.mark.parametrize("anchor", ["batch_mean", "random", "ema"])
def test_potential_of_identical_states_is_zero_up_to_the_floor(anchor: str) -> None:
    explorer = small_teb(anchor=anchor)
    still = BATCH.window_obs[:1, :1].expand(32, 4, 2)
    batch = random_batch(0)._replace(obs=still[:, 0], next_obs=still[:, -1], window_obs=still)
    explorer.after_step(batch, policy, generator())
    metrics = explorer.reward(batch, policy, generator())[1]
    assert float(metrics["phi_mean"]) == pytest.approx(0.0, abs=1.1e-4)


def test_spy_sees_only_the_first_and_the_last_observation_of_each_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    explorer, seen = small_teb(), list[Tensor]()
    predict = explorer.predict

    def spy(latent: Tensor, action: Tensor) -> Prediction:
        seen.append(latent)
        return predict(latent, action)

    monkeypatch.setattr(explorer, "predict", spy)
    count = torch.arange(32.0)[:, None].expand(32, 4)
    window_obs = torch.stack([count, torch.arange(4.0).expand(32, 4)], -1)  # o_t+i = (window, i)
    bonus(explorer, BATCH._replace(obs=window_obs[:, 0], next_obs=window_obs[:, -1], window_obs=window_obs))
    pairs = [tuple(row) for latent in seen for row in latent.tolist()]
    assert set(pairs) == {(float(w), i) for w in range(32) for i in (0.0, 3.0)}, "exactly n steps apart"


@pytest.mark.parametrize("shaping", ["window_gamma", "window_gamma_n", "sum", "first_step"])
@pytest.mark.parametrize("phi_action", ["policy", "replay_policy", "replay_replay"])
def test_bonus_of_every_window_rule_and_action_rule_by_hand(shaping: str, phi_action: str) -> None:
    explorer = small_teb(shaping=shaping, phi_action=phi_action)
    batch = random_batch(3, ended=5)
    first = mean_actions(batch.obs) if phi_action == "policy" else batch.action
    anchor = batch_mean(explorer, batch, first)

    def at(step: int, is_start: bool) -> np.ndarray:
        obs = batch.window_obs[:, step]
        replay = phi_action == "replay_replay" or (phi_action == "replay_policy" and is_start)
        return phi(explorer, obs, replayed_actions(batch, step) if replay else mean_actions(obs), *anchor)

    expected = {
        "window_gamma": lambda: GAMMA * at(3, False) - at(0, True),
        "window_gamma_n": lambda: GAMMA**3 * at(3, False) - at(0, True),
        "first_step": lambda: GAMMA * at(1, False) - at(0, True),
        "sum": lambda: sum(GAMMA**i * (GAMMA * at(i + 1, False) - at(i, True)) for i in range(3)),
    }[shaping]()
    assert close(bonus(explorer, batch), np.asarray(expected))
    assert np.isfinite(bonus(explorer, batch)).all()


def test_one_step_rule_forces_windows_of_one_step() -> None:
    explorer = small_teb(shaping="one")
    batch = random_batch(1, n=1)
    assert explorer.traits.n_step == 1
    potentials = default_potentials(explorer, batch)
    assert close(bonus(explorer, batch), GAMMA * potentials[1] - potentials[0])
    assert all(
        small_teb(shaping=shaping).traits.n_step is None
        for shaping in ("window_gamma", "window_gamma_n", "sum", "first_step")
    )


@pytest.mark.parametrize("anchor", ["batch_mean", "random", "s0", "ema", "particles"])
def test_sum_and_window_gamma_n_are_one_for_a_potential_of_the_state(anchor: str) -> None:
    pair = [small_teb(shaping=shaping, anchor=anchor) for shaping in ("sum", "window_gamma_n")]
    for explorer in pair:
        explorer.after_step(random_batch(8), policy, generator())
    assert close(bonus(pair[0]), bonus(pair[1]), atol=1e-5)


def test_sum_and_window_gamma_n_differ_where_actions_are_replayed() -> None:
    pair = [small_teb(shaping=shaping, phi_action="replay_policy") for shaping in ("sum", "window_gamma_n")]
    assert not np.allclose(bonus(pair[0]), bonus(pair[1]), atol=1e-2)


def test_expected_potential_averages_policy_draws() -> None:
    config: dict[str, Any] = {"phi_action": "expected", "bonus": "potential", "terminal_potential": "raw"}
    few, many = small_teb(phi_samples=2, **config), small_teb(phi_samples=400, **config)
    anchor = batch_mean(few, BATCH, mean_actions(BATCH.obs))
    rng = generator(9)
    draws = [phi(few, BATCH.next_obs, policy(BATCH.next_obs, BATCH.skill, rng), *anchor) for _ in range(400)]
    tolerance = 5 * np.std(draws, axis=0) / np.sqrt(400) * np.sqrt(2) + 1e-5
    assert bool((np.abs(bonus(many) - np.mean(draws, axis=0)) < tolerance).all())
    assert not close(bonus(few, seed=1), bonus(few, seed=2), atol=1e-6)
    rng = generator(4)
    pair = [phi(few, BATCH.next_obs, policy(BATCH.next_obs, BATCH.skill, rng), *anchor) for _ in range(2)]
    assert close(bonus(few, seed=4), np.mean(pair, axis=0))


def test_replay_replay_without_a_next_action_is_replay_policy() -> None:
    batch = random_batch(2, ended=32)
    pair = [small_teb(phi_action=rule) for rule in ("replay_replay", "replay_policy")]
    assert np.array_equal(bonus(pair[0], batch), bonus(pair[1], batch))
    batch = random_batch(2, ended=5)
    same = np.isclose(bonus(pair[0], batch), bonus(pair[1], batch), atol=1e-6)
    assert same[:5].all() and not same[5:].all()


# --- anchors ------------------------------------------------------------------------------------------------


def test_start_anchor_is_the_prediction_at_the_first_observation_of_the_run() -> None:
    explorer = small_teb(anchor="s0")
    p = predicted(explorer, BATCH.first_obs, mean_actions(BATCH.first_obs))
    ends = phi(explorer, BATCH.next_obs, mean_actions(BATCH.next_obs), p["reward"], p["next"])
    starts = phi(explorer, BATCH.obs, mean_actions(BATCH.obs), p["reward"], p["next"])
    assert close(bonus(explorer), GAMMA * ended(ends) - starts)
    moved = BATCH._replace(first_obs=BATCH.first_obs + 1.0)
    assert not close(bonus(explorer, moved), bonus(explorer))


@pytest.mark.parametrize("shaping", ["window_gamma", "sum"])
def test_random_anchor_is_another_element_and_the_same_for_both_potentials(shaping: str) -> None:
    explorer = small_teb(anchor="random", shaping=shaping)
    batch = random_batch(4)
    order = torch.randperm(32, generator=generator(6)).numpy()
    p = predicted(explorer, batch.obs, mean_actions(batch.obs))
    ends, starts = (
        phi(explorer, obs, mean_actions(obs), p["reward"][order], p["next"][order])
        for obs in (batch.next_obs, batch.obs)
    )
    factor = GAMMA if shaping == "window_gamma" else GAMMA**3
    # An element that meets itself is at the floor of the distance, 1e-4.
    assert close(bonus(explorer, batch, seed=6), factor * ends - starts, atol=1.5e-4)


def test_moving_anchor_averages_the_batch_means_and_starts_at_the_first() -> None:
    explorer = small_teb(anchor="ema", anchor_rate=0.25)
    assert close(bonus(explorer), bonus(small_teb())), "before the first batch it is the batch mean"
    batches = [random_batch(seed) for seed in range(3)]
    mean: Any = None
    for batch in batches:
        explorer.after_step(batch, policy, generator())
        new = np.concatenate(batch_mean(explorer, batch, mean_actions(batch.obs)), axis=1)
        mean = new if mean is None else 0.75 * mean + 0.25 * new
    anchor = explorer.anchor(BATCH, policy, generator())
    assert close(np.concatenate([anchor.reward.numpy(), anchor.next.numpy()], 1), mean)
    assert not close(bonus(explorer), bonus(small_teb()), atol=1e-3)


def brute_force_particles(
    explorer: Teb, obs: Tensor, action: Tensor, ring: Tensor, ring_action: Tensor, k: int
) -> np.ndarray:
    here, there = predicted(explorer, obs, action), predicted(explorer, ring, ring_action)
    distances = np.abs(here["reward"] - there["reward"].T) + GAMMA * cdist(here["next"], there["next"])
    return np.sort(distances, axis=1)[:, :k].mean(1)


@pytest.mark.parametrize("phi_action", ["policy", "replay_policy"])
@pytest.mark.parametrize("neighbours", [1, 3, 12])
def test_particle_potential_is_the_mean_of_the_nearest_predictions(phi_action: str, neighbours: int) -> None:
    explorer = small_teb(anchor="particles", phi_action=phi_action, neighbours=neighbours)
    pushed = [random_batch(seed) for seed in (10, 11)]
    for batch in pushed:
        explorer.after_step(batch, policy, generator())
    # A ring of 40 after two batches of 32 holds the newest 40 rows.
    ring = torch.cat([batch.obs for batch in pushed])[-40:]
    replayed = torch.cat([batch.action for batch in pushed])[-40:]
    ring_action = mean_actions(ring) if phi_action == "policy" else replayed
    first = mean_actions(BATCH.obs) if phi_action == "policy" else BATCH.action
    starts = brute_force_particles(explorer, BATCH.obs, first, ring, ring_action, neighbours)
    ends = brute_force_particles(
        explorer, BATCH.next_obs, mean_actions(BATCH.next_obs), ring, ring_action, neighbours
    )
    # Distances come from one matrix product, exact to about 1e-3 between points that nearly coincide.
    assert close(bonus(explorer), GAMMA * ended(ends) - starts, atol=2e-3)


def test_particle_potential_of_one_batch_repeats_its_rows_in_the_empty_slots() -> None:
    explorer = small_teb(anchor="particles", particles=48, neighbours=2, bonus="potential")
    batch = random_batch(10)
    explorer.after_step(batch, policy, generator())
    ring = batch.obs[torch.arange(48) % 32]
    ends = brute_force_particles(
        explorer, BATCH.next_obs, mean_actions(BATCH.next_obs), ring, mean_actions(ring), 2
    )
    assert close(bonus(explorer), ended(ends), atol=2e-3)


@pytest.mark.parametrize("kind", ["shaping", "potential"])
def test_particle_bonus_is_zero_before_the_first_push_and_not_after(kind: str) -> None:
    explorer = small_teb(anchor="particles", bonus=kind)
    assert bool((bonus(explorer) == 0).all())
    explorer.after_step(random_batch(10), policy, generator())
    assert bool((bonus(explorer)[2:] != 0).all())


def test_number_of_particles_decides_how_far_the_memory_reaches() -> None:
    pair = [small_teb(anchor="particles", particles=particles) for particles in (32, 64)]
    for explorer in pair:
        for seed in (10, 11):
            explorer.after_step(random_batch(seed), policy, generator())
    assert not close(bonus(pair[0]), bonus(pair[1]), atol=1e-2)
    for explorer in pair:
        explorer.after_step(random_batch(11), policy, generator())
        explorer.after_step(random_batch(11), policy, generator())
    # Twice the same rows fill either ring with nothing else; the second holds every row twice.
    ones, twos = (bonus(e) for e in (pair[0], pair[1]))
    assert not close(ones, twos, atol=1e-2)


def test_anchor_action_replay_differs_for_the_policy_rule_and_is_the_match_for_the_replay_rules() -> None:
    explorer = small_teb(anchor_action="replay")
    anchor = batch_mean(explorer, BATCH, BATCH.action)
    found = explorer.anchor(BATCH, policy, generator())
    assert close(found.next.numpy(), anchor[1]) and close(found.reward.numpy(), anchor[0])
    assert not close(bonus(explorer), bonus(small_teb()), atol=1e-3)
    for rule in ("replay_policy", "replay_replay"):
        pair = [small_teb(phi_action=rule, anchor_action=action) for action in ("replay", "match")]
        assert np.array_equal(bonus(pair[0]), bonus(pair[1]))


@pytest.mark.parametrize(("option", "steps"), [("replay_nstep", 3), ("replay_1", 1)])
def test_replayed_anchor_rewards_are_the_mean_of_stored_returns(option: str, steps: int) -> None:
    explorer = small_teb(anchor_reward=option)
    returns = BATCH.rewards.numpy()[:, :steps] @ (GAMMA ** np.arange(steps))
    anchor = explorer.anchor(BATCH, policy, generator())
    assert float(anchor.reward) == pytest.approx(returns.mean(), abs=1e-5)
    assert close(anchor.next.numpy(), small_teb().anchor(BATCH, policy, generator()).next.numpy())
    assert not close(bonus(explorer), bonus(small_teb()), atol=1e-3)


def test_replayed_returns_over_one_step_are_the_immediate_rewards() -> None:
    pair = [small_teb(anchor_reward=option, reward_horizon=1) for option in ("replay_nstep", "replay_1")]
    assert np.array_equal(bonus(pair[0]), bonus(pair[1]))


def test_sampled_anchor_reward_scatters_around_the_predicted_mean() -> None:
    explorer = small_teb(anchor_reward="pred_sample")
    rng = generator()
    rewards = np.array([float(explorer.anchor(BATCH, policy, rng).reward) for _ in range(400)])
    p = predicted(explorer, BATCH.obs, mean_actions(BATCH.obs))
    deviation = np.sqrt(np.square(p["reward_sigma"]).sum()) / 32
    assert rewards.std() == pytest.approx(deviation, rel=0.15)
    assert rewards.mean() == pytest.approx(float(p["reward"].mean()), abs=float(deviation) / 4)


# --- what the potential measures ----------------------------------------------------------------------------


def test_sampled_reward_in_the_potential_has_the_folded_normal_expectation() -> None:
    explorer = small_teb(phi_reward="sample", bonus="potential", terminal_potential="raw")
    reward, following = batch_mean(explorer, BATCH, mean_actions(BATCH.obs))
    p = predicted(explorer, BATCH.next_obs, mean_actions(BATCH.next_obs))
    gap, sigma = np.abs(p["reward"] - reward)[:, 0], p["reward_sigma"][:, 0]
    expected = stats.foldnorm.mean(gap / sigma, scale=sigma)
    expected += GAMMA * np.linalg.norm(p["next"] - following, axis=1)
    rng = generator(1)
    draws = np.array([explorer.reward(BATCH, policy, rng)[0].squeeze(1).numpy() for _ in range(600)])
    assert bool((np.abs(draws.mean(0) - expected) < 5 * draws.std(0) / np.sqrt(600)).all())
    assert draws.std(0).min() > 0.05


@pytest.mark.parametrize("kind", [kind for kind in get_args(LatentDistance)])
@pytest.mark.parametrize("anchor", ["batch_mean", "particles"])
def test_ground_distance_of_the_potential(kind: LatentDistance, anchor: str) -> None:
    explorer = small_teb(
        latent_dist=kind, anchor=anchor, bonus="potential", terminal_potential="raw", c_r=0.0, neighbours=1,
        particles=32,
    )  # fmt: skip
    batch = random_batch(10)
    explorer.after_step(batch, policy, generator())
    p = predicted(explorer, batch.next_obs, mean_actions(batch.next_obs))["next"]
    q = predicted(explorer, batch.obs, mean_actions(batch.obs))["next"]
    if anchor == "batch_mean":
        q = q.mean(0, keepdims=True)
    each = [
        latent_distance(torch.from_numpy(p), torch.from_numpy(row).expand(32, 2), kind).numpy() for row in q
    ]
    assert close(bonus(explorer, batch), GAMMA * np.min(each, axis=0), atol=2e-3)


@pytest.mark.parametrize("anchor", ["batch_mean", "s0", "particles"])
@pytest.mark.parametrize("kind", ["w2", "rap"])
def test_spread_enters_the_gaussian_transition_distances(kind: str, anchor: str) -> None:
    explorer = small_teb(
        w_dist=kind, anchor=anchor, bonus="potential", terminal_potential="raw", c_r=0.0, neighbours=1,
        particles=32,
    )  # fmt: skip
    batch = random_batch(10)
    explorer.after_step(batch, policy, generator())
    p = predicted(explorer, batch.next_obs, mean_actions(batch.next_obs))
    where = batch.first_obs if anchor == "s0" else batch.obs
    q = predicted(explorer, where, mean_actions(where))
    if anchor == "batch_mean":
        # The mean of the batch is a point, so the prediction's own spread counts in full.
        q = {"next": q["next"].mean(0, keepdims=True), "next_sigma": np.zeros((1, 2))}
    squares = (p["next"][:, None] - q["next"]) ** 2 + (p["next_sigma"][:, None] - q["next_sigma"]) ** 2
    each = np.sqrt(squares.sum(-1)) if kind == "w2" else np.sqrt(squares).mean(-1)
    assert close(bonus(explorer, batch), GAMMA * each.min(1), atol=3e-3)


def test_sampled_transition_distance_is_that_of_one_draw() -> None:
    explorer = small_teb(w_dist="sample", bonus="potential", terminal_potential="raw", c_r=0.0)
    _, following = batch_mean(explorer, BATCH, mean_actions(BATCH.obs))
    p = predicted(explorer, BATCH.next_obs, mean_actions(BATCH.next_obs))
    xi = np.random.default_rng(0).standard_normal((20_000, 32, 2))
    expected = GAMMA * np.linalg.norm(p["next"] + p["next_sigma"] * xi - following, axis=2).mean(0)
    rng = generator(2)
    draws = np.array([explorer.reward(BATCH, policy, rng)[0].squeeze(1).numpy() for _ in range(600)])
    assert bool((np.abs(draws.mean(0) - expected) < 5.5 * draws.std(0) / np.sqrt(600)).all())


@pytest.mark.parametrize(("c_r", "c_t"), [(0.0, None), (1.0, 0.0), (2.5, 0.4)])
@pytest.mark.parametrize("anchor", ["batch_mean", "particles"])
def test_weights_of_reward_and_transition(c_r: float, c_t: float | None, anchor: str) -> None:
    explorer = small_teb(
        c_r=c_r,
        c_t=c_t,
        anchor=anchor,
        bonus="potential",
        terminal_potential="raw",
        neighbours=1,
        particles=32,
    )
    batch = random_batch(10)
    explorer.after_step(batch, policy, generator())
    p, q = (predicted(explorer, obs, mean_actions(obs)) for obs in (batch.next_obs, batch.obs))
    if anchor == "batch_mean":
        q = {name: value.mean(0, keepdims=True) for name, value in q.items()}
    weight = GAMMA if c_t is None else c_t
    distances = c_r * np.abs(p["reward"] - q["reward"].T) + weight * cdist(p["next"], q["next"])
    assert close(bonus(explorer, batch), distances.min(1), atol=2e-3)


def test_without_models_the_potential_is_the_distance_to_the_centroid() -> None:
    explorer = small_teb(models="none")
    centroid = BATCH.obs.numpy().mean(0)
    ends, starts = (
        GAMMA * np.linalg.norm(obs.numpy() - centroid, axis=1) for obs in (BATCH.next_obs, BATCH.obs)
    )
    assert close(bonus(explorer), GAMMA * ended(ends) - starts)
    assert not list(explorer.parameters()) and not explorer.parameter_groups()


def test_dropped_reward_model_removes_the_reward_term() -> None:
    assert np.array_equal(bonus(small_teb(reward_model="off")), bonus(small_teb(c_r=0.0)))
    assert not close(bonus(small_teb(reward_model="off")), bonus(small_teb()), atol=1e-3)
    assert np.array_equal(bonus(small_teb(reward_model="frozen")), bonus(small_teb()))


# --- the bonus ----------------------------------------------------------------------------------------------


def test_undifferenced_bonus_is_the_potential_at_the_window_s_end() -> None:
    explorer = small_teb(bonus="potential")
    assert close(bonus(explorer), ended(default_potentials(explorer)[3]))


@pytest.mark.parametrize("shaping", ["window_gamma", "window_gamma_n", "sum", "first_step"])
def test_undifferenced_bonus_does_not_depend_on_the_window_rule(shaping: str) -> None:
    assert np.array_equal(
        bonus(small_teb(bonus="potential", shaping=shaping)), bonus(small_teb(bonus="potential"))
    )


@pytest.mark.parametrize("shaping", ["window_gamma", "window_gamma_n", "sum"])
def test_terminal_states_have_potential_zero_or_what_they_have(shaping: str) -> None:
    zero = small_teb(shaping=shaping)
    raw = small_teb(shaping=shaping, terminal_potential="raw")
    factor = GAMMA if shaping == "window_gamma" else GAMMA**3
    potentials = default_potentials(zero)
    assert close(bonus(zero)[:2], -potentials[0][:2])
    assert close(bonus(raw)[:2], factor * potentials[3][:2] - potentials[0][:2])
    assert np.array_equal(bonus(zero)[2:], bonus(raw)[2:])


def test_first_step_of_a_window_that_ends_terminal_is_not_itself_terminal() -> None:
    explorer = small_teb(shaping="first_step")
    potentials = default_potentials(explorer)
    assert close(bonus(explorer), GAMMA * potentials[1] - potentials[0])


def test_first_step_of_a_terminal_window_of_one_step_is_terminal() -> None:
    explorer = small_teb(shaping="first_step", n_step=1)
    batch = random_batch(5, n=1, terminal=3)
    potentials = default_potentials(explorer, batch)
    assert close(bonus(explorer, batch), GAMMA * ended(potentials[1], batch) - potentials[0])


def test_normalised_bonus_has_deviation_one_and_the_same_direction() -> None:
    plain, normalised = bonus(small_teb()), bonus(small_teb(fint_norm="std"))
    assert normalised.std(ddof=1) == pytest.approx(1.0, rel=1e-4)
    assert close(normalised, plain / plain.std(ddof=1))


def test_metrics_of_the_bonus() -> None:
    explorer = small_teb()
    paid, metrics, *_ = explorer.reward(BATCH, policy, generator())
    values = paid.numpy()[:, 0]
    assert float(metrics["bonus_mean"]) == pytest.approx(values.mean(), abs=1e-5)
    assert float(metrics["bonus_std"]) == pytest.approx(values.std(ddof=1), rel=1e-4)
    assert float(metrics["bonus_abs_p50"]) == pytest.approx(np.quantile(np.abs(values), 0.5), rel=1e-4)
    assert float(metrics["bonus_abs_p95"]) == pytest.approx(np.quantile(np.abs(values), 0.95), rel=1e-4)
    assert float(metrics["phi_mean"]) == pytest.approx(
        ended(default_potentials(explorer)[3]).mean(), rel=1e-4
    )


# --- the slow copy ------------------------------------------------------------------------------------------


def disturb(explorer: Teb) -> None:
    """Stand-in for a step of the models."""
    assert explorer.online is not None
    rng = generator(3)
    with torch.no_grad():
        for parameter in explorer.online.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=rng)


def test_slow_copy_stands_behind_the_potential_and_follows_after_the_step() -> None:
    online, slow = small_teb(), small_teb(metric_target="ema", metric_tau=0.25)
    start = bonus(online)
    assert np.array_equal(bonus(slow), start)
    before = snapshot(slow)
    disturb(online)
    disturb(slow)
    assert not close(bonus(online), start, atol=1e-3)
    assert np.array_equal(bonus(slow), start), "the potential lags behind the models"
    assert slow.online is not None and slow.slow is not None
    slow.after_step(BATCH, policy, generator())
    for name, parameter in slow.slow.named_parameters():
        fast = slow.online.get_parameter(name)
        assert torch.allclose(parameter, 0.75 * before[f"slow.{name}"] + 0.25 * fast, atol=1e-6)
        assert not parameter.requires_grad
    assert not close(bonus(slow), start, atol=1e-3)


@pytest.mark.parametrize(("tau", "reference"), [(1.0, "disturbed"), (0.0, "start")])
def test_ends_of_the_slow_copy_s_rate(tau: float, reference: str) -> None:
    slow, online = small_teb(metric_target="ema", metric_tau=tau), small_teb()
    disturb(slow)
    slow.after_step(BATCH, policy, generator())
    if reference == "disturbed":
        disturb(online)
    assert close(bonus(slow), bonus(online))


def test_after_step_of_the_default_moves_nothing() -> None:
    explorer = small_teb()
    before = snapshot(explorer)
    explorer.after_step(BATCH, policy, generator())
    assert not changed(before, snapshot(explorer))
