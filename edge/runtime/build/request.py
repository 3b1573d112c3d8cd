"""What `edge-build.service` is asked for. Standard library only."""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from edge.device.device import Device
from edge.device.releases import check_release
from edge.errors import DeployError
from edge.reading import json_object, read_file

__all__ = ["PendingBuild", "ask", "decode_request", "read_request"]

_MAX_BYTES = 4096
_ID = re.compile(r"[0-9a-f]{0,32}")


@dataclass(frozen=True, slots=True)
class PendingBuild:
    """The release that is to get an engine; `id` tells the answer to this request from that to an earlier one."""

    release: str
    id: str


def ask(device: Device, release: str) -> PendingBuild:
    """Write a request; who starts `edge-build.service` then has it answered."""
    request = PendingBuild(release, secrets.token_hex(8))
    content = {"release": request.release, "id": request.id}
    device.durable.put(device.layout.build_request, json.dumps(content).encode() + b"\n")
    return request


def read_request(path: Path) -> PendingBuild | None:
    """Return what is asked for; None: nothing.

    Raises:
        DeployError: `request.build`, if the file is something else.
    """
    try:
        content = read_file(path, most_bytes=_MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DeployError("request.build", f"{path}: cannot be read: {error.strerror}") from None
    return decode_request(content, origin=str(path))


def decode_request(content: bytes, *, origin: str) -> PendingBuild:
    """Return the request in `content`; DeployError `request.build` for anything else."""
    try:
        values = json_object(content)
        release, number = check_release(str(values["release"])), str(values.get("id", ""))
        if not _ID.fullmatch(number):
            raise ValueError(f"id {number[:40]!r}")
        return PendingBuild(release, number)
    except (ValueError, KeyError) as error:
        raise DeployError("request.build", f"{origin}: expected a release, got {error}", hint="push it again") from None
