"""What a device takes: its name and channels, what it has counted, and whose signatures count for it."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path

from edge.device.counters import read_counters
from edge.device.device import Device
from edge.device.moment import is_clock_sure
from edge.device.settings import read_settings
from edge.errors import DeployError
from edge.runtime.agent.history import channels_of
from edge.runtime.trial.trust import require_known
from edge.wire.status import FileReport, TakesReport

__all__ = ["signed_by", "takes"]


def takes(device: Device) -> TakesReport:
    """Return what decides whether the device takes a release.

    Raises:
        DeployError: `device.settings`, `device.counters`.
    """
    counters = read_counters(device.layout, device.durable.files)
    return TakesReport(
        name=read_settings(device.layout.device_toml).name,
        channels=channels_of(device, counters),
        sequences=dict(counters.sequences),
        newest_created_at=counters.newest_created_at,
        reset_at=counters.reset_at,
        is_clock_sure=is_clock_sure(),
        signers=_file(device.layout.allowed_signers),
        revocation_list=_file(device.layout.revoked_keys),
    )


def signed_by(device: Device, release: str) -> tuple[str | None, str | None]:
    """Return who has signed a kept release, and the code of why that does not count any more."""
    try:
        found = require_known(device, release)
    except DeployError as error:
        return None, error.code
    return found.signer, None if found.withdrawn is None else found.withdrawn.code


def _file(path: Path) -> FileReport | None:
    try:
        written_s = os.stat(path).st_mtime
    except OSError:
        return None
    now = datetime.now(timezone.utc)
    at = datetime.fromtimestamp(written_s, timezone.utc)
    return FileReport(at=at.strftime("%Y-%m-%dT%H:%M:%SZ"), age_s=max(0, round((now - at).total_seconds())))
