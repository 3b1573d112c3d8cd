"""How a trial ended, read from what the device says of itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from edge.errors import EXIT_CODE_OF, DeployError

__all__ = ["COMMITTED", "elapsed_s", "is_on_trial", "serves_current", "verdict_of"]

COMMITTED = "committed"
_CODE = re.compile(r"([a-z]+)(\.[a-z-]+)+(?=:)")


def is_on_trial(status: Mapping[str, Any], release: str) -> bool:
    """Return whether the device is judging the release."""
    state = status.get("state", {})
    return bool(state.get("phase") == "trial" and state.get("target") == release)


def serves_current(status: Mapping[str, Any]) -> bool:
    """Return whether the service has come up with the current release, or has nothing to serve."""
    health = status.get("health") or {}
    current = status.get("current")
    return current is None or bool(health.get("release") == current and health.get("is_ready"))


def elapsed_s(status: Mapping[str, Any]) -> int:
    """Return for how long the trial has been running, by the device's own clock, seconds."""
    passed_ns = int(status["at"]["boottime_ns"]) - int(status["state"]["started_boottime_ns"])
    return max(0, passed_ns // 1_000_000_000)


def verdict_of(status: Mapping[str, Any], release: str, before: Mapping[str, Any]) -> str | DeployError | None:
    """Return `COMMITTED`, or why not; None without a verdict on `release` since the state's `last` was `before`."""
    state = status.get("state", {})
    last = state.get("last") or {}
    if state.get("phase") == "trial" or last == before or last.get("release") != release:
        return None
    if last.get("result") == COMMITTED:
        return COMMITTED
    reason = str(last.get("reason") or "it did not say why")
    evidence = {"last": dict(last), "current": status.get("current")}
    if last.get("result") == "failed" and state.get("phase") == "failed":
        return DeployError(
            "person.failed",
            f"release {release} failed ({reason}), and there is nothing to go back to",
            hint="push a release that works, or edge-deploy rollback --to one that is kept",
            evidence=evidence,
        )
    return DeployError(
        _code_of(reason),
        f"release {release} was rolled back, {status.get('current') or 'nothing'} serves: {reason}",
        hint="see edge-deploy logs; after the cause is gone: push --retry-bad",
        evidence=evidence,
    )


def _code_of(reason: str) -> str:
    match = _CODE.match(reason)
    return match[0] if match and EXIT_CODE_OF.get(match[1]) == EXIT_CODE_OF["trial"] else "trial.refused"
