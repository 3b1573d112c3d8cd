"""What `edge-build.service` was asked for, and what it leaves as an answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge.device.device import Device
from edge.device.releases import check_release
from edge.errors import DeployError, EdgeError
from edge.reading import json_object, read_file

if TYPE_CHECKING:
    from edge.runtime.engine_build import Built

__all__ = ["answer_request", "read_request", "result_json"]

_MAX_BYTES = 4096


def read_request(path: Path) -> str | None:
    """Return the release that is to get an engine; None: nothing was asked for.

    Raises:
        DeployError: `request.build`, if the file is something else.
    """
    try:
        content = read_file(path, most_bytes=_MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DeployError("request.build", f"{path}: cannot be read: {error.strerror}") from None
    try:
        return check_release(str(json_object(content)["release"]))
    except (ValueError, KeyError) as error:
        raise DeployError("request.build", f"{path}: expected a release, got {error}", hint="push it again") from None


def answer_request(device: Device, path: Path, build: Callable[[str], Built]) -> Mapping[str, Any] | None:
    """Build what the request at `path` asks for, and write the result; None: nothing was asked for.

    The result of an earlier build is taken away first, so that nobody takes it for the answer if this process is
    killed. The request is taken away at the end: who starts the unit again asks again.

    Raises:
        DeployError: why there is no engine; the result says so, too.
    """
    release = read_request(path)
    if release is None:
        return None
    device.durable.remove(device.layout.build_result)
    try:
        result = result_json(release, build(release))
    except EdgeError as error:
        problem = error if isinstance(error, DeployError) else _untyped(error)
        _write(device, path, _failure_json(release, problem))
        raise problem from error
    except Exception as error:  # the border of this process: the answer has to be there, whatever went wrong
        _write(device, path, _failure_json(release, _untyped(error)))
        raise
    _write(device, path, result)
    return result


def result_json(release: str | None, built: Built) -> dict[str, Any]:
    """Return what is said of a build that went well."""
    return {
        "release": release,
        "ok": True,
        "key": built.key,
        "seconds": built.seconds,
        "golden": dict(built.golden),
        "reused": built.is_reused,
        "engine": built.record.line,
        "precision": built.record.precision,
        "report": dict(built.record.report),
    }


def _failure_json(release: str, error: DeployError) -> dict[str, Any]:
    return {
        "release": release,
        "ok": False,
        "key": None,
        "code": error.code,
        "problem": error.problem,
        "hint": error.hint,
        "evidence": error.evidence,
    }


def _untyped(error: Exception) -> DeployError:
    problem = error.problem if isinstance(error, EdgeError) else f"internal error: {type(error).__name__}: {error}"
    return DeployError("build.failed", problem, hint="look at: journalctl -u edge-build")


def _write(device: Device, request: Path, result: Mapping[str, Any]) -> None:
    device.durable.put(device.layout.build_result, json.dumps(result).encode() + b"\n", mode=0o600)
    device.durable.remove(request)
