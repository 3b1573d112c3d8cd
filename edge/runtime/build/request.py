"""Request to `edge-build.service`, its progress, and the result of the build.

The builder leaves its end in `answer.json`; what is kept of it is `build-result.json`. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from edge.codec import Most, decode, decode_known, encode
from edge.device.device import Device
from edge.device.engines import GOLDEN
from edge.device.releases import check_release
from edge.errors import DeployError
from edge.reading import json_object, read_file
from edge.wire.peer import Problem
from edge.wire.release import Golden
from edge.writing import write_whole

if TYPE_CHECKING:
    from edge.types import Precision

__all__ = [
    "MAX_RESULT_BYTES",
    "PROGRESS",
    "BuildResult",
    "PendingBuild",
    "ProgressFile",
    "ask",
    "decode_golden",
    "decode_request",
    "decode_result",
    "read_progress",
    "read_request",
    "read_result",
    "write_progress",
]

_MAX_BYTES = 4096
_ID = re.compile(r"[0-9a-f]{0,32}")
PROGRESS = "progress.json"
_MAX_NOTE_BYTES = 4096
_STEP = 0.01  # of a phase; less is not worth a write
MAX_RESULT_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class PendingBuild:
    """The release that is to get an engine; `id` tells the answer to this request from that to an earlier one."""

    release: str
    id: str


def ask(device: Device, release: str) -> PendingBuild:
    """Starting `edge-build.service` then answers it."""
    request = PendingBuild(release, secrets.token_hex(8))
    content = {"release": request.release, "id": request.id}
    device.durable.put(device.layout.build_request, json.dumps(content).encode() + b"\n")
    return request


def read_request(path: Path) -> PendingBuild | None:
    """Return what is asked for; None: nothing. Raises `DeployError`: `request.build`, if the file is something else."""
    try:
        content = read_file(path, most_bytes=_MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DeployError("request.build", f"{path}: cannot be read: {error.strerror}") from None
    return decode_request(content, origin=str(path))


def decode_request(content: bytes, *, origin: str) -> PendingBuild:
    """DeployError `request.build` for anything else than a request."""
    try:
        values = json_object(content)
        release, number = check_release(str(values["release"])), str(values.get("id", ""))
        if not _ID.fullmatch(number):
            raise ValueError(f"id {number[:40]!r}")
        return PendingBuild(release, number)
    except (ValueError, KeyError) as error:
        raise DeployError("request.build", f"{origin}: expected a release, got {error}", hint="push it again") from None


class ProgressFile:
    """Keeps one line about the phase that is under way; it may go unread, and no build fails for it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / PROGRESS
        self._told: tuple[str, float] = ("", 0.0)

    def of(self, precision: Precision) -> Callable[[str, float], None]:
        """Return what a builder tells its phase and how much of it is done, 0 to 1."""

        def tell(phase: str, share: float) -> None:
            name, told = f"{precision.value} {phase}", self._told
            if name == told[0] and abs(share - told[1]) < _STEP:
                return
            self._told = (name, share)
            write_progress(self._path, f"{name} {share:.0%}")

        return tell


def write_progress(path: Path, note: str) -> None:
    """Do nothing where the file cannot be written."""
    with contextlib.suppress(OSError):
        write_whole(path, json.dumps({"note": note}).encode())


def read_progress(path: Path) -> str:
    """Return an empty text where nothing can be read."""
    try:
        return str(json_object(read_file(path, most_bytes=_MAX_NOTE_BYTES)).get("note", ""))[:1000]
    except (OSError, ValueError):
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """An engine, or the problem for which there is none.

    Attributes:
        release: that it is for.
        id: of the request.
        key: of the engine; None: there is a problem.
        golden: what the gate found; None: there are no golden frames.
        reused: the engine was here, and has passed these golden frames, too.
        engine: what runs and why, in words.
        precision, report: as in the engine's record.
    """

    release: str
    id: str = ""
    key: str | None = None
    seconds: Annotated[float, Most(10**9)] = 0.0
    golden: Golden | None = None
    reused: bool = False
    engine: str = ""
    precision: str | None = None
    report: Mapping[str, object] = field(default_factory=dict)
    problem: Problem | None = None

    def __post_init__(self) -> None:
        if (self.key is None) == (self.problem is None):
            raise ValueError("a build ends with an engine or with a problem")

    def encode(self) -> bytes:
        return json.dumps(encode(self)).encode()


def decode_result(content: bytes) -> BuildResult:
    """Return what `BuildResult.encode` was given; what later software says besides is left out. ValueError else."""
    return decode_known(BuildResult, json_object(content, most_bytes=MAX_RESULT_BYTES), where="result")


def read_result(device: Device) -> BuildResult | None:
    """None where that cannot be read."""
    try:
        return decode_result(device.durable.files.read(device.layout.build_result, most_bytes=MAX_RESULT_BYTES))
    except (ValueError, OSError):
        return None


def decode_golden(content: bytes) -> Golden | None:
    """Return what the gate found, as `golden.json` says; None: there were no frames. ValueError for anything else."""
    values = json_object(content, most_bytes=MAX_RESULT_BYTES)
    values.pop("proof", None)
    if values.get("passed") is None:
        return None
    return decode(Golden, values, where=GOLDEN, revision=0)
