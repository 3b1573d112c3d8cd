"""Releases that are signed as permissions to go back."""

from datetime import datetime, timedelta, timezone
from pathlib import Path

from edge.bundle.folder import Bundle, open_bundle
from edge.bundle.sign import DOWNGRADE, sign
from tests.support.device_root import DeviceRoot


def permission(device: DeviceRoot, *, counted: int, **changes: object) -> Bundle:
    """Return a release that takes the device back, from this counter and for a day."""
    return as_permission(device.bundle("old", **{**bounds_from(counted), **changes}), device.key)


def bounds_from(counted: int | None) -> dict[str, object]:
    """Return what the manifest of a permission from this counter says besides; None: it is none."""
    tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
    bounds = {"targets": ("gate-01",), "expires_at": f"{tomorrow:%Y-%m-%dT%H:%M:%SZ}", "downgrade_from": counted}
    return {} if counted is None else bounds


def as_permission(bundle: Bundle, key: Path) -> Bundle:
    """Return the bundle, signed in the namespace of permissions."""
    (bundle.path / "manifest.json.sig").write_bytes(sign(bundle.manifest_bytes, key, DOWNGRADE))
    return open_bundle(bundle.path)
