"""One seed per purpose, all derived from the run's seed: adding a consumer never shifts the numbers of another."""

from __future__ import annotations

import numpy as np
import torch


def child_seed(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for one purpose, such as `child_seed(3, "episode", 12)`."""
    key = [word if isinstance(word, int) else int.from_bytes(word.encode(), "little") for word in purpose]
    spawned = np.random.SeedSequence(
        seed, spawn_key=tuple(part % 2**32 for word in key for part in _limbs(word))
    )
    return int(spawned.generate_state(1, np.uint64)[0] >> np.uint64(1))


def _limbs(number: int) -> list[int]:
    """A non-negative integer in base 2^32, since spawn keys are 32-bit words."""
    if number < 0:
        raise ValueError(f"a purpose is counted from 0, got {number}")
    limbs = [number % 2**32]
    while number := number // 2**32:
        limbs.append(number % 2**32)
    return limbs


def numpy_generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """A NumPy generator for one purpose."""
    return np.random.default_rng(child_seed(seed, *purpose))


def torch_generator(seed: int, *purpose: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """A PyTorch generator for one purpose, on the device whose numbers it draws."""
    return torch.Generator(device=device).manual_seed(child_seed(seed, *purpose))
