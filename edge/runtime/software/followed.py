"""Which software besides provision's may take a turn as agent or pull now. Standard library only."""

from __future__ import annotations

from edge.bundle.software import software_of
from edge.device.bad import read_bad
from edge.device.device import Device
from edge.device.lock import PushLock
from edge.device.software import Installation
from edge.device.state import Phase
from edge.errors import DeployError
from edge.runtime.software.binding import brought_by, installation_of
from edge.runtime.trial.trust import require_trusted

__all__ = ["followed"]


def followed(device: Device, *, may_be_busy: bool = False) -> Installation | None:
    """Return the software of the release that serves, proven and undoubted; None: there is none, or not now.

    Not while anything is on trial, being undone or failed, nor where its signer does not count today: whoever takes the
    next release then is what provision installed. `may_be_busy`: also while a push is at work, which holds the lock.
    Whether it is whole is for who hands over to it.
    """
    try:
        return _followed(device, may_be_busy)
    except (DeployError, OSError, ValueError):  # what cannot be read speaks for nobody
        return None


def _followed(device: Device, may_be_busy: bool) -> Installation | None:
    state, release, files = device.state(), device.releases.current(), device.durable.files
    if files.length(device.layout.state) is None:
        return None  # what serves without one was not proven here
    if release is None or state.phase is not Phase.IDLE or release in read_bad(device.layout, files):
        return None
    if brought_by(device, release) is None:
        return None
    if not may_be_busy and PushLock(device.layout).holder() is not None:
        return None
    return installation_of(software_of(require_trusted(device, release).manifest))
