from __future__ import annotations

import pytest
import torch

from teb.agents.mixing import Calibration, MixingConfig


def batches(count: int) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    return [torch.randn(16, 1, generator=rng) * (1 + step) for step in range(count)]


def test_the_factor_brings_the_mean_size_so_far_to_the_goal_and_then_stays() -> None:
    calibration, seen = Calibration(3, 0.05), []
    factors = [float(calibration.factor(values)) for values in batches(6)]
    for values in batches(3):
        seen.append(float(values.abs().mean()))
    means = [sum(seen[: step + 1]) / (step + 1) for step in range(3)]
    assert factors[:3] == pytest.approx([0.05 / mean for mean in means], rel=1e-5)
    assert factors[3:] == [factors[2]] * 3


def test_sizes_are_measured_without_their_sign() -> None:
    calibration = Calibration(1, 0.5)
    assert float(calibration.factor(torch.tensor([[-2.0], [2.0]]))) == pytest.approx(0.25)


def test_a_bonus_of_nothing_but_zeros_has_no_factor_yet() -> None:
    calibration = Calibration(10, 0.05)
    assert float(calibration.factor(torch.zeros(4, 1))) == 1.0
    assert float(calibration.factor(torch.ones(4, 1))) == pytest.approx(0.1)


def test_it_goes_on_from_its_state() -> None:
    first, second = Calibration(4, 0.05), Calibration(4, 0.05)
    for values in batches(2):
        first.factor(values)
    second.load_state_dict(first.state_dict())
    for values in batches(6)[2:]:
        assert torch.equal(first.factor(values), second.factor(values))


def test_no_updates_mean_no_calibration() -> None:
    assert MixingConfig().calibration() is None
    made = MixingConfig(7, 0.1).calibration()
    assert made is not None and (made.updates, made.goal) == (7, 0.1)


@pytest.mark.parametrize(("field", "value"), [("calibrate_updates", -1), ("calibrate_to", 0.0)])
def test_impossible_values_are_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"^{field}: .*got {value:g}"):
        MixingConfig(**{field: value})  # pyright: ignore[reportArgumentType]
