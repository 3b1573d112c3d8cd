"""The phase of the switch (`state.json`), with the SHA-256 of itself inside."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from edge.device.disk import typed
from edge.device.durable import Durable
from edge.device.files import Files
from edge.device.layout import Layout
from edge.device.sealed import open_sealed, seal
from edge.errors import DeployError

__all__ = ["Phase", "State", "decode_state", "encode_state", "read_state", "write_state"]

_FORMAT = "edge.device-state/1"


class Phase(str, enum.Enum):
    """Where a device is between two releases."""

    IDLE = "idle"  # `current` is proven, or nothing has ever served
    TRIAL = "trial"  # `target` is about to become current, or is current and not yet proven
    FAILED = "failed"  # nothing that could be done alone is left: a person has to look


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What has to survive a power cut.

    Attributes:
        target: the release on trial; None unless on trial.
        fallback: the proven release to go back to; None: nothing served before. On trial, a fallback that is the target
            itself means that something did, and is lost: then a person has to look, and the target stays current.
        boots: how often a trial was begun again because the device lost power.
        attempts, attempts_this_boot: ways back that were tried since a release was last proven.
        boot_id, started_at, started_boottime_ns: when the phase began; for a trial its latest beginning.
        confirm: a person has to confirm the trial before it may be committed.
        baseline: what the release before did just before the switch, for the judge.
        reason: why the trial was refused, or why the device failed; a trial with a reason is only waiting to be undone.
        last: how the last switch ended: release, from, result (committed, rolled-back, failed), reason, at.
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
    baseline: Mapping[str, Any] = field(default_factory=dict)
    reason: str | None = None
    last: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.phase is Phase.TRIAL) != (self.target is not None):
            raise ValueError(f"phase {self.phase.value} with target {self.target}")


_TYPES: Mapping[str, tuple[type, ...]] = {
    "target": (str, type(None)),
    "fallback": (str, type(None)),
    "boots": (int,),
    "attempts": (int,),
    "attempts_this_boot": (int,),
    "boot_id": (str,),
    "started_at": (str,),
    "started_boottime_ns": (int,),
    "confirm": (bool,),
    "baseline": (dict,),
    "reason": (str, type(None)),
    "last": (dict,),
}


def encode_state(state: State) -> bytes:
    """Return the content of `state.json`."""
    return seal({"format": _FORMAT, **asdict(state), "phase": state.phase.value})


def decode_state(content: bytes) -> State:
    """Return what `encode_state` was given.

    Raises:
        ValueError: if it is not that, byte for byte.
    """
    values = open_sealed(content)
    if values.pop("format", None) != _FORMAT or set(values) != {"phase", *_TYPES}:
        raise ValueError(f"not of the format {_FORMAT}")
    for name, kinds in _TYPES.items():
        if not isinstance(values[name], kinds):
            raise ValueError(f"{name} is {values[name]!r}")
    return State(**{**values, "phase": Phase(values["phase"])})


@typed
def read_state(layout: Layout, files: Files) -> State:
    """Return the state; without a file an idle one, as on a device that has never been pushed to.

    Raises:
        DeployError: `device.state`, if the file is damaged.
    """
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
    """Make `state` the state; call only with the state lock held."""
    durable.put(layout.state, encode_state(state))
