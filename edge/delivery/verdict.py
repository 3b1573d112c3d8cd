"""How a trial ended, read from a device's status, and which result an error stands for."""

from __future__ import annotations

import re

from edge.codec import encode
from edge.delivery.link import LATE, is_lost
from edge.delivery.outcome import INTERRUPTED, Outcome, Result
from edge.errors import EXIT_CODE_OF, DeployError
from edge.reports import LastSwitch
from edge.wire.peer import Problem, error_of
from edge.wire.verbs import StateReport, StatusAnswer

__all__ = [
    "COMMITTED",
    "ROLLED_BACK",
    "elapsed_s",
    "failed_by",
    "interrupted",
    "is_on_trial",
    "result_of",
    "serves_current",
    "state_of",
    "verdict_of",
]

_BEFORE_ANYTHING = ("preflight", "verify", "lock", "request", "bundle")
COMMITTED, ROLLED_BACK = "committed", "rolled-back"
_RETRY = (
    "see edge-deploy logs or the device's journal; after the cause is gone: push --retry-bad, "
    "or edge-runtime pull --retry-bad on a device that pulls"
)
_HINTS = {"trial.lacking": "give the device that, then push again: the release is not marked bad"}
_CODE = re.compile(r"([a-z]+)(\.[a-z-]+)+(?=:)")


def result_of(error: DeployError) -> Result:
    kind = error.code.partition(".")[0]
    if error.code == LATE:
        return "late"
    if is_lost(error) or error.code.startswith("transfer.ssh"):
        return "unreachable"
    if kind == "trial":
        return "failed" if error.code == "trial.undecided" else "rolled-back"
    return "refused" if kind in _BEFORE_ANYTHING else "failed"


def failed_by(error: DeployError, *, target: str, release: str | None = None, result: Result | None = None) -> Outcome:
    """`result` None: as `result_of` has it."""
    return Outcome(
        target=target,
        release=release,
        result=result or result_of(error),
        exit_code=error.exit_code,
        code=error.code,
        problem=error.problem,
        hint=error.hint,
        evidence=error.evidence,
    )


def interrupted(target: str, problem: str, *, hint: str | None = None) -> Outcome:
    """Return the end of a target that Ctrl-C has ended, or never let begin."""
    return Outcome(
        target=target, release=None, result="interrupted", exit_code=INTERRUPTED, code="fleet.interrupted",
        problem=problem, hint=hint,
    )  # fmt: skip


def state_of(status: StatusAnswer) -> StateReport:
    """DeployError, as the device says it, where it cannot read its own."""
    if isinstance(status.state, Problem):
        raise error_of(status.state)
    return status.state


def is_on_trial(status: StatusAnswer, release: str) -> bool:
    state = state_of(status)
    return state.phase == "trial" and state.target == release


def serves_current(status: StatusAnswer) -> bool:
    """Return whether the service has come up with the current release, or has nothing to serve."""
    health, current = status.health, status.current
    return current is None or (health is not None and health.release == current and health.is_ready)


def elapsed_s(status: StatusAnswer) -> int:
    """Return seconds of the device's own clock."""
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
    code = _code_of(reason)
    return DeployError(
        code,
        f"release {release} was rolled back, {status.current or 'nothing'} serves: {reason}",
        hint=_HINTS.get(code, _RETRY),
        evidence=evidence,
    )


def _code_of(reason: str) -> str:
    match = _CODE.match(reason)
    return match[0] if match and EXIT_CODE_OF.get(match[1]) == EXIT_CODE_OF["trial"] else "trial.refused"
