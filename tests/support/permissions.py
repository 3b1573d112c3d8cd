"""Releases that are signed as permissions to go back."""

from datetime import datetime, timedelta, timezone
from pathlib import Path

from edge.bundle.folder import Bundle, open_bundle
from edge.bundle.sign import DOWNGRADE, sign
from tests.support.device_root import DeviceRoot


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
    bundle = device.bundle(name, sequence=sequence, **{**bounds_from(counted), **changes})
    return as_permission(bundle, key or device.key)


def bounds_from(counted: int | None) -> dict[str, object]:
    """Return what the manifest of a permission from this counter says besides; None: it is none."""
    bounds = {"targets": ("gate-01",), "expires_at": time_text(days=1), "downgrade_from": counted}
    return {} if counted is None else bounds


def as_permission(bundle: Bundle, key: Path) -> Bundle:
    """Return the bundle, signed in the namespace of permissions."""
    (bundle.path / "manifest.json.sig").write_bytes(sign(bundle.manifest_bytes, key, DOWNGRADE))
    return open_bundle(bundle.path)


def time_text(**ahead: float) -> str:
    """Return a time as manifests state it, so far ahead of now."""
    return (datetime.now(timezone.utc) + timedelta(**ahead)).strftime("%Y-%m-%dT%H:%M:%SZ")
