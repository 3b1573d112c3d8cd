"""What can come back for any request: how far it is, or why it is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from edge.errors import EXIT_CODE_OF, DeployError
from edge.wire.codec import Most

__all__ = ["Nothing", "Problem", "Progress", "error_of", "problem_of"]

_CODE, _TEXT = 100, 16_000


@dataclass(frozen=True, slots=True)
class Nothing:
    """A request that says no more than its verb, or an answer that says no more than "done"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a request is: `done` of `total` bytes or seconds; `note` is for people."""

    phase: str
    done: Annotated[float, Most(2**63)]
    total: Annotated[float, Most(2**63)] | None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A `DeployError` on its way; `evidence` is plain JSON."""

    code: Annotated[str, Most(_CODE)]
    problem: Annotated[str, Most(_TEXT)]
    hint: Annotated[str, Most(_TEXT)] | None = None
    evidence: Mapping[str, object] = field(default_factory=dict)


def problem_of(error: DeployError) -> Problem:
    """Return the error as it goes over the wire; too long a text is cut, evidence that JSON cannot carry is spelled."""
    evidence = json.loads(json.dumps(error.evidence, default=str))
    hint = None if error.hint is None else error.hint[:_TEXT]
    return Problem(code=error.code[:_CODE], problem=error.problem[:_TEXT], hint=hint, evidence=evidence)


def error_of(problem: Problem) -> DeployError:
    """Return the error that a device has sent; one that only a newer version knows is `device.unknown`."""
    error = DeployError(problem.code, problem.problem, hint=problem.hint, evidence=problem.evidence)
    if problem.code.partition(".")[0] not in EXIT_CODE_OF:
        error.evidence["code"], error.code = problem.code, "device.unknown"
    return error
