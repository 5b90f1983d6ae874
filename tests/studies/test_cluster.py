"""Studies on a real Ray cluster of several nodes on this machine, one of which is lost on the way."""

from __future__ import annotations

import builtins
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from teb.run.stopping import StopWish
from teb.studies import pool
from teb.studies.cluster import Needs, run_jobs_on_ray
from teb.studies.plan import Budget, Options, Study, Variant, jobs
from teb.studies.pool import run_jobs
from teb.studies.stored import registry

SMALL: Options = {"width": 16, "batch-size": 16, "seed-steps": 200, "uniform-steps": 200}
STUDY = Study(
    title="small",
    variants=[
        Variant("uniform"),
        *(Variant(name, {**SMALL, "checkpoint-seconds": 0.2}) for name in ("eta0", "teb-p", "icm")),
    ],
    envs=["maze2d/square-a"],
    budgets={},
)
BUDGET = Budget("cpu", steps=3000, seeds=[0, 1])


@contextmanager
def cluster_of(nodes: int) -> Iterator[tuple[Any, list[Any]]]:
    """A head without cores, and nodes of one core each."""
    from ray.cluster_utils import Cluster

    quick = {"health_check_period_ms": 500, "health_check_failure_threshold": 4}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": quick})
    try:
        yield cluster, [cluster.add_node(num_cpus=1) for _ in range(nodes)]
    finally:
        cluster.shutdown()


def results(path: Path) -> dict[tuple[str, int], Any]:
    """What a registry holds of each run, without what differs between machines; each run must stand there once."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    found = {(r["label"], r["seed"]): (r["env_steps"], r["updates"], measured(r), r["map"]) for r in records}
    assert len(found) == len(records), "a run was recorded twice"
    return found


def measured(record: dict[str, Any]) -> dict[str, Any]:
    return {name: values for name, values in record["curves"].items() if not name.startswith("seconds")}


def trainings(folder: Path) -> list[str]:
    """Command lines of processes that train below a folder."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes().decode().split("\0")
        except OSError:
            continue
        if "train" in words and any(str(folder) in word for word in words):
            found.append(" ".join(words))
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_every_run_finishes_once_and_alike_although_a_node_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = jobs(STUDY, BUDGET)
    monkeypatch.setattr(pool, "usable_cores", lambda: 1)  # as many threads as a run has on the cluster
    alone, said = tmp_path / "alone", list[str]()
    assert run_jobs(listed, alone / "runs", registry(alone), 1, StopWish(), said.append) == []

    spread = tmp_path / "spread"
    with cluster_of(3) as (cluster, nodes):

        def lose_a_node() -> None:
            while not list((spread / "runs").glob("*/checkpoint-*.safetensors")):
                time.sleep(0.02)
            cluster.remove_node(nodes[0], allow_graceful=False)

        thief = threading.Thread(target=lose_a_node)
        thief.start()
        failed = run_jobs_on_ray(
            listed, spread / "runs", registry(spread), cluster.address, Needs(), StopWish(), said.append
        )
        thief.join()
    assert failed == []
    assert any("3 CPUs" in line for line in said)
    assert results(registry(spread)) == results(registry(alone))
    assert len(results(registry(spread))) == len(listed)
    assert trainings(tmp_path) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_stopped_study_leaves_nothing_on_the_cluster_and_goes_on(tmp_path: Path) -> None:
    listed = [job for job in jobs(STUDY, BUDGET) if job.config.agent == "icm"]
    said: list[str] = []
    with cluster_of(2) as (cluster, _):
        place = (tmp_path / "runs", registry(tmp_path), cluster.address, Needs())
        wish = StopWish()

        def stop_soon() -> None:
            while not list((tmp_path / "runs").glob("*/checkpoint-*.safetensors")):
                time.sleep(0.02)
            wish.signal = signal.SIGINT

        stopper = threading.Thread(target=stop_soon)
        stopper.start()
        assert run_jobs_on_ray(listed, *place, wish, said.append) == []
        stopper.join()
        assert trainings(tmp_path) == []
        saved = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/record.json")]
        assert any(0 < record["env_steps"] < 3000 for record in saved), "nothing was stopped on the way"
        assert not list((tmp_path / "runs").glob(".shared-*"))
        assert run_jobs_on_ray(listed, *place, StopWish(), said.append) == []
    assert len(results(registry(tmp_path))) == len(listed)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_run_that_fails_is_named_and_the_others_finish(tmp_path: Path) -> None:
    good, bad = jobs(STUDY, BUDGET)[:2]
    (tmp_path / "runs" / bad.name).mkdir(parents=True)
    (tmp_path / "runs" / bad.name / "config.json").write_text("{}")
    said: list[str] = []
    with cluster_of(1) as (cluster, _):
        failed = run_jobs_on_ray(
            [good, bad],
            tmp_path / "runs",
            registry(tmp_path),
            cluster.address,
            Needs(),
            StopWish(),
            said.append,
        )
    assert failed == [bad]
    assert any(bad.name in line and "ended with code" in line and "log.txt" in line for line in said), said
    assert len(results(registry(tmp_path))) == 1


def test_without_a_cluster_one_line_says_how_to_start_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "teb", "study", "run", "precision", "--ray", "127.0.0.1:1",
         "--results", str(tmp_path), "--runs", str(tmp_path / "runs")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "ray start --head" in done.stderr.splitlines()[-1]


def test_without_ray_one_line_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_ray(name: str, *others: Any, **more: Any) -> Any:
        if name == "ray":
            raise ImportError(name)
        return real(name, *others, **more)

    monkeypatch.setattr(builtins, "__import__", without_ray)
    with pytest.raises(ValueError, match=r"teb\[cluster\]"):
        run_jobs_on_ray([], tmp_path, tmp_path / "r", "auto", Needs(), StopWish(), print)


def test_a_folder_that_is_not_shared_is_told(tmp_path: Path) -> None:
    from teb.studies import cluster

    with pytest.raises(RuntimeError, match="not shared"):
        cluster._train(["true"], tmp_path / "run", 1, tmp_path / "elsewhere")
