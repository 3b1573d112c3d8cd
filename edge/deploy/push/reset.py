"""A signed reset of one device's counters: made from what the device counts, and applied over its agent."""

from __future__ import annotations

import base64
import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from edge.bundle.reset import Reset, encode_reset
from edge.bundle.sign import RESET as NAMESPACE
from edge.bundle.sign import sign
from edge.delivery.link import Link
from edge.errors import DeployError
from edge.reading import read_file
from edge.transport.channel import Channel
from edge.wire.ending import Nothing, Problem, error_of
from edge.wire.peer import PROVISION
from edge.wire.reset import ResetAnswer, ResetRequest
from edge.wire.sending import LockRequest
from edge.wire.status import TakesReport
from edge.wire.verbs import LOCK, RESET, STATUS

__all__ = ["SignedReset", "apply_reset", "counters_at", "make_reset", "read_reset", "write_reset"]

_TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedReset:
    """The bytes of a reset, and the signature over them."""

    content: bytes
    signature: bytes


def make_reset(
    takes: TakesReport,
    target: str,
    *,
    key: Path,
    now: datetime,
    sequences: Mapping[str, int] | None = None,
    expires_days: int = 1,
) -> SignedReset:
    """Return a reset for the device `target`, which counts what `takes` says.

    Args:
        takes: of the device's status.
        target: its name.
        key: that signs.
        now: when it is made, by this machine's clock.
        sequences: what the device shall count; None: `now` in seconds for each of its channels.
        expires_days: for how long it may be used.

    Raises:
        DeployError: `bundle.key`; `request.reset` for what no device would follow.
    """
    second = now.replace(microsecond=0)
    try:
        order = Reset(
            target=target,
            created_at=second.strftime(_TIME),
            expires_at=(second + timedelta(days=expires_days)).strftime(_TIME),
            given_for=dict(takes.sequences),
            given_for_time=takes.newest_created_at,
            sequences=dict(sequences) if sequences else dict.fromkeys(takes.sequences, int(second.timestamp())),
        )
    except DeployError as error:
        raise DeployError("request.reset", f"{target}: {error.problem}", hint="see edge-deploy reset --help") from error
    content = encode_reset(order)
    return SignedReset(content=content, signature=sign(content, key, NAMESPACE))


def counters_at(connect: Callable[[], Channel]) -> TakesReport:
    """Return what a device takes, as its status says.

    Raises:
        DeployError: `transfer.*`, and what keeps the device from knowing it.
    """
    link = Link(connect(), threading.Event())
    with contextlib.closing(link):
        takes = link.ask(STATUS, Nothing()).takes
    if takes is None:
        raise DeployError("transfer.version", "the device's software knows no reset", hint=PROVISION)
    if isinstance(takes, Problem):
        raise error_of(takes)
    return takes


def apply_reset(connect: Callable[[], Channel], order: SignedReset, *, who: str) -> ResetAnswer:
    """Let a device follow a reset; return what it counts then.

    Raises:
        DeployError: `transfer.*`, `lock.*`, `verify.*`, `device.*`.
    """
    request = ResetRequest(
        reset=base64.b64encode(order.content).decode(), signature=base64.b64encode(order.signature).decode()
    )
    link = Link(connect(), threading.Event())
    with contextlib.closing(link):
        link.ask(LOCK, LockRequest(who=who, why="reset", in_trial=True))
        return link.ask(RESET, request)


def write_reset(order: SignedReset, path: Path) -> None:
    """Write a reset as `path`, and its signature beside it; DeployError `bundle.write`."""
    try:
        path.write_bytes(order.content)
        _beside(path).write_bytes(order.signature)
    except OSError as error:
        raise DeployError("bundle.write", f"{path}: cannot be written: {error.strerror}", hint="-o FILE") from None


def read_reset(path: Path) -> SignedReset:
    """Return what `write_reset` wrote; DeployError `bundle.file`."""
    try:
        return SignedReset(content=_read(path), signature=_read(_beside(path)))
    except OSError as error:
        raise DeployError(
            "bundle.file", f"{error.filename}: cannot be read: {error.strerror}", hint="copy both files again"
        ) from None


def _read(path: Path) -> bytes:
    return read_file(path, follows_links=True)


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".sig")
