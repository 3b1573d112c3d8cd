"""The builder's side of a build: it reads what is asked for, and leaves files and an answer in its own folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge.device.device import Device
from edge.errors import DeployError, EdgeError
from edge.reading import json_object, read_file
from edge.runtime.build.handover import ANSWER
from edge.runtime.build.request import PendingBuild, read_request

if TYPE_CHECKING:
    from edge.runtime.build.engine import MadeEngine

__all__ = ["answer_request"]


def answer_request(device: Device, path: Path, build: Callable[[str], MadeEngine]) -> Mapping[str, Any] | None:
    """Build what the request at `path` asks for, and leave the answer; None: nothing is asked that is not answered yet.

    The answer to an earlier request is taken away first, so that nobody takes it for this one if this process is
    killed. The request stays: it is edge-deploy's, who takes it away with the answer (`edge.runtime.build.handover`).

    Raises:
        DeployError: why there is no engine; the answer says so, too.
    """
    request, workshop = read_request(path), device.layout.workshop
    if request is None or _is_answered(workshop, request):
        return None
    (workshop / ANSWER).unlink(missing_ok=True)
    named = {"id": request.id, "release": request.release}
    try:
        made = build(request.release)
    except EdgeError as error:
        problem = error if isinstance(error, DeployError) else _untyped(error)
        _leave(workshop, {**named, **_failure(problem)})
        raise problem from error
    except Exception as error:  # the border of this process: the answer has to be there, whatever went wrong
        _leave(workshop, {**named, **_failure(_untyped(error))})
        raise
    answer = {**named, "ok": True, "key": made.key, "reused": made.is_reused, "seconds": made.seconds}
    answer |= {"engine": made.record.line, "golden": dict(made.golden)}  # for who reads the journal
    _leave(workshop, answer)
    return answer


def _failure(error: DeployError) -> dict[str, Any]:
    return {
        "ok": False,
        "code": error.code,
        "problem": error.problem,
        "hint": error.hint,
        "evidence": error.evidence,
    }


def _untyped(error: Exception) -> DeployError:
    problem = error.problem if isinstance(error, EdgeError) else f"internal error: {type(error).__name__}: {error}"
    return DeployError("build.failed", problem, hint="look at: journalctl -u edge-build")


def _is_answered(workshop: Path, request: PendingBuild) -> bool:
    try:
        answer = json_object(read_file(workshop / ANSWER))
    except (OSError, ValueError):
        return False
    return bool(request.id) and (answer.get("id"), answer.get("release")) == (request.id, request.release)


def _leave(workshop: Path, answer: Mapping[str, Any]) -> None:
    """Write the answer; it is there as a whole or not at all."""
    partial = workshop / f".{ANSWER}.part"
    partial.write_text(json.dumps(answer), encoding="utf-8")
    os.replace(partial, workshop / ANSWER)
