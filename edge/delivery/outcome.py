"""What became of a delivery to one target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from edge.delivery.event import LAST_PHASE, Event, now

__all__ = ["DONE", "INTERRUPTED", "PLANNED", "Outcome", "Result", "last_event"]

Result = Literal[
    "unchanged",
    "changed",
    "committed",
    "detached",
    "rolled-back",
    "refused",
    "failed",
    "unreachable",
    "late",
    "interrupted",
    "planned",
]
DONE, PLANNED, INTERRUPTED = 0, 10, 130
_WITHOUT_CODE = (DONE, PLANNED, INTERRUPTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How it ended for one target; `release` is None where it was never known.

    `exit_code` is that of a command for this target alone; `code`, `problem` and `hint` are those of the `DeployError`
    that ended it, `evidence` the numbers behind it.

    Raises:
        ValueError: if it contradicts itself.
    """

    target: str
    release: str | None
    result: Result
    exit_code: int
    code: str | None = None
    problem: str | None = None
    hint: str | None = None
    evidence: Mapping[str, object] = field(default_factory=dict)
    bytes_sent: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.result not in get_args(Result):
            raise ValueError(f"a result is one of {', '.join(get_args(Result))}, got {self.result!r}")
        if self.code is None and self.exit_code not in _WITHOUT_CODE:
            raise ValueError(f"{self.result} with exit code {self.exit_code} needs a code that says why")
        if self.code is not None and self.exit_code == DONE:
            raise ValueError(f"done, and yet {self.code}")
        if self.bytes_sent < 0 or self.seconds < 0:
            raise ValueError(f"{self.bytes_sent} bytes in {self.seconds} s are no measure")

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do for this target; of one that was left to itself nobody knows."""
        return self.exit_code == DONE and self.result != "detached"


def last_event(outcome: Outcome) -> Event:
    """Return the event that tells the outcome; it is the last of its target."""
    return Event(
        ts=now(),
        target=outcome.target,
        phase=LAST_PHASE,
        event=outcome.result,
        bytes=outcome.bytes_sent,
        code=outcome.code,
        hint="; ".join(part for part in (outcome.problem, outcome.hint) if part) or None,
    )
