"""The verbs: by which name each request goes over the wire, and what is answered.

`status` and `logs`: what a device does right now, and what it did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Generic, TypeVar

from edge.codec import Most, since
from edge.reports import Collected, Facts, LastSwitch, Moment, UnitState
from edge.wire import release as _release
from edge.wire.peer import Nothing, Problem

__all__ = [
    "BLOB",
    "BUILD",
    "CONFIRM",
    "FACTS",
    "GC",
    "HAVE",
    "LOCK",
    "LOGS",
    "LOOK",
    "PING",
    "PLAN",
    "PUT_MANIFEST",
    "RING",
    "ROLLBACK",
    "STAGE",
    "STATUS",
    "SWITCH",
    "TRUST",
    "VERBS",
    "BadReport",
    "FileReport",
    "HealthReport",
    "HolderReport",
    "KeptReport",
    "LogsAnswer",
    "LogsRequest",
    "LookReport",
    "RingReport",
    "StateReport",
    "StatusAnswer",
    "StreamHealthReport",
    "TakesReport",
    "Verb",
]

MOST_LINES = 1000
_LINE = 1000


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

    `signer` is the name by which the device knows the signer; `distrust` is the code of the reason not to trust it.
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
    """Health of the service `age_s` seconds ago; see `edge.device.health.Health`."""

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
class HolderReport:
    """The holder of the push lock; `since` is RFC 3339 in UTC."""

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
    """Rules by which the device takes a release, by the names of `device.toml`.

    `channels` that it is bound to; none: it has taken nothing yet. `sequences`: highest taken, by channel;
    `newest_created_at`: of all releases taken. `is_clock_sure`: something keeps its clock right.
    `signers`, `revocation_list`: the files that say whose signatures count, or a root's document; None: none.
    """

    name: str
    channels: tuple[str, ...]
    sequences: Mapping[str, int]
    newest_created_at: str | None
    is_clock_sure: bool
    signers: FileReport | None
    revocation_list: FileReport | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RingReport:
    """The latest statement of what the device's ring is to run; `is_over`: it has expired, and what serves goes on."""

    tag: str
    release: str | None
    serial: int
    valid_until: str
    is_over: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LookReport:
    """Result of its last pull; `looked_at` is when the registry last said what the ring has (RFC 3339 in UTC).

    `age_s` is how long that is ago by the device's clock; None: it never has.
    """

    release: str | None
    result: str
    code: str | None
    problem: str | None
    looked_at: str | None
    age_s: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusAnswer:
    """All that is known of a device; a damaged part is named in its place, so that the rest is seen.

    `installed` is the version of what provision installed, which answers; `overdue` that with which the release that
    serves was made, where that is later. `left` is the release that the device has left last, by a verdict or by a
    person; None: it has gone on to something newer. `look` is None for one that fetches nothing.
    `waits_for` is what is not well in a trial; None: nothing, it has to stay well, or there is no trial.
    """

    at: Moment
    current: str | None
    state: StateReport | Problem
    releases: tuple[KeptReport, ...]
    bad: Mapping[str, BadReport] = field(default_factory=dict)
    health: HealthReport | None
    unit: UnitState | Problem
    lock: HolderReport | None
    takes: TakesReport | Problem | None = since(1)
    installed: str | None = since(4)
    overdue: str | None = since(4)
    ring: RingReport | None = since(4)
    left: str | None = since(4)
    look: LookReport | None = since(4)
    waits_for: str | None = since(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsRequest:
    """The last lines of our units' journal."""

    lines: Annotated[int, Most(MOST_LINES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsAnswer:
    """The lines, oldest first; `note` says why there are none."""

    lines: tuple[str, ...]
    note: str


Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Verb(Generic[Q, A]):
    """One thing that a device can be asked; request and answer are dataclasses."""

    name: str
    request: type[Q]
    answer: type[A]


PLAN = Verb("plan", _release.OfferRequest, _release.PlanAnswer)
LOCK = Verb("lock", _release.LockRequest, Nothing)
PUT_MANIFEST = Verb("put-manifest", _release.OfferRequest, _release.PutManifestAnswer)
HAVE = Verb("have", _release.HaveRequest, _release.HaveAnswer)
BLOB = Verb("blob", _release.BlobRequest, Nothing)
STAGE = Verb("stage", _release.StageRequest, _release.ReleaseAnswer)
BUILD = Verb("build", _release.BuildRequest, _release.BuildAnswer)
SWITCH = Verb("switch", _release.SwitchRequest, _release.SwitchAnswer)
STATUS = Verb("status", Nothing, StatusAnswer)
CONFIRM = Verb("confirm", _release.ConfirmRequest, _release.ReleaseAnswer)
ROLLBACK = Verb("rollback", _release.RollbackRequest, _release.RollbackAnswer)
GC = Verb("gc", Nothing, Collected)
LOGS = Verb("logs", LogsRequest, LogsAnswer)
LOOK = Verb("look", _release.LookRequest, _release.LookAnswer)
FACTS = Verb("facts", Nothing, Facts)
PING = Verb("ping", Nothing, Nothing)
TRUST = Verb("trust", _release.TrustRequest, _release.TrustAnswer)
RING = Verb("ring", _release.RingRequest, _release.RingAnswer)

VERBS: Mapping[str, Verb[Any, Any]] = MappingProxyType(
    {
        verb.name: verb
        for verb in (
            *(PLAN, LOCK, PUT_MANIFEST, HAVE, BLOB, STAGE, BUILD, SWITCH),
            *(STATUS, CONFIRM, ROLLBACK, GC, LOGS, LOOK, FACTS, PING, RING, TRUST),
        )
    }
)
