"""`status` and `logs`: what a device does right now, and what it did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from edge.wire.codec import Most, since, spelled
from edge.wire.ending import Problem
from edge.wire.software import AgentReport

__all__ = [
    "BadReport",
    "FileReport",
    "HealthReport",
    "HolderReport",
    "KeptReport",
    "LastSwitch",
    "LogsAnswer",
    "LogsRequest",
    "MomentReport",
    "StateReport",
    "StatusAnswer",
    "StreamHealthReport",
    "TakesReport",
    "UnitReport",
]

MOST_LINES = 1000
_LINE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentReport:
    """Now, as the device knows it; see `edge.device.moment.Moment`."""

    at: str
    boottime_ns: int
    boot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSwitch:
    """How the last switch ended: `result` is `committed`, `rolled-back` or `failed`, `at` RFC 3339 in UTC."""

    release: str | None
    result: str
    reason: str | None
    at: str
    before: str | None = spelled("from")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateReport:
    """Where the device is between two releases; see `edge.device.state.State`."""

    phase: str
    target: str | None
    fallback: str | None
    boots: int
    attempts: int
    attempts_this_boot: int
    boot_id: str
    started_at: str
    started_boottime_ns: int
    confirm: bool
    baseline: Mapping[str, object]
    reason: str | None
    last: LastSwitch | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptReport:
    """A release on the device; `engine` says what runs and why, None: there is none or it cannot be read.

    `signer` is the name by which the device knows who signed it; `distrust` is the code of why that does not count.
    `software` is the first digits of the key of what it runs with; None: what provision has installed.
    """

    release: str
    pipeline: str | None
    channel: str | None
    sequence: int | None
    created_at: str | None
    is_ready: bool
    engine: str | None = None
    precision: str | None = None
    signer: str | None = since(1)
    distrust: str | None = since(1)
    software: str | None = since(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadReport:
    """Why a release is not tried again; `at` is RFC 3339 in UTC."""

    verdict: str
    reason: str
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHealthReport:
    """One stream: its state, frames decoded and inferred."""

    state: str
    decoded: int
    inferred: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReport:
    """What the service said of itself `age_s` seconds ago; see `edge.device.health.Health`."""

    release: str
    invocation: str
    at_boottime_ns: int
    is_ready: bool
    batches: int
    infer_p95_ms: float | None
    age_p95_ms: float | None
    mqtt_connected: bool | None
    mqtt_acknowledged: int
    streams: Mapping[str, StreamHealthReport]
    age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitReport:
    """What systemd knows of the service; see `edge.device.units.UnitState`."""

    active: str
    sub: str
    result: str
    invocation: str
    restarts: int
    exit_status: int
    was_stopped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderReport:
    """Who holds the push lock, why and since when (RFC 3339 in UTC)."""

    who: str
    why: str
    since: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """When a file was put there (RFC 3339 in UTC) and how long ago that is, both by the device's clock."""

    at: str
    age_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TakesReport:
    """What decides whether the device takes a release.

    Attributes:
        name: of the device.
        channels: that it is bound to; none: it has taken nothing yet.
        sequences: highest sequence taken, by channel.
        newest_created_at: the newest time of all releases taken; `reset_at`: of the last reset that was followed.
        is_clock_sure: something keeps its clock right.
        signers, revocation_list: the files that say whose signatures count; None: there is none.
    """

    name: str
    channels: tuple[str, ...]
    sequences: Mapping[str, int]
    newest_created_at: str | None
    reset_at: str | None
    is_clock_sure: bool
    signers: FileReport | None
    revocation_list: FileReport | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusAnswer:
    """All that is known of a device; a damaged part is named in its place, so that the rest is seen."""

    at: MomentReport
    current: str | None
    state: StateReport | Problem
    releases: tuple[KeptReport, ...]
    bad: Mapping[str, BadReport] = field(default_factory=dict)
    health: HealthReport | None
    unit: UnitReport | Problem
    lock: HolderReport | None
    takes: TakesReport | Problem | None = since(1)
    agent: AgentReport | None = since(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsRequest:
    """The last lines of our units' journal."""

    lines: Annotated[int, Most(MOST_LINES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsAnswer:
    """The lines, oldest first; `note` says why there are none."""

    lines: tuple[str, ...]
    note: str
