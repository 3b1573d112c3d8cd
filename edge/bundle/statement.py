"""Signed statements beside a release: which one a ring is to run (docs/adr/0019), and whose signatures count.

Standard library only. A statement of a ring is signed by a key that may promote, in a namespace of its own; its
registry can neither make nor change one. Its serial never sinks on a device, and it expires, so that a registry that
says nothing new is noticed.
"""

from __future__ import annotations

import base64
import fnmatch
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from edge.bundle.bounds import ahead_of, most_sequence
from edge.bundle.checks import canonical, check_between, check_text, read_object, read_time
from edge.bundle.sign import fingerprint_of, in_file, verify
from edge.errors import DeployError

__all__ = [
    "MAX_CHAIN_BYTES",
    "MAX_STATEMENT_BYTES",
    "RING",
    "TRUST",
    "RingStatement",
    "SignedTrust",
    "TrustDocument",
    "asks_for_statements",
    "decode_chain",
    "decode_statement",
    "encode_chain",
    "encode_document",
    "encode_statement",
    "latest_of",
    "names_signer",
]

RING = "edge-ring"
"""Namespace of the signatures over statements."""

MAX_STATEMENT_BYTES = 4 * 1024
_RING_FORMAT = "edge.ring/1"
_NAME = r"[a-z0-9-]{1,32}"
_NAMESPACES = re.compile(r'namespaces="([^"]*)"', re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RingStatement:
    """Statement of the release that a ring of a channel is to run; one that exists is well formed.

    `release`, `sequence` (in its channel) None: nothing, whatever the ring had. The same content may be signed again.
    `serial`: never sinks; at most the second in which it was made, and a day.
    `created_at`, `valid_until`: RFC 3339 in UTC, whole seconds.
    """

    channel: str
    ring: str
    release: str | None
    sequence: int | None
    serial: int
    created_at: str
    valid_until: str

    def __post_init__(self) -> None:
        check_text("channel", self.channel, _NAME)
        check_text("ring", self.ring, _NAME)
        if (self.release is None) != (self.sequence is None):
            raise _no_statement("it names a release without a sequence, or the other way round")
        if self.release is not None:
            check_text("release", self.release, r"[0-9a-f]{12}")
            check_between("sequence", self.sequence, 0, 2**53, whole=True)
        check_between("serial", self.serial, 1, most_sequence(read_time("created_at", self.created_at)), whole=True)
        if read_time("valid_until", self.valid_until) <= read_time("created_at", self.created_at):
            raise _no_statement("it ends before it begins")

    @property
    def tag(self) -> str:
        """The tag that devices of the ring look at; no channel and no ring has a dot."""
        return f"{self.channel}-{self.ring}"

    def unfit(self, *, seen_serial: int, at: datetime, is_clock_sure: bool) -> Iterator[DeployError]:
        """Yield why a device that has seen `seen_serial` does not follow it at the time `at`; its signature counts."""
        if self.serial < seen_serial:
            yield DeployError(
                "verify.ring.serial",
                f"{self.tag}: statement {self.serial} is older than {seen_serial}, which was seen here",
                hint="promote again: edge-deploy promote gives a higher serial; if it was not, look at the registry",
                evidence={"serial": self.serial, "seen": seen_serial},
            )
        yield from ahead_of(self.created_at, at=at, is_clock_sure=is_clock_sure)
        if at >= read_time("valid_until", self.valid_until):
            yield DeployError(
                "verify.ring.expired",
                f"{self.tag}: statement {self.serial} ended at {self.valid_until}; what serves goes on",
                hint="promote it again; if that was done, the registry hides it, or this clock is ahead",
                evidence={"valid_until": self.valid_until, "serial": self.serial},
            )

    def misses(self, *, channel: str, release: str, sequence: int) -> DeployError | None:
        """Return why a release is not the one of this ring; None: it is."""
        if (channel, release, sequence) == (self.channel, self.release, self.sequence):
            return None
        named = "no release" if self.release is None else f"release {self.release}, sequence {self.sequence}"
        return DeployError(
            "verify.ring.release",
            f"{self.tag}: the statement names {named}, what lies there is {release}, sequence {sequence} of {channel}",
            hint="look who writes to the registry; edge-deploy promote puts both there in one go",
        )


def encode_statement(statement: RingStatement) -> bytes:
    """Return its one spelling, which is what gets signed."""
    return canonical({"format": _RING_FORMAT, **asdict(statement)})


def decode_statement(content: bytes) -> RingStatement:
    """Return the statement in `content`; DeployError `verify.ring.field`, `verify.manifest.*`."""
    values = read_object(content, max_bytes=MAX_STATEMENT_BYTES)
    if values.pop("format", None) != _RING_FORMAT:
        raise _no_statement(f"the format is not {_RING_FORMAT}")
    try:
        return RingStatement(**values)
    except TypeError as error:
        raise _no_statement(str(error)[:200]) from None


def asks_for_statements(allowed_signers: str) -> bool:
    """Return whether a list of signers has a key that may state what rings run: then each release needs a statement."""
    return names_signer(allowed_signers, RING)


def names_signer(allowed_signers: str, namespace: str) -> bool:
    """Return whether a line of a list of signers names what its key may sign, and `namespace` is among it."""
    lines = (line for line in allowed_signers.splitlines() if not line.lstrip().startswith("#"))
    named = (match[1].split(",") for line in lines if (match := _NAMESPACES.search(line)))
    return any(fnmatch.fnmatchcase(namespace, pattern) for patterns in named for pattern in patterns)


def _no_statement(why: str) -> DeployError:
    return DeployError("verify.ring.field", f"the statement of a ring: {why}", hint="make it with edge-deploy promote")


TRUST = "edge-trust"
"""Namespace of the signatures of a root."""

MAX_CHAIN_BYTES = 128 * 1024
_TRUST_FORMAT, _CHAIN = "edge.trust/1", "edge.trust-chain/1"
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
                raise _no_trust(f"{name} is no list of at most {_MOST}")
            if not all(isinstance(one, str) and _LINE.fullmatch(one) for one in values):
                raise _no_trust(f"{name} has something that is no line")
        if not isinstance(self.root, str) or not _KEY.fullmatch(self.root):
            raise _no_trust("root is no public key")

    @property
    def counting(self) -> tuple[str, ...]:
        """The lines of `signers` whose keys are not revoked."""
        return tuple(line for line in self.signers if not set(self.revoked) & set(line.split()))

    def lets(self, fingerprint: str, namespace: str) -> bool:
        """Return whether what a key signs for `namespace` counts; where no promoter is named, no statement is read."""
        if namespace == RING and not asks_for_statements("\n".join(self.signers)):
            return True
        keys = (_KEY.search(line) for line in self.counting if names_signer(line, namespace))
        return fingerprint in (fingerprint_of(key[0].split()[1]) for key in keys if key)


@dataclass(frozen=True, slots=True)
class SignedTrust:
    """A document as it was signed, and the signatures over it."""

    content: bytes
    signatures: tuple[bytes, ...]

    @property
    def document(self) -> TrustDocument:
        """The content, unverified; DeployError `verify.trust.field`, `verify.manifest.*`."""
        values = read_object(self.content, max_bytes=MAX_CHAIN_BYTES)
        if values.pop("format", None) != _TRUST_FORMAT:
            raise _no_trust(f"the format is not {_TRUST_FORMAT}")
        try:
            lists = {name: tuple(values[name]) for name in ("signers", "former", "revoked")}
            return TrustDocument(**{**values, **lists})
        except (TypeError, KeyError) as error:
            raise _no_trust(str(error)[:200]) from None

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
    return canonical({"format": _TRUST_FORMAT, **asdict(document)})


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
        raise _no_trust("it is no chain of documents") from None


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


def _no_trust(why: str) -> DeployError:
    return DeployError("verify.trust.field", f"who counts: {why}", hint="make it with edge-deploy trust sign")
