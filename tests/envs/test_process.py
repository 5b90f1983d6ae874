"""Environments in a process of their own: the same episodes, the same errors, and no process that stays behind."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from teb.envs import EnvProcessError, make_task, make_task_elsewhere
from teb.envs.gym import GymConfig
from teb.envs.maze2d import Maze2DConfig
from teb.envs.metaworld import MetaWorldConfig
from teb.envs.nometer import NoMeter
from teb.envs.probe import ProbeConfig
from teb.envs.process import RemoteEnv
from teb.envs.protocol import InTurn, Task

MODULE = '''
import gymnasium as gym
import numpy as np
import os
import time
from pathlib import Path

class Fragile(gym.Env):
    """Breaks in a way that depends on the action."""
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        if options:
            raise ValueError(f"options: must be none, got {options}")
        return np.zeros(2, np.float32), {"threads": os.environ["OMP_NUM_THREADS"]}

    def step(self, action):
        if action[0] > 0.5:
            os._exit(7)
        if action[0] < -0.5:
            class Local(Exception):
                pass
            raise Local("cannot travel")
        until = time.monotonic() + (10 if action[0] > 0 else 0)
        while time.monotonic() < until and not Path(__file__).with_name("owner_went_on").exists():
            time.sleep(0.01)
        told = Path(__file__).with_name("owner_went_on").exists()
        return np.zeros(2, np.float32), np.float64(1.0), False, False, {"said": [1, "two"], "told": told}

gym.register("Fragile-v0", Fragile)
'''


def remote(task: Task) -> RemoteEnv:
    assert isinstance(task.env, RemoteEnv)
    return task.env


@pytest.fixture
def fragile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteEnv]:
    (tmp_path / "fragile_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    env = remote(make_task_elsewhere("gym/fragile_module:Fragile-v0", GymConfig()))
    yield env
    env.close()


def alive(process: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(process: int, seconds: float = 20.0) -> bool:
    until = time.monotonic() + seconds
    while alive(process) and time.monotonic() < until:
        time.sleep(0.02)
    return not alive(process)


@pytest.mark.parametrize(
    ("env_id", "config"),
    [
        ("maze2d/corridor2", Maze2DConfig()),
        ("probe/far", ProbeConfig(horizon=7)),
        ("gym/Pendulum-v1", GymConfig(max_episode_steps=9)),
        pytest.param(
            "metaworld/reach",
            MetaWorldConfig(horizon=12, render_quality="fast", distract_colour=True),
            marks=(pytest.mark.metaworld, pytest.mark.rendering),
        ),
    ],
)
def test_the_same_episodes_bit_for_bit(env_id: str, config: Any) -> None:
    here, there = make_task(env_id, config), make_task_elsewhere(env_id, config)
    assert there.env.observation_space == here.env.observation_space
    assert there.env.action_space == here.env.action_space
    assert (there.headline, there.frame_stack) == (here.headline, here.frame_stack)
    rng = np.random.default_rng(0)
    for seed in (3, 4):
        seen, other = (task.env.reset(seed=seed)[0] for task in (here, there))
        ended = False
        while not ended:
            for task, obs in ((here, seen), (there, other)):
                task.meter.observe(obs, 1)
            action = rng.uniform(-1, 1, here.env.action_space.shape).astype(np.float32)
            remote(there).send(action)
            expected, got = here.env.step(action), remote(there).receive()
            seen, other = expected[0], got[0]
            assert (other.dtype, other.tobytes()) == (seen.dtype, seen.tobytes())
            assert pickle.dumps(got[1:]) == pickle.dumps(expected[1:])
            ended = expected[2] or expected[3]
            assert there.meter.observe_step(got[4], ended) == here.meter.observe_step(expected[4], ended)
    assert there.meter.metrics() == here.meter.metrics()
    for task in (here, there):
        task.env.close()


def test_the_owner_goes_on_while_the_environment_steps(fragile: RemoteEnv, tmp_path: Path) -> None:
    fragile.reset(seed=0)
    fragile.send(np.full(1, 0.3))
    (tmp_path / "owner_went_on").touch()
    assert fragile.receive()[4]["told"]
    fragile.send(np.zeros(1))
    assert fragile._connection.poll(20.0), "a step needs nobody who waits for it"


def test_in_turn_steps_when_it_is_asked() -> None:
    env = make_task("probe/near").env
    taken: list[Any] = []
    env.step = lambda action: (taken.append(action), "outcome")[1]  # pyright: ignore
    stepper = Task(env, NoMeter(), "episode_return").stepper
    assert isinstance(stepper, InTurn)
    stepper.send(np.ones(2))
    assert taken == []
    assert stepper.receive() == "outcome" and len(taken) == 1


def test_an_error_arrives_as_it_was(fragile: RemoteEnv) -> None:
    _, info = fragile.reset(seed=0)
    assert info == {"threads": "1"}
    with pytest.raises(ValueError) as caught:
        fragile.reset(options={"start": 1})
    assert str(caught.value) == "options: must be none, got {'start': 1}"
    assert "fragile_module.py" in caught.value.__notes__[0]
    assert fragile.step(np.zeros(1))[1:] == (1.0, False, False, {"said": [1, "two"], "told": False})


def test_an_error_that_cannot_travel_arrives_in_words(fragile: RemoteEnv) -> None:
    fragile.reset(seed=0)
    with pytest.raises(RuntimeError, match="^Local: cannot travel$"):
        fragile.step(np.full(1, -1.0))
    assert fragile.step(np.zeros(1))[1] == 1.0


def test_a_process_that_dies_is_reported(fragile: RemoteEnv) -> None:
    fragile.reset(seed=0)
    fragile.send(np.ones(1))
    with pytest.raises(EnvProcessError, match="ended with exit code 7$"):
        fragile.receive()
    with pytest.raises(EnvProcessError, match="ended with exit code 7$"):
        fragile.reset(seed=0)


def test_what_cannot_be_built_is_refused_as_here() -> None:
    said: list[str] = []
    for make in (make_task, make_task_elsewhere):
        with pytest.raises(ValueError) as caught:
            make("gym/CartPole-v1", GymConfig())
        said.append(str(caught.value))
    assert said[0] == said[1] and "Discrete actions" in said[0]


def test_closing_ends_the_process_even_within_a_step() -> None:
    env = remote(make_task_elsewhere("probe/near", ProbeConfig()))
    env.reset(seed=0)
    env.send(np.zeros(2, np.float32))
    env.close()
    assert env._process.returncode == 0
    env.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_leave_it_alone(number: signal.Signals) -> None:
    """Ctrl-C reaches every process of a terminal; the owner saves first, and may need the step that is under way."""
    env = remote(make_task_elsewhere("probe/near", ProbeConfig()))
    assert os.getpgid(env._process.pid) != os.getpgid(0)
    os.kill(env._process.pid, number)
    env.reset(seed=0)
    env.close()
    assert env._process.returncode == 0


def test_it_does_not_outlive_its_owner() -> None:
    owner = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(
                """
                import time
                from teb.envs import make_task_elsewhere
                from teb.envs.probe import ProbeConfig
                env = make_task_elsewhere("probe/near", ProbeConfig()).env
                print(env._process.pid, flush=True)
                time.sleep(600)
                """
            ),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout is not None
        process = int(owner.stdout.readline())
        assert alive(process)
        owner.kill()
    assert gone(process)


def test_it_loads_no_learning() -> None:
    code = "import sys; import teb.envs.process, teb.envs; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
