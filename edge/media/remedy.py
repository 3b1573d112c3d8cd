"""What a person can do about a camera that gives no frames."""

from __future__ import annotations

__all__ = ["IS_REFUSED", "IS_UNKNOWN", "remedy_of"]

IS_REFUSED = "store the camera's user:password under the name of the stream's credential"
IS_UNKNOWN = "correct the path in the stream's address: the camera does not have this one"
_BY_SCHEME = {
    "v4l2": "see which cameras this machine has (ls -l /dev/video*), and that the service may read it (group video)",
    "csi": "look at the cable of the camera, and at nvargus-daemon",
}
_NETWORK = "see that the camera is on, and that this machine knows its name and reaches its port"


def remedy_of(scheme: str) -> str:
    """Return what to do where a camera of that kind of address gives no frames and did not say why."""
    return _BY_SCHEME.get(scheme, _NETWORK)
