"""Status, logs and acceptance rules of a device, for people and for a client that awaits a verdict."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from edge.bundle.manifest import decode_manifest
from edge.codec import Misfit, decode, decode_known
from edge.deadline import age_s
from edge.device.device import Device
from edge.device.engines import EngineRecord, read_record
from edge.device.facts import gather_facts, is_clock_sure, read_settings, this_moment
from edge.device.health import read_health
from edge.device.lock import PushLock
from edge.device.state import Phase, read_bad, read_counters
from edge.device.units import RUNTIME_UNIT
from edge.errors import DeployError
from edge.reading import json_object
from edge.reports import Facts
from edge.runtime.agent.accept import channels_of, left_by, ring_report
from edge.runtime.agent.session import Session
from edge.runtime.build.request import read_progress
from edge.runtime.pull.record import read_pull_record
from edge.runtime.software.binding import brought_by, installation_of
from edge.runtime.trial.soundness import why_better
from edge.runtime.trial.trust import require_known
from edge.version import __version__, is_later
from edge.wire.peer import Nothing, Problem, problem_of
from edge.wire.verbs import (
    BadReport,
    FileReport,
    HealthReport,
    HolderReport,
    KeptReport,
    LogsAnswer,
    LogsRequest,
    LookReport,
    StateReport,
    StatusAnswer,
    TakesReport,
)

__all__ = ["facts", "logs", "overdue", "signed_by", "status", "takes"]

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


def takes(device: Device) -> TakesReport:
    """DeployError `device.settings`, `device.counters`."""
    layout = device.layout
    settings, counters = read_settings(layout.device_toml), read_counters(layout, device.durable.files)
    said = [_file(layout.trust), _file(layout.first_trust)]
    root_says = min(filter(None, said), key=lambda file: file.age_s, default=None)
    is_rooted = layout.trust_root.exists()
    return TakesReport(
        name=settings.name,
        channels=channels_of(settings, counters),
        sequences=dict(counters.sequences),
        newest_created_at=counters.newest_created_at,
        is_clock_sure=is_clock_sure(),
        signers=root_says if is_rooted else _file(layout.allowed_signers),
        revocation_list=root_says if is_rooted else _file(layout.revoked_keys),
    )


def signed_by(device: Device, release: str) -> tuple[str | None, str | None]:
    """Return the signer of a kept release, and the code of the reason not to trust it any more."""
    try:
        found = require_known(device, release)
    except DeployError as error:
        return None, error.code
    return found.signer, None if found.withdrawn is None else found.withdrawn.code


def overdue(device: Device) -> str | None:
    """Return the version with which the release that serves was made, if it is later than this; None: it is not."""
    current = device.releases.current()
    try:
        made_by = "" if current is None else decode_manifest(device.releases.manifest(current)).made_by
    except DeployError:
        return None
    version = made_by.removeprefix("edge-deploy ")
    return version if is_later(version) else None


def _file(path: Path) -> FileReport | None:
    try:
        written_s = os.stat(path).st_mtime
    except OSError:
        return None
    at = datetime.fromtimestamp(written_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return FileReport(at=at, age_s=age_s(at) or 0)


def status(session: Session, request: Nothing) -> StatusAnswer:
    """A damaged part is named in its place, so that the rest is seen."""
    device = session.device
    bad = read_bad(device.layout, device.durable.files)
    state = _or_problem(lambda: _state(session))
    return StatusAnswer(
        at=this_moment(),
        current=device.releases.current(),
        state=state,
        releases=tuple(_release(session, name) for name in device.releases.names()),
        bad={name: BadReport(verdict=one.verdict.value, reason=one.reason, at=one.at) for name, one in bad.items()},
        health=_health(session),
        unit=_or_problem(lambda: session.units.state(RUNTIME_UNIT)),
        lock=_told(HolderReport, PushLock(device.layout).holder()),
        takes=_or_problem(lambda: takes(device)),
        installed=__version__,
        overdue=overdue(device),
        ring=ring_report(device),
        left=_left(device),
        look=_look(device),
        waits_for=_waits_for(device, state),
    )


def _waits_for(device: Device, state: StateReport | Problem) -> str | None:
    is_on_trial = isinstance(state, StateReport) and state.phase == Phase.TRIAL.value
    return (read_progress(device.layout.trial_progress) or None) if is_on_trial else None


def _left(device: Device) -> str | None:
    try:
        left = left_by(device)
    except DeployError:  # which `state` and `takes` tell
        return None
    return None if left is None else left[0]


def _look(device: Device) -> LookReport | None:
    record = read_pull_record(device.layout.pull_record) if device.layout.pull_toml.exists() else None
    if record is None:
        return None
    texts = (record.release, record.result, record.code, record.problem, record.looked_at)
    release, result, code, problem, looked_at = (None if one is None else one[:_MAX_LINE] for one in texts)
    return LookReport(
        release=release,
        result=result or "",
        code=code,
        problem=problem,
        looked_at=looked_at,
        age_s=age_s(record.looked_at),
    )


def facts(session: Session, request: Nothing) -> Facts:
    return gather_facts(session.device.layout)


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
    return StateReport(**{one.name: getattr(state, one.name) for one in fields(state)} | {"phase": state.phase.value})


def _release(session: Session, name: str) -> KeptReport:
    releases = session.device.releases
    said = _or_problem(lambda: decode_known(_Manifest, json_object(releases.manifest(name)), where="manifest.json"))
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
    pipeline_name: str | None = None
    channel: str | None = None
    sequence: int | None = None
    created_at: str | None = None


def _line(session: Session, name: str, engine: EngineRecord) -> str:
    return "; ".join(part for part in (engine.line[:_MAX_LINE], why_better(session.device, name)) if part)


def _engine(session: Session, name: str) -> EngineRecord | None:
    """None where there is none that can be read."""
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
        return None if values is None else decode(kind, values, where=kind.__name__)
    except Misfit:
        return None


def _or_problem(read: Callable[[], T]) -> T | Problem:
    try:
        return read()
    except DeployError as error:
        return problem_of(error)
    except (ValueError, TypeError) as error:
        return Problem(code="device.damaged", problem=str(error))
