"""Whether a trusted signer has signed a release: checked when it is offered, chosen and served.

A release that is offered or chosen needs a signer who is trusted today. One that serves goes on also when its signer's
key was revoked or taken away since: a device is not switched off by a list (docs/adr/0016). A root names the trusted
signers, in the document that provision has installed or a later one that came by pull; each process verifies it from
the root on. Standard library only.
"""

from __future__ import annotations

import base64
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime, timezone

from edge.bundle.checks import read_time
from edge.bundle.manifest import Manifest, decode_manifest
from edge.bundle.sign import DOWNGRADE, RELEASE, in_file, namespace_of, read_signature, verify
from edge.bundle.statement import SignedTrust, TrustDocument, decode_chain, encode_chain, latest_of
from edge.device.device import Device
from edge.device.durable import typed
from edge.device.layout import Layout
from edge.device.state import open_sealed, read_counters, seal
from edge.errors import DeployError
from edge.reading import read_file, text_of
from edge.version import RELEASED_AT

__all__ = [
    "Signed",
    "is_known",
    "problem_of_signature",
    "require_known",
    "require_trusted",
    "signers_text",
    "take_trust",
    "time_floor",
    "time_of",
    "trust_of",
    "verify_counting",
    "verify_offer",
]

_REVOKED, _EXPIRED = "verify.signature.revoked", "verify.signature.expired"


def trust_of(device: Device) -> TrustDocument | None:
    """Return the signers that a root names; None: this device has no root, and its lists name them.
    Raises `DeployError` `device.trust`, `verify.trust.*`, if that cannot be read: then no signer is trusted.
    """
    root = _root(device)
    chain = () if root is None else _known(device, root)
    return chain[-1].document if chain else None


@typed
def take_trust(device: Device, content: bytes) -> int:
    """Take a chain as far as it goes beyond what is known; return the version that counts then; 0: there is no root.
    Raises `DeployError` `verify.trust.version` for one that ends before what is known; as `trust_of`.
    """
    root = _root(device)
    if root is None:
        return 0
    with device.locked():
        known = _known(device, root)
        now, offered = known[-1].document, decode_chain(content)
        later = latest_of(offered, root=now.root, version=now.version)
        if later:
            before = (root, *(one.document.root for one in known))
            rotations = [one for last, one in zip(before, known, strict=False) if one.document.root != last]
            text = base64.b64encode(encode_chain([*rotations, *later])).decode()
            device.durable.put(device.layout.trust, seal({"chain": text}))
            return later[-1].document.version
        if offered[-1].document.version < now.version:
            raise DeployError(
                "verify.trust.version",
                f"what lies there ends before version {now.version} of who counts, which was seen here",
                hint="publish the latest chain: edge-deploy trust publish; if somebody has, look at the registry",
            )
        return now.version


def _root(device: Device) -> str | None:
    try:
        words = read_file(device.layout.trust_root, follows_links=True).decode("ascii").split()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(device, str(error)) from None
    return " ".join(words[:2])


def _known(device: Device, root: str) -> tuple[SignedTrust, ...]:
    """Return the chain that goes furthest: that which provision has installed, or that which came since."""
    files, layout = device.durable.files, device.layout
    try:
        first = latest_of(decode_chain(read_file(layout.first_trust, follows_links=True)), root=root)
        text = open_sealed(files.read(layout.trust))["chain"] if files.length(layout.trust) is not None else ""
        kept = latest_of(decode_chain(base64.b64decode(text)), root=root) if text else ()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(device, str(error)) from None
    return kept if kept and kept[-1].document.version > first[-1].document.version else first


