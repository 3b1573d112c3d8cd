"""What a device does right now, and what it did: for people, and for a client that waits for a verdict."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from edge.device.bad import read_bad
from edge.device.engine_record import read_record
from edge.device.facts import facts_as_json, gather_facts
from edge.device.health import read_health
from edge.device.lock import PushLock
from edge.device.moment import this_moment
from edge.device.units import RUNTIME_UNIT
from edge.errors import DeployError
from edge.reading import json_object
from edge.runtime.agent.conversation import Request, number_of
from edge.runtime.agent.session import Session
from edge.runtime.soundness import why_better

__all__ = ["facts", "logs", "status"]

_JOURNAL = "/usr/bin/journalctl"
_UNITS = ("edge-runtime", "edge-build", "edge-trial", "edge-rollback", "edge-recover")
_MAX_LINES = 1000
_MAX_LINE = 1000
_MAX_LOG_BYTES = 128 * 1024
_JOURNAL_TIMEOUT_S = 10.0


def status(session: Session, request: Request) -> Mapping[str, Any]:
    """Return state, releases, health and unit; a damaged part is named in its place, so that the rest is seen."""
    device = session.device
    return {
        "at": asdict(this_moment()),
        "current": device.releases.current(),
        "state": _or_problem(lambda: {**asdict(device.state()), "phase": device.state().phase.value}),
        "releases": [_release(session, name) for name in device.releases.names()],
        "bad": {name: asdict(bad) for name, bad in read_bad(device.layout, device.durable.files).items()},
        "health": _health(session),
        "unit": _or_problem(lambda: asdict(session.units.state(RUNTIME_UNIT))),
        "lock": PushLock(device.layout).holder(),
    }


def facts(session: Session, request: Request) -> Mapping[str, Any]:
    """Return what the device measures of itself."""
    return facts_as_json(gather_facts(session.device.layout))


def logs(session: Session, request: Request) -> Mapping[str, Any]:
    """Return the last lines of our units, oldest first, where this user may read the journal."""
    count = number_of(request, "lines", most=_MAX_LINES)
    units = [part for unit in _UNITS for part in ("-u", unit)]
    command = [_JOURNAL, "--no-pager", "-q", "-o", "short-iso", "-n", str(count), *units]
    try:
        told, complaint = _tail_of(command)
    except OSError as error:
        return {"lines": [], "note": f"the journal cannot be read: {error}"}
    lines = [line[:_MAX_LINE] for line in told.decode("utf-8", "replace").splitlines()]
    note = complaint.decode("utf-8", "replace").strip()
    if not lines and not note:
        note = "the journal has no lines of our units that this user may read (group systemd-journal)"
    return {"lines": lines[-count:] if count else [], "note": note}


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


def _release(session: Session, name: str) -> Mapping[str, Any]:
    releases = session.device.releases
    text = _or_problem(lambda: json_object(releases.manifest(name)))
    return {
        "release": name,
        "pipeline": text.get("pipeline_name"),
        "channel": text.get("channel"),
        "sequence": text.get("sequence"),
        "created_at": text.get("created_at"),
        "is_ready": releases.is_ready(name),
        **_engine(session, name),
    }


def _engine(session: Session, name: str) -> Mapping[str, Any]:
    """Return what the engine of a release runs and why; nothing where there is none that can be read."""
    key = session.device.releases.engine_key(name)
    try:
        record = None if key is None else read_record(session.device.engines, key)
    except DeployError:
        record = None
    if record is None:
        return {}
    line = "; ".join(part for part in (record.line[:_MAX_LINE], why_better(session.device, name)) if part)
    return {"engine": line, "precision": record.precision[:_MAX_LINE]}


def _health(session: Session) -> Mapping[str, Any] | None:
    health = read_health(session.device.layout.health)
    if health is None:
        return None
    age_ns = this_moment().boottime_ns - health.at_boottime_ns
    return {**asdict(health), "age_s": round(age_ns / 1e9, 1)}


def _or_problem(read: Any) -> dict[str, Any]:
    try:
        value: dict[str, Any] = read()
    except DeployError as error:
        return {"code": error.code, "problem": error.problem}
    except ValueError as error:
        return {"code": "device.damaged", "problem": str(error)}
    return value
