"""Releases that are signed as permissions to go back."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

from edge.bundle.folder import Bundle, open_bundle
from edge.bundle.sign import DOWNGRADE, sign
from tests.support.device_root import DeviceRoot

__all__ = ["permission", "time_text"]


def permission(
    device: DeviceRoot,
    name: str = "old",
    *,
    counted: int,
    sequence: int = 1,
    key: Path | None = None,
    **changes: object,
) -> Bundle:
    """Return a release that takes the device back, from this counter and for a day."""
    values = {"targets": ("gate-01",), "expires_at": time_text(days=1), "downgrade_from": counted, **changes}
    bundle = device.bundle(name, sequence=sequence, **values)
    (bundle.path / "manifest.json.sig").write_bytes(sign(bundle.manifest_bytes, key or device.key, DOWNGRADE))
    return open_bundle(bundle.path)


def time_text(**ahead: float) -> str:
    """Return a time as manifests state it, so far ahead of now."""
    return (datetime.now(timezone.utc) + timedelta(**ahead)).strftime("%Y-%m-%dT%H:%M:%SZ")
