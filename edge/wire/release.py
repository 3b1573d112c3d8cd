"""Requests and answers on the way of a release: its files, its build, its switch, its ring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from edge.codec import Most, since
from edge.reports import LastSwitch
from edge.wire.peer import Problem

__all__ = [
    "MOST_BYTES",
    "BlobRequest",
    "BuildAnswer",
    "BuildRequest",
    "ConfirmRequest",
    "Golden",
    "HaveAnswer",
    "HaveRequest",
    "LockRequest",
    "LookAnswer",
    "LookRequest",
    "OfferRequest",
    "PlanAnswer",
    "PlannedEngine",
    "PutManifestAnswer",
    "ReleaseAnswer",
    "RingAnswer",
    "RingRequest",
    "RollbackAnswer",
    "RollbackRequest",
    "StageRequest",
    "SwitchAnswer",
    "SwitchRequest",
    "TrustAnswer",
    "TrustRequest",
]

MOST_BYTES = 180 * 1024
"""Of what is shown at once: in base64 it has to fit into a frame."""

_PICTURE = 4 * (MOST_BYTES // 3 + 1)
_BASE64 = 32 * 1024
_LENGTH = 2**50
_MANIFEST = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LookRequest:
    """The latest picture of a stream; "" for the figures of all."""

    stream: Annotated[str, Most(32)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAnswer:
    """A JPEG, or the document `edge.status/1`, in base64; None: there is no picture yet."""

    content: Annotated[str, Most(_PICTURE)] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRequest:
    """A statement and the signature over it, both in base64; see `edge.bundle.statement`."""

    statement: Annotated[str, Most(_BASE64)]
    signature: Annotated[str, Most(_BASE64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RingAnswer:
    """`is_asked_for`: this device takes nothing without statements; else it has not looked at this one."""

    is_asked_for: bool
    release: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRequest:
    """A chain of trust documents in base64; see `edge.bundle.statement`."""

    chain: Annotated[str, Most(256 * 1024)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustAnswer:
    """The version that counts now; 0: this device knows no root, and follows none."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRequest:
    """Hold the push lock until the connection ends; `in_trial`: also while a release is on trial."""

    who: Annotated[str, Most(200)]
    why: Annotated[str, Most(200)]
    in_trial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HaveRequest:
    """Which of these blobs are missing?"""

    sha256: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HaveAnswer:
    """By SHA-256, how many bytes of a missing blob are there already."""

    missing: Mapping[str, Annotated[int, Most(_LENGTH)]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobRequest:
    """The `length` bytes of a blob from `offset` on follow."""

    sha256: str
    offset: Annotated[int, Most(_LENGTH)]
    length: Annotated[int, Most(_LENGTH)]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferRequest:
    """A manifest and the signature over it, both in base64; `retry_bad`: also if it has failed there before."""

    manifest: Annotated[str, Most(_MANIFEST)]
    signature: Annotated[str, Most(_MANIFEST)]
    retry_bad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEngine:
    """Whether an engine has to be built and why; `last_build_s` is how long the last build took, seconds."""

    key: str | None
    build: bool
    why: str = ""
    last_build_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnswer:
    """Plan of a push: `missing` is by SHA-256 what would be sent of each file, `bytes` their sum.

    `software`: what of it would be run by another edge-deploy than now, in words; None: nothing.
    """

    release: str
    current: str | None
    phase: str
    last: LastSwitch | None
    is_unchanged: bool
    missing: Mapping[str, Annotated[int, Most(2**53)]]
    bytes: int
    engine: PlannedEngine
    refusals: tuple[Problem, ...]
    software: str | None = since(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class PutManifestAnswer:
    """The release that is taken, and by which name the device knows its signer."""

    release: str
    signer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseAnswer:
    """The release that it was done to."""

    release: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRequest:
    """Make a release of its blobs; with `retry_bad` it is forgotten that it has failed before."""

    release: str
    retry_bad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """Build the engine; with `detach` the device goes on alone and switches."""

    release: str
    detach: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """Result of the gate: of the `expected` sure detections of the float model `found`, and `extra` others."""

    expected: int
    found: int
    extra: int
    score_error: float
    passed: bool = True
    images: int = 0
    recall: float | None = None
    mean_iou: float | None = None
    per_class: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildAnswer:
    """The engine: `skipped`, it was there and proven; `detached`, nothing is known yet, the device goes on alone.

    `engine` says what runs and why, in words; `seconds` is how long it took.
    """

    detached: bool = False
    key: str | None = None
    seconds: float | None = None
    golden: Golden | None = None
    skipped: bool = False
    engine: str = ""
    precision: str | None = None
    report: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchRequest:
    """Put the release on trial; with `confirm` a person has to confirm it, too."""

    release: str
    confirm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchAnswer:
    """`note` says what went wrong at the restart; the trial judges that."""

    release: str
    confirm: bool
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmRequest:
    """The release on trial may stay; None: whichever that is."""

    release: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackRequest:
    """Go back to the release before, or `to` one that is kept."""

    to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackAnswer:
    """Where it went; None: to nothing, because nothing served before. `on_trial`: it is judged like a push."""

    release: str | None
    on_trial: bool
    note: str
    confirm: bool = False
