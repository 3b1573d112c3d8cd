"""Advice for a camera that gives no frames."""

from __future__ import annotations

from edge.errors import EndOfPicture, SourceError
from edge.media.address import Address

__all__ = ["IS_REFUSED", "IS_UNKNOWN", "end_of_camera", "remedy_of"]

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


def end_of_camera(address: Address, decoded: int) -> SourceError:
    """Return what a camera has ended with, after so many frames."""
    if address.scheme in ("http", "https") and decoded == 1:
        return EndOfPicture(f"{address.shown}: the camera gives one picture for each request")
    if address.scheme in ("http", "https") and decoded == 0:
        return SourceError(f"{address.shown}: what the server sends ended without a picture in it")
    return SourceError(f"{address.shown}: the camera ended the stream")
