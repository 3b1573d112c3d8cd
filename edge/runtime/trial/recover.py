"""`edge-runtime recover --boot`: before anything serves, what a power cut left becomes whole. Standard library only."""

from __future__ import annotations

import logging

from edge.device.device import Device
from edge.device.moment import Moment, this_moment
from edge.device.recovery import Recovery, recover
from edge.device.state import Phase, State
from edge.errors import DeployError
from edge.runtime.trial.audit_entries import record, recorded_failure
from edge.runtime.trial.soundness import is_sound, require_files
from edge.runtime.trial.trust import is_known, require_known, require_trusted

__all__ = ["recover_at_boot"]

_log = logging.getLogger(__name__)


def recover_at_boot(device: Device, *, moment: Moment | None = None) -> Recovery:
    """Bring switch and state together, looking at every byte that is computed with, and at who signed it.

    A proven release whose engine is damaged stays current: at its start the engine is found out and built anew, which
    is better than an older release. So does one whose key was revoked since; but none of that kind is chosen instead.

    Raises:
        DeployError: only when no valid release could be made current.
    """
    kept = _proven(device)

    def is_valid(release: str) -> bool:
        if release != kept:
            return is_sound(device, release) and is_known(device, release)
        try:
            require_files(device, release)
        except DeployError as problem:
            _log.error("release is damaged release=%s problem=%s", release, problem)
            return False
        return is_known(device, release)

    moment, before = moment or this_moment(), _as_found(device)
    with recorded_failure(device, "recover", release=device.releases.current(), moment=moment):
        recovery = recover(
            device, moment=moment, is_valid=is_valid, check_trust=lambda release: require_trusted(device, release)
        )
    if recovery.problem is not None:
        _log.error("recovery incomplete problem=%s", recovery.problem)
        record(device, "recover", f"incomplete: {recovery.problem}", release=recovery.release, moment=moment)
    elif _as_found(device) != before:  # a boot that finds all in order leaves no line: each is a write to the flash
        record(device, "recover", recovery.note, release=recovery.release, moment=moment)
    if recovery.release is not None and (doubt := _doubt_of(device, recovery.release)) is not None:
        _log.error("release serves and is not trusted release=%s problem=%s", recovery.release, doubt)
        record(device, "recover", f"serves all the same: {doubt}", release=recovery.release, moment=moment)
    return recovery


def _doubt_of(device: Device, release: str) -> str | None:
    try:
        doubt = require_known(device, release).withdrawn
    except DeployError as error:
        doubt = error
    return None if doubt is None else f"{doubt.code}: {doubt.problem}"


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
