"""What a device does right now, and what it did: for people, and for a client that waits for a verdict."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from edge.device.bad import read_bad
from edge.device.device import Device
from edge.device.engine_record import EngineRecord, read_record
from edge.device.health import read_health
from edge.device.lock import PushLock
from edge.device.moment import this_moment
from edge.device.units import RUNTIME_UNIT
from edge.errors import DeployError
from edge.reading import json_object
from edge.runtime.agent.history import last_of
from edge.runtime.agent.session import Session, facts_of
from edge.runtime.agent.standing import signed_by, takes
from edge.runtime.agent.turn import answering
from edge.runtime.software.binding import brought_by, installation_of
from edge.runtime.trial.soundness import why_better
from edge.wire.codec import Misfit, decode
from edge.wire.ending import Nothing, Problem, problem_of
from edge.wire.facts import FactsAnswer
from edge.wire.peer import REVISION
from edge.wire.status import (
    BadReport,
    HealthReport,
    HolderReport,
    KeptReport,
    LogsAnswer,
    LogsRequest,
    MomentReport,
    StateReport,
    StatusAnswer,
    UnitReport,
)

__all__ = ["facts", "logs", "status"]

_JOURNAL = "/usr/bin/journalctl"
_UNITS = (
    "edge-runtime",
    "edge-build",
    "edge-trial",
    "edge-rollback",
    "edge-recover",
    "edge-pull",
    "edge-software",
    "edge-agent@*",
)
_MAX_LINE = 1000
_MAX_LOG_BYTES = 128 * 1024
_JOURNAL_TIMEOUT_S = 10.0


T = TypeVar("T")


def status(session: Session, request: Nothing) -> StatusAnswer:
    """Return state, releases, health and unit; a damaged part is named in its place, so that the rest is seen."""
    device = session.device
    bad = read_bad(device.layout, device.durable.files)
    return StatusAnswer(
        at=MomentReport(**asdict(this_moment())),
        current=device.releases.current(),
        state=_or_problem(lambda: _state(session)),
        releases=tuple(_release(session, name) for name in device.releases.names()),
        bad={name: BadReport(verdict=one.verdict.value, reason=one.reason, at=one.at) for name, one in bad.items()},
        health=_health(session),
        unit=_or_problem(lambda: UnitReport(**asdict(session.units.state(RUNTIME_UNIT)))),
        lock=_told(HolderReport, PushLock(device.layout).holder()),
        takes=_or_problem(lambda: takes(device)),
        agent=answering(device),
    )


def facts(session: Session, request: Nothing) -> FactsAnswer:
    """Return what the device measures of itself."""
    return facts_of(session.device)


def logs(session: Session, request: LogsRequest) -> LogsAnswer:
    """Return the last lines of our units, oldest first, where this user may read the journal."""
    count = request.lines
    units = [part for unit in _UNITS for part in ("-u", unit)]
    command = [_JOURNAL, "--no-pager", "-q", "-o", "short-iso", "-n", str(count), *units]
    try:
        told, complaint = _tail_of(command)
    except OSError as error:
        return LogsAnswer(lines=(), note=f"the journal cannot be read: {error}")
    lines = [line[:_MAX_LINE] for line in told.decode("utf-8", "replace").splitlines()]
    note = complaint.decode("utf-8", "replace").strip()
    if not lines and not note:
        note = "the journal has no lines of our units that this user may read (group systemd-journal)"
    return LogsAnswer(lines=tuple(lines[-count:]) if count else (), note=note)


def _tail_of(command: Sequence[str]) -> tuple[bytes, bytes]:
    """Return the last of what a command says, and the first of what it complains of.

    A runtime decides how much there is in the journal: it is read on, never gathered, and not for longer than it may.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe) as process:
        giving_up = threading.Timer(_JOURNAL_TIMEOUT_S, process.kill)
        giving_up.start()
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            tail = b""
            while piece := os.read(process.stdout.fileno(), _MAX_LOG_BYTES):
                tail = (tail + piece)[-_MAX_LOG_BYTES:]
            return tail, os.read(process.stderr.fileno(), _MAX_LINE)
        finally:
            giving_up.cancel()
            process.kill()


def _state(session: Session) -> StateReport:
    state = session.device.state()
    return StateReport(**{**asdict(state), "phase": state.phase.value, "last": last_of(state)})


def _release(session: Session, name: str) -> KeptReport:
    releases = session.device.releases
    said = _or_problem(lambda: _Manifest.of(releases.manifest(name)))
    manifest = _Manifest() if isinstance(said, Problem) else said
    engine = _engine(session, name)
    signer, distrust = signed_by(session.device, name)
    return KeptReport(
        release=name,
        pipeline=manifest.pipeline_name,
        channel=manifest.channel,
        sequence=manifest.sequence,
        created_at=manifest.created_at,
        is_ready=releases.is_ready(name),
        engine=None if engine is None else _line(session, name, engine),
        precision=None if engine is None else engine.precision[:_MAX_LINE],
        signer=signer,
        distrust=distrust,
        software=_software(device=session.device, release=name),
    )


def _software(device: Device, release: str) -> str | None:
    try:
        brought = brought_by(device, release)
        installation = installation_of(brought)
        if brought is None or installation is None:
            return None
        problem = device.software.problem(installation.name)
    except DeployError as error:
        return f"cannot be read: {error.problem}"[:_MAX_LINE]
    named = f"{brought.version} ({brought.key[:12]})"
    return named if problem is None else f"{named} {problem}"[:_MAX_LINE]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Manifest:
    """What is shown of a manifest."""

    pipeline_name: str | None = None
    channel: str | None = None
    sequence: int | None = None
    created_at: str | None = None

    @classmethod
    def of(cls, content: bytes) -> _Manifest:
        values = json_object(content)
        told = {one.name: values[one.name] for one in fields(cls) if one.name in values}
        return decode(cls, told, where="manifest.json", revision=0, ours=REVISION)


def _line(session: Session, name: str, engine: EngineRecord) -> str:
    return "; ".join(part for part in (engine.line[:_MAX_LINE], why_better(session.device, name)) if part)


def _engine(session: Session, name: str) -> EngineRecord | None:
    """Return what the engine of a release runs and why; None where there is none that can be read."""
    key = session.device.releases.engine_key(name)
    try:
        return None if key is None else read_record(session.device.engines, key)
    except DeployError:
        return None


def _health(session: Session) -> HealthReport | None:
    health = read_health(session.device.layout.health)
    if health is None:
        return None
    age_s = round((this_moment().boottime_ns - health.at_boottime_ns) / 1e9, 1)
    return _told(HealthReport, {**asdict(health), "age_s": age_s})


def _told(kind: type[T], values: Mapping[str, Any] | None) -> T | None:
    """Return what another process has said of itself; None where it says nothing that can be read."""
    try:
        return None if values is None else decode(kind, values, where=kind.__name__, revision=REVISION, ours=REVISION)
    except Misfit:
        return None


def _or_problem(read: Callable[[], T]) -> T | Problem:
    try:
        return read()
    except DeployError as error:
        return problem_of(error)
    except (ValueError, TypeError) as error:
        return Problem(code="device.damaged", problem=str(error))
