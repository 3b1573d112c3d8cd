"""Reports of a device: types that its records, its agent and its clients share.

Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass

from edge.codec import since, spelled

__all__ = ["Collected", "Facts", "LastSwitch", "Moment", "UnitState"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSwitch:
    """How the last switch ended: `result` is `committed`, `rolled-back` or `failed`, `at` RFC 3339 in UTC.

    `release` was on trial or was left, `before` is what served until then; None: nothing.
    """

    release: str | None
    result: str
    reason: str | None
    at: str
    before: str | None = spelled("from")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """`at` is RFC 3339 in UTC, for people; deadlines are counted with `boottime_ns`, which is good within `boot_id`."""

    at: str
    boottime_ns: int
    boot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitState:
    """State of a unit, in systemd's words.

    Attributes:
        active: `active`, `activating`, `inactive`, `failed` ...
        sub: e.g. `running`, `auto-restart`.
        result: why it ended: `success`, `exit-code`, `watchdog`, `oom-kill`, `timeout` ...
        invocation: another one means that it was started again; "" before the first start.
        restarts: by systemd itself.
        exit_status: of its last main process.
        was_stopped: its last run was stopped on request, well or not; needs a command in ExecStop=,
            which systemd runs on request only.
        failure: the error that its last run ended with, in its own words, which are cleaned; None: it said none.
    """

    active: str = "inactive"
    sub: str = "dead"
    result: str = "success"
    invocation: str = ""
    restarts: int = 0
    exit_status: int = 0
    was_stopped: bool = False
    failure: str | None = since(4)

    @property
    def has_failed(self) -> bool:
        """Return False also where it had to be killed on its way down: it has done its work."""
        return self.active == "failed" and not self.was_stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """Names of everything that was removed."""

    releases: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    blobs: tuple[str, ...] = ()
    partials: tuple[str, ...] = ()
    temporaries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts of a device for a push; None: not there or not known.

    `clock_floor` is the earliest time that it can be, whatever the clock says (RFC 3339 in UTC).
    """

    name: str
    compatible: tuple[str, ...]
    architecture: str
    python: str
    l4t: str | None
    jetpack: str | None
    tensorrt: str | None
    memory_bytes: int
    memory_available_bytes: int
    disk_bytes: int
    disk_free_bytes: int
    inodes_free: int
    is_one_file_system: bool
    clock_floor: str | None
