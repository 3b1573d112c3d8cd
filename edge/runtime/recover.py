"""`edge-runtime recover --boot`: before anything serves, what a power cut left becomes whole. Standard library only."""

from __future__ import annotations

import logging

from edge.device.device import Device
from edge.device.moment import Moment, this_moment
from edge.device.recovery import Recovery, recover
from edge.device.state import Phase, State
from edge.errors import DeployError
from edge.runtime.on_record import record, recorded_failure
from edge.runtime.soundness import is_sound, require_files

__all__ = ["recover_at_boot"]

_log = logging.getLogger(__name__)


def recover_at_boot(device: Device, *, moment: Moment | None = None) -> Recovery:
    """Bring switch and state together, looking at every byte that is computed with.

    A proven release whose engine is damaged stays current: at its start the engine is found out and built anew, which
    is better than an older release.

    Raises:
        DeployError: only when no valid release could be made current.
    """
    kept = _proven(device)

    def is_valid(release: str) -> bool:
        if release != kept:
            return is_sound(device, release)
        try:
            require_files(device, release)
        except DeployError as problem:
            _log.error("release is damaged release=%s problem=%s", release, problem)
            return False
        return True

    moment, before = moment or this_moment(), _as_found(device)
    with recorded_failure(device, "recover", release=device.releases.current(), moment=moment):
        recovery = recover(device, moment=moment, is_valid=is_valid)
    if recovery.problem is not None:
        _log.error("recovery incomplete problem=%s", recovery.problem)
        record(device, "recover", f"incomplete: {recovery.problem}", release=recovery.release, moment=moment)
    elif _as_found(device) != before:  # a boot that finds all in order leaves no line: each is a write to the flash
        record(device, "recover", recovery.note, release=recovery.release, moment=moment)
    return recovery


def _as_found(device: Device) -> tuple[str | None, State | None]:
    try:
        return device.releases.current(), device.state()
    except DeployError:
        return device.releases.current(), None


def _proven(device: Device) -> str | None:
    try:
        return device.releases.current() if device.state().phase is Phase.IDLE else None
    except DeployError:
        return None
