"""A device's records: phase of the switch, progress, failed releases; SHA-256 of themselves make damage visible."""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from edge.codec import decode, decode_known, encode
from edge.device.durable import Durable, Files, typed
from edge.device.layout import Layout
from edge.errors import DeployError
from edge.reading import json_object
from edge.reports import LastSwitch

__all__ = [
    "BadRelease",
    "Counters",
    "Phase",
    "State",
    "Verdict",
    "decode_state",
    "encode_state",
    "forget_bad",
    "mark_bad",
    "open_sealed",
    "raise_counters",
    "read_bad",
    "read_counters",
    "read_state",
    "seal",
    "write_state",
]

_BAD_FORMAT = "edge.device-bad/1"
_COUNTERS_FORMAT = "edge.device-counters/1"
_FORMAT = "edge.device-state/1"


def seal(values: Mapping[str, Any]) -> bytes:
    """Return a JSON object of `values` and, under "sha256", the digest of the others."""
    return json.dumps({**values, "sha256": _digest(values)}, sort_keys=True, indent=1).encode() + b"\n"


def open_sealed(content: bytes) -> dict[str, Any]:
    """ValueError if it is not what `seal` gives, byte for byte."""
    values = json_object(content)
    stated = values.pop("sha256", None)
    if stated != _digest(values):
        raise ValueError("its SHA-256 is not the one that it states")
    return values


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class Verdict(str, enum.Enum):
    """How sure it is that the release itself was at fault."""

    BAD = "bad"  # it was judged
    SUSPECT = "suspect"  # power was lost twice in its trial, which may or may not be its doing


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRelease:
    """A failed release, and the time of its verdict (RFC 3339 in UTC)."""

    verdict: Verdict
    reason: str
    at: str


@dataclass(frozen=True, slots=True)
class _BadReleases:
    releases: Mapping[str, BadRelease]


@typed
def read_bad(layout: Layout, files: Files) -> dict[str, BadRelease]:
    """A damaged file says nothing, because a trial finds the failed releases again."""
    if files.length(layout.bad) is None:
        return {}
    try:
        return dict(decode_known(_BadReleases, json_object(files.read(layout.bad)), where="bad").releases)
    except ValueError:
        return {}


def mark_bad(layout: Layout, durable: Durable, name: str, bad: BadRelease) -> None:
    """Call only with the state lock held."""
    _write(layout, durable, {**read_bad(layout, durable.files), name: bad})


def forget_bad(layout: Layout, durable: Durable, name: str) -> None:
    """Call only with the state lock held."""
    known = read_bad(layout, durable.files)
    if name in known:
        _write(layout, durable, {other: bad for other, bad in known.items() if other != name})
    else:
        durable.settle(layout.bad)


