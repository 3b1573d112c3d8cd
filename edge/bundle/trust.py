"""Whose signatures count, signed by a root key that signs nothing else (docs/adr/0016). Standard library only.

A chain is what travels: the documents that handed over from one root to the next, and the latest one. Each is signed by
the root of the one before it, and by its own.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from edge.bundle.checks import canonical, check_between, read_object, read_time
from edge.bundle.sign import in_file, verify
from edge.errors import DeployError

__all__ = [
    "MAX_CHAIN_BYTES",
    "TRUST",
    "SignedTrust",
    "TrustDocument",
    "decode_chain",
    "encode_chain",
    "encode_document",
    "latest_of",
]

TRUST = "edge-trust"
"""Namespace of the signatures of a root."""

MAX_CHAIN_BYTES = 128 * 1024
_FORMAT, _CHAIN = "edge.trust/1", "edge.trust-chain/1"
_KEY = re.compile(r"[a-z0-9@.-]{1,64} [A-Za-z0-9+/]{60,2000}={0,2}")
_LINE = re.compile(r"[ -~]{1,4000}")
_MOST = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustDocument:
    """The trusted signers; well formed if it exists. `version` rises by one; `created_at`: RFC 3339, UTC seconds.

    `root`: kind and base64 of the key that signs the next one.
    `signers`: lines of an allowed-signers file, whose namespaces say what each may sign.
    `former`: lines of those that counted once: what they signed goes on serving, and nothing of theirs is taken.
    `revoked`: base64 of keys that count no more, whatever lists them.
    """

    version: int
    created_at: str
    root: str
    signers: tuple[str, ...]
    former: tuple[str, ...] = ()
    revoked: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_between("version", self.version, 1, 2**31, whole=True)
        read_time("created_at", self.created_at)
        for name in ("signers", "former", "revoked"):
            values = getattr(self, name)
            if not isinstance(values, tuple) or len(values) > _MOST:
                raise _wrong(f"{name} is no list of at most {_MOST}")
            if not all(isinstance(one, str) and _LINE.fullmatch(one) for one in values):
                raise _wrong(f"{name} has something that is no line")
        if not isinstance(self.root, str) or not _KEY.fullmatch(self.root):
            raise _wrong("root is no public key")


@dataclass(frozen=True, slots=True)
class SignedTrust:
    """A document as it was signed, and the signatures over it."""

    content: bytes
    signatures: tuple[bytes, ...]

    @property
    def document(self) -> TrustDocument:
        """The content, unverified; DeployError `verify.trust.field`, `verify.manifest.*`."""
        values = read_object(self.content, max_bytes=MAX_CHAIN_BYTES)
        if values.pop("format", None) != _FORMAT:
            raise _wrong(f"the format is not {_FORMAT}")
        try:
            lists = {name: tuple(values[name]) for name in ("signers", "former", "revoked")}
            return TrustDocument(**{**values, **lists})
        except (TypeError, KeyError) as error:
            raise _wrong(str(error)[:200]) from None

    def is_signed_by(self, root: str) -> bool:
        """Return whether one of the signatures is that of a key, by ssh-keygen."""
        with in_file(f'root namespaces="{TRUST}" {root}\n'.encode()) as roots:
            return any(self._counts(one, roots) for one in self.signatures)

    def _counts(self, signature: bytes, roots: Path) -> bool:
        now = datetime.now(timezone.utc)  # a root has no end
        try:
            verify(self.content, signature, allowed_signers=roots, revoked=None, at=now, namespace=TRUST)
        except DeployError as error:
            if error.code.startswith("verify.signature."):
                return False
            raise
        return True


def encode_document(document: TrustDocument) -> bytes:
    """Return its one spelling, which is what gets signed."""
    return canonical({"format": _FORMAT, **asdict(document)})


def encode_chain(chain: Sequence[SignedTrust]) -> bytes:
    told = [
        {
            "document": base64.b64encode(one.content).decode(),
            "signatures": [base64.b64encode(s).decode() for s in one.signatures],
        }
        for one in chain
    ]
    return canonical({"format": _CHAIN, "chain": told})


def decode_chain(content: bytes) -> tuple[SignedTrust, ...]:
    """Return the chain in `content`, never empty, unverified; DeployError `verify.trust.field`, `verify.manifest.*`."""
    values = read_object(content, max_bytes=MAX_CHAIN_BYTES)
    try:
        if values["format"] != _CHAIN or not values["chain"]:
            raise ValueError(_CHAIN)
        return tuple(
            SignedTrust(
                base64.b64decode(one["document"], validate=True),
                tuple(base64.b64decode(signature, validate=True) for signature in one["signatures"][:2]),
            )
            for one in values["chain"]
        )
    except (KeyError, TypeError, ValueError):
        raise _wrong("it is no chain of documents") from None


def latest_of(chain: Sequence[SignedTrust], *, root: str, version: int = 0) -> tuple[SignedTrust, ...]:
    """Return the documents after `version`, verified from `root`; DeployError `verify.trust.signature`, `.field`."""
    found: list[SignedTrust] = []
    for one in chain:
        document = one.document
        if document.version <= version:
            continue
        if not one.is_signed_by(root) or (document.root != root and not one.is_signed_by(document.root)):
            raise DeployError(
                "verify.trust.signature",
                f"version {document.version} of who counts is not signed by the root that this device knows"
                + ("" if document.root == root else " and by the one that is to follow it"),
                hint="sign it with that key: edge-deploy trust sign; or trust another root: "
                "edge-deploy provision TARGET --trust FILE",
            )
        found.append(one)
        root, version = document.root, document.version
    return tuple(found)


def _wrong(why: str) -> DeployError:
    return DeployError("verify.trust.field", f"who counts: {why}", hint="make it with edge-deploy trust sign")
