"""What a device did by itself, in the audit log beside what people asked of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from edge.device.device import Device
from edge.device.moment import Moment
from edge.errors import DeployError

__all__ = ["record", "recorded_failure"]

_log = logging.getLogger(__name__)


def record(device: Device, what: str, result: str, *, release: str | None, moment: Moment) -> None:
    """Write that the device itself did `what`; a log that cannot be written is no reason to stop a way back."""
    try:
        device.audit.write(at=moment.at, who="device", origin="local", what=what, result=result, release=release)
    except DeployError as error:
        _log.warning("audit log cannot be written what=%s result=%s reason=%s", what, result, error)


@contextmanager
def recorded_failure(device: Device, what: str, *, release: str | None, moment: Moment) -> Iterator[None]:
    """Write down a DeployError that ends the block, and pass it on."""
    try:
        yield
    except DeployError as error:
        record(device, what, f"{error.code}: {error.problem}", release=release, moment=moment)
        raise
