"""Run records: the only thing that tables and pictures are made from."""

from __future__ import annotations

import base64
import binascii
import json
import math
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SCHEMA = 1
NEVER = 65535
VISIT_SCALE = 1000


class RecordError(ValueError):
    """A run record that is absent, damaged, or newer than this code."""


class RecordWarning(UserWarning):
    """A registry line or a run that was left out, with the reason."""


@dataclass(frozen=True, eq=False)
class Record:
    """One run as it was stored; series have NaN where the file has null."""

    schema: int
    method: str
    label: str
    env: str
    seed: int
    env_steps: int
    finished: bool
    headline: str
    curves: Mapping[str, NDArray[np.float64]]
    final: Mapping[str, float]
    map: Mapping[str, Any]
    config: Mapping[str, Any]
    config_hash: str
    overrides: Mapping[str, Any]
    preset: str
    commit: str
    dirty: bool
    versions: Mapping[str, Any]
    hardware: Mapping[str, Any]
    started: str
    wall_seconds: float
    time_split: Mapping[str, float]
    updates: int
    run_id: str = ""

    @property
    def task(self) -> str:
        """Name of the task without its family: `square-a` for `maze2d/square-a`."""
        return self.env.rsplit("/", 1)[-1]

    @property
    def planned_steps(self) -> int | None:
        """Environment steps that the configuration asked for (`config.run.steps`), if it says so."""
        run = self.config.get("run")
        steps = run.get("steps") if isinstance(run, Mapping) else None
        return int(steps) if isinstance(steps, int | float) else None

    @property
    def started_at(self) -> datetime:
        """Start time; a run without a readable one counts as the oldest, a time without a zone as UTC."""
        try:
            time = datetime.fromisoformat(self.started)
        except ValueError:
            return datetime.min.replace(tzinfo=UTC)
        return time if time.tzinfo else time.replace(tzinfo=UTC)

    def series(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """`(env_steps, values)` of one series, or None if it is absent or holds no number at all."""
        values = self.curves.get(name)
        if values is None or not np.isfinite(values).any():
            return None
        return self.curves["env_steps"], values

    def until(self, env_steps: int) -> Record:
        """The same run with its curves up to a step only."""
        if not self.curves:
            return self
        kept = self.curves["env_steps"] <= env_steps
        return replace(self, curves={name: values[kept] for name, values in self.curves.items()})


def read_record(run_folder: Path) -> Record:
    """Read `record.json` of a run folder."""
    folder = Path(run_folder)
    if not folder.is_dir():
        raise RecordError(f"{folder}: no such folder; expected the folder of a run")
    path = folder / "record.json"
    if not path.is_file():
        raise RecordError(f"{folder}: not a run folder, it has no record.json")
    return parse_record(_load(path.read_bytes(), str(path)), str(path))


def read_registry(path: Path) -> list[Record]:
    """Read a registry (one record per line); leave out damaged lines and duplicates with a warning.

    Two records are of one run when env, method, label, config_hash and seed agree. A finished one wins over
    an unfinished one, then the longer one, then the one started later, then the later line. A run that was made
    longer takes the place of its shorter self without a word.
    """
    path = Path(path)
    if not path.is_file():
        raise RecordError(f"{path}: no such file; expected a registry with one record per line")
    kept: dict[tuple[object, ...], tuple[int, Record]] = {}
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            record = parse_record(_load(line, f"{path}:{number}"), f"{path}:{number}")
        except RecordError as error:
            warnings.warn(f"left out a damaged line: {error}", RecordWarning, stacklevel=2)
            continue
        key = (record.env, record.method, record.label, record.config_hash, record.seed)
        if key in kept:
            older, newer = sorted([kept[key], (number, record)], key=lambda item: (*_age(item[1]), item[0]))
            if not (older[1].finished and older[1].env_steps < newer[1].env_steps):
                warnings.warn(
                    f"{path}:{older[0]}: left out, {record.label} on {record.env} seed {record.seed} "
                    f"stands again at line {newer[0]} (same configuration; finished or newer)",
                    RecordWarning,
                    stacklevel=2,
                )
            kept[key] = newer
        else:
            kept[key] = (number, record)
    return [record for _, record in sorted(kept.values(), key=lambda item: item[0])]


def parse_record(data: object, where: str) -> Record:
    """Check a decoded JSON object and give it types; `where` (a file, or file:line) begins every error."""
    if not isinstance(data, dict):
        raise RecordError(f"{where}: a record is a JSON object, not {type(data).__name__}")
    schema = _field(data, "schema", int, where)
    if schema > SCHEMA:
        raise RecordError(
            f"{where}: schema {schema} is newer than {SCHEMA}, the newest that is known here; upgrade teb"
        )
    method = _field(data, "method", str, where)
    return Record(
        schema=schema,
        method=method,
        label=_field(data, "label", str, where, method),
        env=_field(data, "env", str, where),
        seed=_field(data, "seed", int, where),
        env_steps=_field(data, "env_steps", int, where),
        finished=_field(data, "finished", bool, where),
        headline=_field(data, "headline", str, where),
        curves=_curves(_field(data, "curves", dict, where, {}), where),
        final=_numbers(_field(data, "final", dict, where, {})),
        map=_field(data, "map", dict, where, {}),
        config=_field(data, "config", dict, where, {}),
        config_hash=_field(data, "config_hash", str, where, ""),
        overrides=_field(data, "overrides", dict, where, {}),
        preset=_field(data, "preset", str, where, ""),
        commit=_field(data, "commit", str, where, ""),
        dirty=_field(data, "dirty", bool, where, False),
        versions=_field(data, "versions", dict, where, {}),
        hardware=_field(data, "hardware", dict, where, {}),
        started=_field(data, "started", str, where, ""),
        wall_seconds=float(_field(data, "wall_seconds", (int, float), where, math.nan)),
        time_split=_numbers(_field(data, "time_split", dict, where, {})),
        updates=_field(data, "updates", int, where, 0),
        run_id=_field(data, "run_id", str, where, ""),
    )


def decode_first_visit(map: Mapping[str, Any]) -> NDArray[np.float64]:
    """Environment step of the first visit to each bin, `[nx, ny]`, NaN for never.

    Index `[0, 0]` is the bin at the lower left corner of `bounds`. Steps are stored in thousandths of
    `map["env_steps"]` and rounded up, so that is how fine they are.
    """
    for name in ("shape", "env_steps", "first_visit"):
        if name not in map:
            raise RecordError(f"map.{name}: missing; the record holds no coverage map")
    nx, ny = (int(size) for size in map["shape"])
    try:
        raw = zlib.decompress(base64.b64decode(map["first_visit"], validate=True))
    except (binascii.Error, zlib.error, ValueError, TypeError) as error:
        raise RecordError(f"map.first_visit: not base64 of a zlib stream ({error})") from error
    if len(raw) != 2 * nx * ny:
        raise RecordError(f"map.first_visit: {len(raw)} bytes, but shape {nx} x {ny} needs {2 * nx * ny}")
    stored = np.frombuffer(raw, dtype="<u2").reshape(nx, ny)
    never = stored == NEVER
    if (stored[~never] > VISIT_SCALE).any():
        raise RecordError(
            f"map.first_visit: values must be 0..{VISIT_SCALE} or {NEVER}, got {stored[~never].max()}"
        )
    return np.where(never, np.nan, stored * (float(map["env_steps"]) / VISIT_SCALE))


def _load(line: bytes, where: str) -> object:
    try:
        return json.loads(line.decode("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise RecordError(f"{where}: not valid JSON ({error})") from error


_REQUIRED = object()


def _field(
    data: Mapping[str, Any], name: str, kind: type | tuple[type, ...], where: str, default: Any = _REQUIRED
) -> Any:
    value = data.get(name, default)
    if value is None and default is not _REQUIRED:
        value = default
    if value is _REQUIRED:
        raise RecordError(f"{where}: field {name!r} is missing")
    kinds = kind if isinstance(kind, tuple) else (kind,)
    # JSON true is an int for Python, which would let a flag pass for a seed.
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        names = " or ".join(one.__name__ for one in kinds)
        raise RecordError(f"{where}: field {name!r} is {value!r}, expected {names}")
    return value


def _curves(data: Mapping[str, Any], where: str) -> dict[str, NDArray[np.float64]]:
    if not data:
        return {}
    curves = {}
    for name, values in data.items():
        try:
            curves[name] = np.array(
                [math.nan if value is None else float(value) for value in values], dtype=np.float64
            )
        except (TypeError, ValueError) as error:
            raise RecordError(f"{where}: curves.{name} is not a list of numbers and nulls") from error
    if "env_steps" not in curves:
        raise RecordError(f"{where}: curves.env_steps is missing, but there are other curves")
    steps = curves["env_steps"]
    for name, values in curves.items():
        if len(values) != len(steps):
            raise RecordError(
                f"{where}: curves.{name} has {len(values)} values, curves.env_steps has {len(steps)}"
            )
    if not np.isfinite(steps).all() or (np.diff(steps) < 0).any():
        raise RecordError(f"{where}: curves.env_steps must be numbers that never fall")
    return curves


def _numbers(data: Mapping[str, Any]) -> dict[str, float]:
    """Keep what can be tabulated; a record may carry texts beside its numbers."""
    numbers = {name: math.nan if value is None else value for name, value in data.items()}
    return {name: float(value) for name, value in numbers.items() if isinstance(value, int | float)}


def _age(record: Record) -> tuple[bool, int, datetime]:
    return record.finished, record.env_steps, record.started_at
