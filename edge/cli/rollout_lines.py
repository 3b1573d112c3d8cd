"""A rollout as lines for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from edge.deploy.rollout.rollout import Look
from edge.rollout.device import DeviceStanding
from edge.rollout.judge import RingTally
from edge.rollout.state import RingState
from edge.untrusted import cleaned

__all__ = ["look_json", "look_lines", "ring_line"]

_HEAD = ("RING", "DEVICES", "COMMITTED", "FAILED", "WAITING", "SILENT", "")
_MOST = 20


def look_lines(look: Look) -> Iterator[str]:
    """Yield what a rollout has come to: its rings, what comes next, who has failed, who says nothing."""
    state = look.state
    yield f"release {state.release} of {state.channel}: {state.phase}{_why(state.why)}"
    rows = [_HEAD, *(_row(ring, tally) for ring, tally in zip(state.rings, look.tallies, strict=True))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    for row in rows:
        counts = [cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True)]
        yield "  ".join([row[0].ljust(widths[0]), *counts, row[-1]]).rstrip()
    if look.decision is not None:
        yield f"next: {look.decision.what}: {cleaned(look.decision.why)}"
    for ring, count in sorted(look.others.items()):
        yield f"not in it: ring {ring}, {count} {'device' if count == 1 else 'devices'}"
    yield from _named("failed", [line for tally in look.tallies for line in _failed(tally)])
    yield from _named("silent", [line for tally in look.tallies for line in _silent(tally, look)])


def ring_line(look: Look) -> str:
    """Return how the ring stands that got the release last; the same words as long as nothing changes."""
    tally = look.tallies[len(look.state.begun) - 1]
    return f"{tally.ring}: {', '.join(f'{count} {name}' for name, count in _counts(tally).items())}"


def look_json(look: Look) -> dict[str, Any]:
    """Return all of it as values of JSON."""
    state, decision = look.state, look.decision
    return {
        "release": state.release,
        "channel": state.channel,
        "sequence": state.sequence,
        "digest": state.digest,
        "phase": state.phase,
        "why": state.why,
        "next": None if decision is None else {"what": decision.what, "why": decision.why},
        "rings": [
            {
                "name": ring.name,
                "known": tally.known,
                **_counts(tally),
                "began_at": _time(ring.began_at),
                "reached_at": _time(ring.reached_at),
                "devices": {
                    name: {"standing": standing.value, "why": why, "silent_since": _time(state.silent.get(name))}
                    for name, (standing, why) in tally.devices.items()
                },
            }
            for ring, tally in zip(state.rings, look.tallies, strict=True)
        ],
        "others": look.others,
        "steps": [{"at": _time(step.at), "by": step.by, "what": step.what} for step in state.steps],
    }


def _row(ring: RingState, tally: RingTally) -> tuple[str, ...]:
    if ring.began_at is None:
        return (ring.name, str(tally.known), "-", "-", "-", "-", "")
    since = f"enough since {_time(ring.reached_at)}" if ring.reached_at else f"has it since {_time(ring.began_at)}"
    return (ring.name, str(tally.known), *(str(count) for count in _counts(tally).values()), since)


def _counts(tally: RingTally) -> dict[str, int]:
    unknown = max(0, tally.known - len(tally.devices))
    return {
        "committed": tally.count(DeviceStanding.COMMITTED),
        "failed": tally.failed,
        "waiting": tally.count(DeviceStanding.WAITING),
        "silent": tally.count(DeviceStanding.SILENT) + unknown,
    }


def _failed(tally: RingTally) -> Iterator[str]:
    for name, (standing, why) in tally.devices.items():
        if standing.has_failed:
            yield cleaned(f"{name} {standing.value}{_why(why)}")


def _silent(tally: RingTally, look: Look) -> Iterator[str]:
    for name, (standing, _) in tally.devices.items():
        if standing is DeviceStanding.SILENT:
            yield cleaned(f"{name} since {_time(look.state.silent.get(name))} or longer")


def _named(what: str, lines: list[str]) -> Iterator[str]:
    yield from (f"{what}: {line}" for line in lines[:_MOST])
    if len(lines) > _MOST:
        yield f"{what}: and {len(lines) - _MOST} more; --json names all"


def _why(why: str | None) -> str:
    return "" if why is None else f": {cleaned(why)}"


def _time(at: datetime | None) -> str | None:
    return None if at is None else f"{at:%Y-%m-%dT%H:%M:%SZ}"
