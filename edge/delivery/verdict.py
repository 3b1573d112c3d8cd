"""How a trial ended, read from what the device says of itself."""

from __future__ import annotations

import re

from edge.errors import EXIT_CODE_OF, DeployError
from edge.wire.codec import encode
from edge.wire.ending import Problem, error_of
from edge.wire.status import LastSwitch, StateReport, StatusAnswer

__all__ = [
    "COMMITTED",
    "ROLLED_BACK",
    "elapsed_s",
    "is_on_trial",
    "leaving_of",
    "serves_current",
    "state_of",
    "verdict_of",
]

COMMITTED, ROLLED_BACK = "committed", "rolled-back"
_CODE = re.compile(r"([a-z]+)(\.[a-z-]+)+(?=:)")


def state_of(status: StatusAnswer) -> StateReport:
    """Return the state; DeployError, as the device says it, where it cannot read its own."""
    if isinstance(status.state, Problem):
        raise error_of(status.state)
    return status.state


def is_on_trial(status: StatusAnswer, release: str) -> bool:
    """Return whether the device is judging the release."""
    state = state_of(status)
    return state.phase == "trial" and state.target == release


def serves_current(status: StatusAnswer) -> bool:
    """Return whether the service has come up with the current release, or has nothing to serve."""
    health, current = status.health, status.current
    return current is None or (health is not None and health.release == current and health.is_ready)


def elapsed_s(status: StatusAnswer) -> int:
    """Return for how long the trial has been running, by the device's own clock, seconds."""
    passed_ns = status.at.boottime_ns - state_of(status).started_boottime_ns
    return max(0, passed_ns // 1_000_000_000)


def verdict_of(status: StatusAnswer, release: str, before: LastSwitch | None) -> str | DeployError | None:
    """Return `COMMITTED`, or why not; None without a verdict on `release` since the state's `last` was `before`."""
    state = state_of(status)
    last = state.last
    if state.phase == "trial" or last is None or last == before or last.release != release:
        return None
    if last.result == COMMITTED:
        return COMMITTED
    reason = last.reason or "it did not say why"
    evidence = {"last": encode(last), "current": status.current}
    if last.result == "failed" and state.phase == "failed":
        return DeployError(
            "person.failed",
            f"release {release} failed ({reason}), and there is nothing to go back to",
            hint="push a release that works, or edge-deploy rollback --to one that is kept",
            evidence=evidence,
        )
    return DeployError(
        _code_of(reason),
        f"release {release} was rolled back, {status.current or 'nothing'} serves: {reason}",
        hint="see edge-deploy logs; after the cause is gone: push --retry-bad",
        evidence=evidence,
    )


def leaving_of(status: StatusAnswer, release: str) -> LastSwitch | None:
    """Return the last switch, if it was away from `release`: by its verdict, or by a person; None if it was not."""
    state = state_of(status)
    last = state.last
    if state.phase != "idle" or last is None or status.current in (None, release):
        return None
    left = last.release if last.result == ROLLED_BACK else last.before
    return last if left == release else None


def _code_of(reason: str) -> str:
    match = _CODE.match(reason)
    return match[0] if match and EXIT_CODE_OF.get(match[1]) == EXIT_CODE_OF["trial"] else "trial.refused"
