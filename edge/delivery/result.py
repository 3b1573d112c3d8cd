"""Which result an error stands for."""

from __future__ import annotations

from edge.delivery.link import LATE, is_lost
from edge.delivery.outcome import Result
from edge.errors import DeployError

__all__ = ["result_of"]

_BEFORE_ANYTHING = ("preflight", "verify", "lock", "request", "bundle")


def result_of(error: DeployError) -> Result:
    """Return the result of a push that ended with `error`."""
    kind = error.code.partition(".")[0]
    if error.code == LATE:
        return "late"
    if is_lost(error) or error.code.startswith("transfer.ssh"):
        return "unreachable"
    if kind == "trial":
        return "failed" if error.code == "trial.undecided" else "rolled-back"
    return "refused" if kind in _BEFORE_ANYTHING else "failed"
