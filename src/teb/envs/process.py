"""An environment in a process of its own, so that it steps and draws while whoever asked does something else.

The process knows nothing of learning and loads no PyTorch. It ends when its connection does: when that is closed, and
also when its owner is killed.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import traceback
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import gymnasium as gym
import numpy as np

from teb.envs.protocol import Outcome, Task

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""What keeps the process to one core: the others belong to learning."""

_MAIN = "import sys; sys.path[:] = {path!r}; from teb.envs.process import serve; serve({handle})"


class EnvProcessError(Exception):
    """The process of an environment ended by itself."""


class RemoteEnv(gym.Env[np.ndarray, np.ndarray]):
    """A Gymnasium environment whose steps happen elsewhere: `send` begins one, `receive` waits for what came of it.

    Errors of the environment are raised here as they were there.
    """

    def __init__(self, env_id: str, config: Any) -> None:
        """Start the process and have it build the task; `task` is that task, with this environment in it."""
        ours, theirs = Pipe()
        self._connection = ours
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _MAIN.format(path=sys.path, handle=theirs.fileno())],
                env=os.environ | ONE_THREAD,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C is for the owner, who may still want the step that is under way
            )
        try:
            self._tell(env_id, config)
            spaces, task = self._hear()
        except BaseException:
            self.close()
            raise
        self.observation_space, self.action_space = spaces
        self.task: Task = task._replace(env=self)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode."""
        self._tell("reset", seed, options)
        return self._hear()

    def send(self, action: np.ndarray) -> None:
        """Begin a step."""
        self._tell("step", action)

    def receive(self) -> Outcome:
        """Wait for the end of the step that was begun."""
        return self._hear()

    def step(self, action: np.ndarray) -> Outcome:
        """Take a step and wait for it."""
        self.send(action)
        return self.receive()

    def close(self) -> None:
        """End the process, after the step that it may be in."""
        self._connection.close()
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _tell(self, *words: Any) -> None:
        try:
            self._connection.send(words)
        except (BrokenPipeError, ConnectionResetError):
            raise self._gone() from None

    def _hear(self) -> Any:
        try:
            answer, error = self._connection.recv()
        except (EOFError, ConnectionResetError):
            raise self._gone() from None
        if error is not None:
            raise error
        return answer

    def _gone(self) -> EnvProcessError:
        return EnvProcessError(f"the environment's process ended with exit code {self._process.wait()}")


def serve(handle: int) -> None:
    """What the process does: build a task, then reset and step its environment as it is told, until nobody is there."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the owner decides when this ends
    gone = contextlib.suppress(EOFError, ConnectionResetError, BrokenPipeError)
    with Connection(handle) as connection, gone:
        _serve(connection)


def _serve(connection: Connection) -> None:
    from teb.envs import make_task

    env: Any = None
    while True:
        word, *rest = connection.recv()
        try:
            if env is None:
                task = make_task(word, *rest)
                env = task.env
                answer: Any = (env.observation_space, env.action_space), task._replace(env=None)
            elif word == "reset":
                seed, options = rest
                answer = env.reset(seed=seed, options=options)
            else:
                answer = env.step(*rest)
            reply = pickle.dumps((answer, None))
        except Exception as error:
            reply = _failed(error)
        connection.send_bytes(reply)


def _failed(error: Exception) -> bytes:
    """The error for the owner to raise; one that cannot travel becomes its words."""
    error.add_note("In the environment's process:\n" + traceback.format_exc())
    try:
        reply = pickle.dumps((None, error))
        pickle.loads(reply)
    except Exception:
        reply = pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}")))
    return reply