def _unreadable(device: Device, why: str) -> DeployError:
    return DeployError(
        "device.trust",
        f"{device.layout.trust}: who counts cannot be read: {why}",
        hint="run edge-deploy provision TARGET --trust FILE with the latest chain; nothing is taken before",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A manifest whose signature was verified; `signer` is the name that the device knows the key by.

    `is_downgrade`: it was signed as a permission to go back. `withdrawn` says why its signer does not count any more:
    such a release goes on serving, and is never chosen.
    """

    manifest: Manifest
    content: bytes
    signature: bytes
    signer: str
    is_downgrade: bool = False
    withdrawn: DeployError | None = None

    @property
    def lengths(self) -> dict[str, int]:
        """Bytes of each blob that it consists of."""
        return {one.sha256: one.length_bytes for one in self.manifest.files}


def verify_offer(device: Device, content: bytes, signature: bytes) -> Signed:
    """Return what is offered to this device, if its signer counts now.
    Raises `DeployError` `verify.signature.*`, `verify.manifest.*`, `device.signers`, `device.counters`.
    """
    return _verified(device, content, signature, at=time_of(device))


def require_trusted(device: Device, release: str) -> Signed:
    """Return a kept release that may be chosen: its signer counts today, or did until the key expired.
    Raises `DeployError` `verify.signature.*`, `device.*`.
    """
    found = require_known(device, release)
    if found.withdrawn is not None:
        raise found.withdrawn
    return found


def require_known(device: Device, release: str) -> Signed:
    """Return a kept release that may go on serving: signed by a key that this device trusts, or trusted once.
    Raises `DeployError` `verify.signature.*` and `verify.manifest.*` where it was changed, or signed by a stranger;
    `device.*` where that is unknown.
    """
    content, signature = device.releases.manifest(release), device.releases.signature(release)
    try:
        return _as_accepted(device, content, signature)
    except DeployError as problem:
        if not problem.code.startswith("verify.signature."):
            raise
        with suppress(DeployError):
            return _verified(device, content, signature, at=_created_at(content), withdrawn=problem)
        raise


def is_known(device: Device, release: str) -> bool:
    """Return whether a kept release may go on serving; where that is unknown, it may."""
    return problem_of_signature(device, release) is None


def problem_of_signature(device: Device, release: str) -> DeployError | None:
    """Return why a kept release may not go on serving; None if it may, or if that is unknown."""
    try:
        require_known(device, release)
    except DeployError as problem:
        return problem if problem.code.startswith("verify.") else None
    return None


def time_of(device: Device) -> datetime:
    """Return the earliest time that it can be on this device; DeployError `device.counters`."""
    seen = read_counters(device.layout, device.durable.files)
    return time_floor(datetime.now(timezone.utc), newest_created_at=seen.newest_created_at)


def time_floor(clock: datetime, *, newest_created_at: str | None) -> datetime:
    """Return the latest of `clock`, of the newest manifest ever accepted, and of the release of this version.

    A module without a battery boots in 1970. A clock that is ahead refuses what it takes for expired, and leaves
    nothing behind: once it is set right, the same bundle is taken. DeployError `verify.manifest.field`, if one of the
    texts is no time.
    """
    known = [clock, read_time("released_at", RELEASED_AT)]
    if newest_created_at is not None:
        known.append(read_time("newest created_at", newest_created_at))
    return max(known)


def signers_text(device: Device) -> str:
    """Return the lines of those whose signatures count; DeployError `device.signers` if they cannot be read."""
    document = trust_of(device)
    if document is not None:
        return "\n".join(document.signers)
    try:
        return read_file(device.layout.allowed_signers, follows_links=True).decode("utf-8-sig", "replace")
    except OSError as error:
        raise DeployError(
            "device.signers",
            f"{device.layout.allowed_signers}: cannot be read: {error.strerror}",
            hint="run edge-deploy provision TARGET --signer KEY.pub, which writes it",
        ) from None


def verify_counting(
    device: Device, content: bytes, signature: bytes, *, namespace: str, at: datetime, is_once: bool = False
) -> str:
    """Return the signer of `content` for `namespace`; DeployError `verify.signature.*` unless they count.

    `is_once`: former signers count, too, and no key is revoked.
    """
    layout, document = device.layout, trust_of(device)
    signers, revoked = layout.allowed_signers, layout.revoked_keys
    lists = f"{layout.former_signers} or {signers}" if is_once else str(signers)
    with ExitStack() as files:
        if document is not None or is_once:
            signers = files.enter_context(in_file(_lines(layout, document, is_once=is_once).encode()))
        signer = verify(
            content,
            signature,
            allowed_signers=signers,
            revoked=revoked if revoked.exists() and not is_once else None,
            at=at,
            namespace=namespace,
            listed_in=lists if document is None else f"version {document.version} of who counts",
        )
    if document is not None and not is_once and read_signature(signature).public_key in document.revoked:
        raise DeployError(
            _REVOKED,
            f"the key of {signer!r} is revoked by version {document.version} of who counts",
            hint="sign with another key",
        )
    return signer


def _lines(layout: Layout, document: TrustDocument | None, *, is_once: bool) -> str:
    if document is None:
        return "\n".join(text_of(path) for path in (layout.former_signers, layout.allowed_signers))
    return "".join(f"{line}\n" for line in (*(document.former if is_once else ()), *document.signers))


def _as_accepted(device: Device, content: bytes, signature: bytes) -> Signed:
    try:
        now = time_of(device)
    except DeployError:  # the counters are damaged, which says nothing against what was taken before
        now = time_floor(datetime.now(timezone.utc), newest_created_at=None)
    try:
        return _verified(device, content, signature, at=now)
    except DeployError as error:
        if error.code != _EXPIRED:
            raise
        # A key that runs out takes nothing back: what it has signed was taken while it counted.
        return _verified(device, content, signature, at=_created_at(content))


def _verified(
    device: Device, content: bytes, signature: bytes, *, at: datetime, withdrawn: DeployError | None = None
) -> Signed:
    namespace = DOWNGRADE if namespace_of(signature) == DOWNGRADE else RELEASE
    signer = verify_counting(device, content, signature, namespace=namespace, at=at, is_once=withdrawn is not None)
    return Signed(
        manifest=decode_manifest(content),
        content=content,
        signature=signature,
        signer=signer,
        is_downgrade=namespace == DOWNGRADE,
        withdrawn=withdrawn,
    )


def _created_at(content: bytes) -> datetime:
    return read_time("created_at", decode_manifest(content).created_at)
