"""What a device has measured of INT8 when it built an engine (`build.json`), to be held against the bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edge.device.engine_record import EngineRecord, decode_record
from edge.digest import sha256_of
from edge.errors import ConfigError
from edge.quantize.account import PrecisionAccounts
from edge.reading import read_file
from edge.types import Precision

__all__ = ["BuiltTimes", "built_times"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltTimes:
    """Two engines of one model on one device, timed in turn on the same batches.

    Attributes:
        path: of the `build.json`.
        kind: of engine, by its name in a pipeline file.
        batch: frames at once.
        other: the float precision against which INT8 was timed.
        int8_s_per_frame, other_s_per_frame: medians, seconds.
        times_faster: how many times as fast INT8 was: the median of the pairs.
        pairs: how often both were timed.
    """

    path: str
    kind: str
    batch: int
    other: Precision
    int8_s_per_frame: float
    other_s_per_frame: float
    times_faster: float
    pairs: int

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; the keys are stable."""
        return {**asdict(self), "other": self.other.value}


def built_times(path: Path, accounts: PrecisionAccounts) -> BuiltTimes:
    """Return what a `build.json` says of INT8 against float, for the model and the table of `accounts`.

    Raises:
        ConfigError: if it is no `build.json`, is of another model or table, or holds no two times.
    """
    record = _read(path)
    _require_same(path, record, accounts)
    choice = record.report.get("fallback")
    try:
        return _times(path, record, choice if isinstance(choice, Mapping) else {})
    except (KeyError, TypeError, ValueError):
        raise ConfigError(
            f"{path}: this engine ({record.inputs.kind} {record.precision}) was timed against no other precision",
            hint="a device times both where the pipeline says `model.fallback: fp16`: push it with that",
        ) from None


def _read(path: Path) -> EngineRecord:
    try:
        return decode_record(read_file(path, follows_links=True))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path}: is no build.json of an engine: {error}",
            hint="it lies on the device, as /var/lib/edge-deploy/current/engine/build.json",
        ) from None


def _require_same(path: Path, record: EngineRecord, accounts: PrecisionAccounts) -> None:
    model, table = accounts.spec.sha256, accounts.table
    if record.inputs.onnx_sha256 != model:
        raise ConfigError(
            f"{path}: is of the model {record.inputs.onnx_sha256[:12]}, {accounts.spec.path} is {model[:12]}",
            hint="give the model that was pushed to that device",
        )
    if table is not None and record.inputs.calibration_sha256 != (found := sha256_of(table)):
        had = (record.inputs.calibration_sha256 or "none")[:12]
        raise ConfigError(
            f"{path}: was built with the table {had}, {table} is {found[:12]}",
            hint="give the table that was pushed to that device",
        )


def _times(path: Path, record: EngineRecord, choice: Mapping[str, Any]) -> BuiltTimes:
    other, batch = Precision(choice["other"]), int(record.inputs.max_batch)
    int8_ms, other_ms, ratio = (float(choice[key]) for key in ("int8_ms", f"{other.value}_ms", "ratio"))
    if batch < 1 or not all(math.isfinite(value) and value > 0 for value in (int8_ms, other_ms, ratio)):
        raise ValueError
    return BuiltTimes(
        path=str(path),
        kind=record.inputs.kind,
        batch=batch,
        other=other,
        int8_s_per_frame=1e-3 * int8_ms / batch,
        other_s_per_frame=1e-3 * other_ms / batch,
        times_faster=1 / ratio,
        pairs=int(choice["pairs"]),
    )
