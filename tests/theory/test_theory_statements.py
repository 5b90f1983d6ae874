"""The experiments: their verdicts, the audit's numbers, and that a verdict can turn."""

from __future__ import annotations

import numpy as np
import pytest

from teb.theory import nondegeneracy as non
from teb.theory import operators, value_bound
from teb.theory.cost import cost
from teb.theory.invariance import invariance
from teb.theory.learned import learned, rank_correlation, scale
from teb.theory.maze import cut_maze
from teb.theory.processes import Process, chain_of, fork, grid, lazy_ring, random_process, ring, two_rooms
from teb.theory.statement import Setting

PAPER = Setting(c_r=1.0, c_t=0.97, gamma=0.97, sigma=0.5, seed=0)


@pytest.mark.parametrize(
    "process",
    [
        ring(6, 0.5),
        lazy_ring(6, 0.5),
        fork(0.1),
        two_rooms(0.0),
        grid(3, 0.1),
        random_process(np.random.default_rng(0), 5, 2, 3, 0.1),
    ],
)
def test_named_processes_are_processes(process: Process) -> None:
    assert np.allclose(process.transitions.sum(2), 1.0) and (process.transitions >= 0).all()
    assert np.allclose(process.policy.sum(1), 1.0)
    assert np.array_equal(process.reward_mean, process.rewards)
    assert process.kernel.shape == (process.states, process.states)


@pytest.mark.parametrize(
    ("experiment", "verdict"),
    [
        (operators.reduction, "holds under conditions"),
        (operators.diameter, "holds"),
        (operators.contraction, "holds"),
        (non.nondegeneracy, "holds under conditions"),
        (value_bound.value_bound, "holds under conditions"),
        (invariance, "holds under conditions"),
    ],
)
@pytest.mark.parametrize(
    "setting", [PAPER, Setting(c_r=0.5, c_t=0.8, gamma=0.9, sigma=0.1, seed=3)], ids=["paper", "other"]
)
def test_verdicts_are_those_of_the_audit(experiment, verdict: str, setting: Setting) -> None:  # noqa: ANN001
    assert experiment(setting).verdict == verdict


def test_the_numbers_of_the_audit_on_non_degeneracy() -> None:
    numbers = non.nondegeneracy(PAPER).numbers
    assert "all 36 entries are 18.806" in numbers and "0.435 > 0.0038" in numbers
    floor = non.case("", ring(6, non.SIGMA_MIN), "independent", PAPER)
    assert floor.distance.mean() == pytest.approx(3.76e-3, rel=1e-2) and floor.within
    assert not non.case("", fork(1e-4), "independent", PAPER).within
    assert non.case("", fork(0.0), "shared", PAPER).silent.shape == (3, 3)


def test_without_a_transition_term_no_path_leads_to_reward() -> None:
    """At c_T = 0 the fork stays within its bound, and only bias breaks it."""
    setting = Setting(c_r=1.0, c_t=0.0, gamma=0.9, sigma=0.5, seed=0)
    assert non.case("", fork(0.5), "independent", setting).within
    assert "fork" not in non.nondegeneracy(setting).numbers and "biased" in non.nondegeneracy(setting).numbers


def test_the_value_bound_turns_with_the_reward_weight() -> None:
    """|V_0 - V_1| of the two rooms is 1 / (1 - gamma), their distance c_R / (1 - c_T)."""
    rooms = two_rooms(0.0)
    gap = float(np.ptp(rooms.values(0.97)))
    for c_r, c_t in [(1.0, 0.97), (0.1, 0.97), (1.0, 0.8)]:
        d = rooms.predictive(c_r, c_t).distance[0, 1]
        assert gap / d == pytest.approx((1 - c_t) / (1 - 0.97) / c_r)


def test_the_learnt_metric_of_n_step_returns_still_bounds_values() -> None:
    rng = np.random.default_rng(5)
    for _ in range(10):
        broken, larger = value_bound._with_horizon(random_process(rng, 6, 1, 2, 0.0), PAPER)
        assert broken == 0.0 and larger > 0.0


def test_shaping_table_has_the_directions_of_the_audit() -> None:
    table = invariance(PAPER).table
    behaviours = [row.split("|")[3].strip() for row in table.splitlines()[2:]]
    assert behaviours == ["indifferent", "indifferent", "away", "toward", "toward", "toward"]


def test_cut_maze_moves_as_the_maze_does() -> None:
    maze = cut_maze("square-a", 200, np.random.default_rng(0))
    assert maze.kernel.shape == (68, 68) and np.allclose(maze.kernel.sum(1), 1.0)
    assert maze.goal.sum() == 4 and not maze.goal[maze.start]
    far = np.abs(maze.centres[:, None] - maze.centres[None]).max(-1)
    assert (maze.kernel[far > 0.95 + 0.5] == 0).all(), "no step is longer than a move and a cell"
    (start, action, end) = maze.moves
    assert np.abs(end - start).max() <= 0.95 + 0.01 + 1e-9 and np.abs(action).max() <= 1.0
    silent = maze.process(False, 0.5).predictive(1.0, 0.9, "independent").distance
    assert np.ptp(silent) < 1e-9, "without reward the independent metric is one constant"


def test_rank_and_scale_tell_a_monotone_map_from_another() -> None:
    rng = np.random.default_rng(1)
    d = np.abs(rng.normal(size=(6, 6)))
    d = d + d.T
    assert rank_correlation(3 * d**2, d) == pytest.approx(1.0)
    assert rank_correlation(-d, d) == pytest.approx(-1.0)
    assert scale(2.5 * d, d) == pytest.approx(2.5)


@pytest.mark.slow
def test_the_learnt_metric_is_compared_and_the_cost_measured() -> None:
    found = learned(PAPER)
    assert found.verdict == "measured" and len(found.table.splitlines()) == 7
    assert cost(PAPER).verdict == "measured"


def test_a_chain_has_one_action() -> None:
    process = chain_of(np.eye(3), np.arange(3.0), 0.2)
    assert process.rewards.shape == (3, 1)
    assert np.array_equal(process.reward, np.arange(3.0))
    assert np.allclose(process.mico(1.0, 0.5).distance, 2 * np.abs(np.arange(3)[:, None] - np.arange(3)))