def _write(layout: Layout, durable: Durable, releases: Mapping[str, BadRelease]) -> None:
    values = {"format": _BAD_FORMAT, **encode(_BadReleases(dict(sorted(releases.items()))))}
    durable.put(layout.bad, json.dumps(values, indent=1).encode() + b"\n", mode=0o600)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Highest sequence per channel, and the newest `created_at` (RFC 3339 in UTC) of all manifests.

    `newest` are the releases that have these sequences; of a channel that is absent, none has, or that is not known.
    `rings` are the latest statements of what rings run, by tag: serial and text, verified when they came.
    """

    sequences: Mapping[str, int] = field(default_factory=dict)
    newest: Mapping[str, str] = field(default_factory=dict)
    newest_created_at: str | None = None
    rings: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    def merged(self, other: Counters) -> Counters:
        """Return the higher of both, channel by channel; of equal ones the first that is named."""
        higher = {name for name, count in other.sequences.items() if count > self.sequences.get(name, -1)}
        not_lower = {name for name, count in other.sequences.items() if count >= self.sequences.get(name, -1)}
        return Counters(
            sequences={**self.sequences, **{name: other.sequences[name] for name in higher}},
            newest={
                **{name: one for name, one in other.newest.items() if name in not_lower},
                **{name: one for name, one in self.newest.items() if name not in higher},
            },
            newest_created_at=_latest(self.newest_created_at, other.newest_created_at),
            rings={**self.rings, **{tag: one for tag, one in other.rings.items() if one[0] >= self.serial_of(tag)}},
        )

    def serial_of(self, tag: str) -> int:
        """0: there was none."""
        return self.rings[tag][0] if tag in self.rings else 0


@typed
def read_counters(layout: Layout, files: Files) -> Counters:
    """Return those of a new device where there is no file; DeployError `device.counters` if it is damaged."""
    if files.length(layout.counters) is None:
        return Counters()
    try:
        values = open_sealed(files.read(layout.counters))
        return Counters(
            sequences={str(name): int(value) for name, value in values["sequences"].items()},
            newest={str(name): str(value) for name, value in values.get("newest", {}).items()},
            newest_created_at=values["newest_created_at"],
            rings={str(tag): (int(serial), str(text)) for tag, (serial, text) in values.get("rings", {}).items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DeployError(
            "device.counters",
            f"{layout.counters}: expected sealed counters, got damage: {error}",
            hint="without them a downgrade goes unnoticed; look at the disk, then remove the file on the device",
        ) from None


def raise_counters(layout: Layout, durable: Durable, seen: Counters) -> Counters:
    """Return the counters raised to `seen`; they are on the disk when this returns. They never sink."""
    known = read_counters(layout, durable.files)
    raised = known.merged(seen)
    if raised != known:
        durable.put(layout.counters, seal({"format": _COUNTERS_FORMAT, **asdict(raised)}))
    else:
        durable.settle(layout.counters)
    return raised


def _latest(*times: str | None) -> str | None:
    # RFC 3339 in UTC with whole seconds sorts as text.
    return max((time for time in times if time is not None), default=None)


class Phase(str, enum.Enum):
    """Where a device is between two releases."""

    IDLE = "idle"  # `current` is proven, or nothing has ever served
    TRIAL = "trial"  # `target` is about to become current, or is current and not yet proven
    FAILED = "failed"  # nothing that could be done alone is left: a person has to look


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """State that has to survive a power cut; `target` is the release on trial, `fallback` the proven one to go back to.

    `fallback` None: nothing served before. On trial, a fallback that is the target itself means that something did, and
    is lost: then a person has to look, and the target stays current.
    `boots`: how often a trial was begun again because the device lost power. `attempts`, `attempts_this_boot`: ways
    back that were tried since a release was last proven. `boot_id`, `started_at`, `started_boottime_ns`: when the phase
    began; for a trial its latest beginning. `confirm`: a person has to confirm the trial before it may be committed.
    `baseline`: rates of the release before just before the switch, for the judge. `reason`: why the trial was refused,
    or why the device failed; a trial with a reason is only waiting to be undone.
    `last`: how the last switch ended; None: there was none.
    """

    phase: Phase = Phase.IDLE
    target: str | None = None
    fallback: str | None = None
    boots: int = 0
    attempts: int = 0
    attempts_this_boot: int = 0
    boot_id: str = ""
    started_at: str = ""
    started_boottime_ns: int = 0
    confirm: bool = False
    baseline: Mapping[str, object] = field(default_factory=dict)
    reason: str | None = None
    last: LastSwitch | None = None

    def __post_init__(self) -> None:
        if (self.phase is Phase.TRIAL) != (self.target is not None):
            raise ValueError(f"phase {self.phase.value} with target {self.target}")


def encode_state(state: State) -> bytes:
    return seal({"format": _FORMAT, **encode(state)})


def decode_state(content: bytes) -> State:
    """ValueError if it is not what `encode_state` gives, byte for byte."""
    values = open_sealed(content)
    if values.pop("format", None) != _FORMAT:
        raise ValueError(f"not of the format {_FORMAT}")
    return decode(State, values, where="state")


@typed
def read_state(layout: Layout, files: Files) -> State:
    """Idle without a file, as on a device without a push; DeployError `device.state` if damaged."""
    if files.length(layout.state) is None:
        return State()
    try:
        return decode_state(files.read(layout.state))
    except ValueError as error:
        raise DeployError(
            "device.state",
            f"{layout.state}: expected a sealed state, got damage: {error}",
            hint="run on the device: edge-runtime recover, which starts a new trial of the current release",
        ) from None


def write_state(layout: Layout, durable: Durable, state: State) -> None:
    """Call only with the state lock held."""
    durable.put(layout.state, encode_state(state))
