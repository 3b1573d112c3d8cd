"""Whether somebody whom this device trusts has signed a release: asked when it is offered, chosen and served.

Standard library only. A release that is offered or chosen needs a signer who counts today. One that serves goes on also
when its signer's key was revoked or taken away since: a device is not switched off by a list (docs/adr/0018).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from edge.bundle.checks import read_time
from edge.bundle.clock import time_floor
from edge.bundle.manifest import Manifest, decode_manifest
from edge.bundle.sign import DOWNGRADE, RELEASE, namespace_of, verify
from edge.device.counters import read_counters
from edge.device.device import Device
from edge.errors import DeployError

__all__ = ["Signed", "is_known", "problem_of_signature", "require_known", "require_trusted", "time_of", "verify_offer"]

_REVOKED, _EXPIRED = "verify.signature.revoked", "verify.signature.expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A manifest whose signature was verified; `signer` is the name that the device knows the key by.

    `is_downgrade`: it was signed as a permission to go back. `withdrawn` says why its signer does not count any more:
    such a release goes on serving, and is never chosen.
    """

    manifest: Manifest
    signer: str
    is_downgrade: bool
    withdrawn: DeployError | None = None


def verify_offer(device: Device, content: bytes, signature: bytes) -> Signed:
    """Return what is offered to this device, if its signer counts now.

    Raises:
        DeployError: `verify.signature.*`, `verify.manifest.*`, `device.signers`, `device.counters`.
    """
    return _verified(device, content, signature, device.layout.allowed_signers, at=time_of(device))


def require_trusted(device: Device, release: str) -> Signed:
    """Return a kept release that may be chosen: its signer counts today, or did until the key expired.

    Raises:
        DeployError: `verify.signature.*`, `device.*`.
    """
    found = require_known(device, release)
    if found.withdrawn is not None:
        raise found.withdrawn
    return found


def require_known(device: Device, release: str) -> Signed:
    """Return a kept release that may go on serving: signed by one whom this device trusts, or trusted once.

    Raises:
        DeployError: `verify.signature.*` and `verify.manifest.*` where it was changed, or signed by a stranger;
            `device.*` where that cannot be told.
    """
    content, signature = device.releases.manifest(release), device.releases.signature(release)
    try:
        return _as_accepted(device, content, signature)
    except DeployError as problem:
        if not problem.code.startswith("verify.signature."):
            raise
        return _once_known(device, content, signature, problem)


def is_known(device: Device, release: str) -> bool:
    """Return whether a kept release may go on serving; where that cannot be told, it may."""
    return problem_of_signature(device, release) is None


def problem_of_signature(device: Device, release: str) -> DeployError | None:
    """Return why a kept release may not go on serving; None if it may, or if that cannot be told."""
    try:
        require_known(device, release)
    except DeployError as problem:
        return problem if problem.code.startswith("verify.") else None
    return None


def time_of(device: Device) -> datetime:
    """Return the earliest time that it can be on this device, see `edge.bundle.clock`."""
    seen = read_counters(device.layout, device.durable.files)
    return time_floor(datetime.now(timezone.utc), newest_created_at=seen.newest_created_at).at


def _as_accepted(device: Device, content: bytes, signature: bytes) -> Signed:
    signers = device.layout.allowed_signers
    try:
        now = time_of(device)
    except DeployError:  # the counters are damaged, which says nothing against what was taken before
        now = time_floor(datetime.now(timezone.utc), newest_created_at=None).at
    try:
        return _verified(device, content, signature, signers, at=now)
    except DeployError as error:
        if error.code != _EXPIRED:
            raise
        # A key that runs out takes nothing back: what it has signed was taken while it counted.
        return _verified(device, content, signature, signers, at=_created_at(content))


def _once_known(device: Device, content: bytes, signature: bytes, problem: DeployError) -> Signed:
    former, at = device.layout.former_signers, _created_at(content)
    signers = device.layout.allowed_signers if problem.code == _REVOKED else former
    if signers == former and not former.exists():
        raise problem
    try:
        return _verified(device, content, signature, signers, at=at, is_list_used=False, withdrawn=problem)
    except DeployError:
        raise problem from None


def _verified(
    device: Device,
    content: bytes,
    signature: bytes,
    signers: Path,
    *,
    at: datetime,
    is_list_used: bool = True,
    withdrawn: DeployError | None = None,
) -> Signed:
    revoked = device.layout.revoked_keys
    namespace = DOWNGRADE if namespace_of(signature) == DOWNGRADE else RELEASE
    signer = verify(
        content,
        signature,
        allowed_signers=signers,
        revoked=revoked if is_list_used and revoked.exists() else None,
        at=at,
        namespace=namespace,
    )
    manifest = decode_manifest(content)
    return Signed(manifest=manifest, signer=signer, is_downgrade=namespace == DOWNGRADE, withdrawn=withdrawn)


def _created_at(content: bytes) -> datetime:
    return read_time("created_at", decode_manifest(content).created_at)
