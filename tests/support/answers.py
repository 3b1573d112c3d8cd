"""Answers of a device as values, made of what a test says of them."""

from typing import Any

from edge.reports import LastSwitch, Moment, UnitState
from edge.wire.verbs import HealthReport, StateReport, StatusAnswer, StreamHealthReport


def last_switch(**changes: Any) -> LastSwitch:
    values = {"release": "a" * 12, "result": "committed", "reason": None, "at": "2026-11-20T12:00:00Z", "before": None}
    return LastSwitch(**{**values, **changes})


def state(**changes: Any) -> StateReport:
    values = {
        "phase": "idle",
        "target": None,
        "fallback": None,
        "boots": 0,
        "attempts": 0,
        "attempts_this_boot": 0,
        "boot_id": "",
        "started_at": "",
        "started_boottime_ns": 0,
        "confirm": False,
        "baseline": {},
        "reason": None,
        "last": None,
    }
    return StateReport(**{**values, **changes})


def health(**streams: tuple[str, int]) -> HealthReport:
    """Return the health of a service with these streams: state, and frames decoded and inferred."""
    return HealthReport(
        release="a" * 12,
        invocation="1",
        at_boottime_ns=0,
        is_ready=True,
        batches=9,
        infer_p95_ms=5.0,
        age_p95_ms=50.0,
        mqtt_connected=None,
        mqtt_acknowledged=0,
        streams={
            name: StreamHealthReport(state=told, decoded=frames, inferred=frames)
            for name, (told, frames) in streams.items()
        },
        age_s=1.0,
    )


def status(**changes: Any) -> StatusAnswer:
    unit = UnitState(
        active="active", sub="running", result="success", invocation="1", restarts=0, exit_status=0, was_stopped=False
    )
    values = {
        "at": Moment(at="2026-11-20T12:00:00Z", boottime_ns=0, boot_id="b"),
        "current": "b" * 12,
        "state": state(),
        "releases": (),
        "health": None,
        "unit": unit,
        "lock": None,
    }
    return StatusAnswer(**{**values, **changes})
