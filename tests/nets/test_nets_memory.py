from __future__ import annotations

from collections import deque

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from teb.nets.memory import MovingAverage, Ring, follow


@settings(max_examples=80)
@given(size=st.integers(1, 9), pushes=st.lists(st.integers(0, 20), max_size=8))
def test_ring_holds_what_a_deque_holds(size: int, pushes: list[int]) -> None:
    ring, queue = Ring(size, 2), deque[tuple[float, float]](maxlen=size)
    count = 0
    for batch in pushes:
        rows = torch.tensor([[count + i, -(count + i)] for i in range(batch)], dtype=torch.float32)
        count += batch
        ring.push(rows.reshape(batch, 2))
        queue.extend(tuple(row) for row in rows[:size].tolist())  # of a larger batch the first rows stay
        assert bool(ring.filled()) == bool(queue)
        found = [tuple(row) for row in ring.rows().tolist()]
        assert len(found) == size
        if queue:
            assert set(found) == set(queue), "every slot repeats a row that was pushed"
        if len(queue) == size:
            assert sorted(found) == sorted(queue)


def test_slots_never_written_repeat_the_written_ones_evenly() -> None:
    ring = Ring(6, 1)
    ring.push(torch.tensor([[1.0], [2.0]]))
    assert sorted(ring.rows().flatten().tolist()) == [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]


def test_an_empty_ring_is_not_filled() -> None:
    ring = Ring(3, 2)
    assert not bool(ring.filled())
    assert ring.rows().shape == (3, 2)


def test_ring_keeps_copies() -> None:
    ring, rows = Ring(2, 1), torch.tensor([[1.0], [2.0]])
    ring.push(rows)
    rows.zero_()
    assert sorted(ring.rows().flatten().tolist()) == [1.0, 2.0]
    ring.rows().zero_()
    assert sorted(ring.rows().flatten().tolist()) == [1.0, 2.0]


def test_memories_are_saved_as_buffers() -> None:
    ring, average = Ring(4, 2), MovingAverage(2, 0.1)
    ring.push(torch.rand(3, 2))
    average.move(torch.rand(1, 2))
    again, average_again = Ring(4, 2), MovingAverage(2, 0.1)
    again.load_state_dict(ring.state_dict())
    average_again.load_state_dict(average.state_dict())
    rows, value = torch.rand(3, 2), torch.rand(1, 2)
    for memory in (ring, again):
        memory.push(rows)
    for memory in (average, average_again):
        memory.move(value)
    assert torch.equal(ring.rows(), again.rows())
    assert torch.equal(average.value(torch.zeros(1, 2)), average_again.value(torch.ones(1, 2)))
    assert not list(ring.parameters()) and not list(average.parameters())


@given(
    rate=st.floats(0.0, 1.0),
    values=st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=8),
)
def test_moving_average_is_that_of_a_loop(rate: float, values: list[float]) -> None:
    average, expected = MovingAverage(1, rate), values[0]
    for step, value in enumerate(values):
        average.move(torch.tensor([[value]]))
        expected = value if step == 0 else (1 - rate) * expected + rate * value
        assert float(average.value(torch.tensor([[99.0]]))) == pytest.approx(expected, abs=1e-4)


def test_moving_average_before_its_first_value_is_the_stand_in() -> None:
    stand_in = torch.tensor([[3.0, 4.0]])
    assert torch.equal(MovingAverage(2, 0.5).value(stand_in), stand_in)


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.3, 1.0])
def test_following_a_constant_shrinks_the_gap_geometrically(rate: float) -> None:
    slow, fast = nn.Linear(3, 2), nn.Linear(3, 2)
    gaps = [
        f.detach() - s.detach().clone() for s, f in zip(slow.parameters(), fast.parameters(), strict=True)
    ]
    kept = [f.detach().clone() for f in fast.parameters()]
    for _ in range(7):
        follow(slow, fast, rate)
    for s, f, gap, old in zip(slow.parameters(), fast.parameters(), gaps, kept, strict=True):
        assert torch.equal(f, old), "the fast module does not move"
        assert torch.allclose(f - s, (1 - rate) ** 7 * gap, atol=1e-6)
