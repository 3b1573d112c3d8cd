"""Makes trust documents, and puts them where devices look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from edge.bundle.sign import sign
from edge.bundle.statement import TRUST, SignedTrust, TrustDocument, decode_chain, encode_document
from edge.deploy.provision.keys import PublicKey, read_public_key
from edge.errors import DeployError
from edge.reading import read_file

__all__ = ["TrustChange", "first_chain", "next_chain", "public_of", "read_chain"]

_TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustChange:
    """Changes of the next trust document: keys that come, by namespace, keys that go, revoked keys."""

    added: Sequence[tuple[PublicKey, tuple[str, ...]]] = ()
    removed: Sequence[PublicKey] = ()
    revoked: Sequence[PublicKey] = ()

    def lines(self, before: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the lines of those who count after `before`, and of those who go."""
        gone = {key.base64 for key in self.removed}
        fresh = {key.base64: key.signer_line(*namespaces) for key, namespaces in self.added}
        kept = [line for line in before if not gone & set(line.split()) and not fresh.keys() & set(line.split())]
        return (*kept, *fresh.values()), tuple(line for line in before if gone & set(line.split()))


def read_chain(path: Path) -> tuple[SignedTrust, ...]:
    """Return the chain in a file, unverified, at least one document of which can be read; DeployError `bundle.file`."""
    try:
        chain = decode_chain(read_file(path, follows_links=True))
        chain[-1].document  # noqa: B018 - raises if it cannot be read
        return chain
    except OSError as error:
        why = error.strerror or str(error)
    except DeployError as error:
        why = error.problem
    raise DeployError(
        "bundle.file", f"{path}: is not who counts: {why}", hint="give a file that edge-deploy trust sign has written"
    )


def public_of(key: Path) -> str:
    """Return kind and base64 of a key's public half, which lies beside it or is it."""
    path = key if key.suffix == ".pub" else key.with_name(f"{key.name}.pub")
    found = read_public_key(path)
    return f"{found.kind} {found.base64}"


def first_chain(change: TrustChange, *, root: Path, now: datetime) -> tuple[SignedTrust, ...]:
    """DeployError `bundle.key`, `request.key`."""
    signers, _ = change.lines(())
    revoked = tuple(key.base64 for key in change.revoked)
    document = TrustDocument(
        version=1, created_at=now.strftime(_TIME), root=public_of(root), signers=signers, revoked=revoked
    )
    return (_signed(document, root),)


def next_chain(
    chain: Sequence[SignedTrust], change: TrustChange, *, root: Path, now: datetime, new_root: Path | None = None
) -> tuple[SignedTrust, ...]:
    """Return a chain with one document more, signed by the present root; `new_root` takes over where given.

    DeployError `request.key` if `root` is not the root of the last document, or what is removed does not count there;
    `bundle.key`.
    """
    last = chain[-1].document
    if public_of(root) != last.root:
        raise DeployError(
            "request.key", f"{root} is not the root of version {last.version}", hint="give the root key: --root KEY"
        )
    counted = {word for line in last.signers for word in line.split()}
    if strangers := [key.owner for key in change.removed if key.base64 not in counted]:
        raise DeployError(
            "request.key",
            f"{', '.join(strangers)}: does not count in version {last.version}, so it cannot be removed",
            hint="give a key that counts there; --revoke also takes others",
        )
    signers, gone = change.lines(last.signers)
    follower = root if new_root is None else new_root
    document = TrustDocument(
        version=last.version + 1,
        created_at=now.strftime(_TIME),
        root=public_of(follower),
        signers=signers,
        former=tuple(dict.fromkeys((*last.former, *gone))),
        revoked=tuple(dict.fromkeys((*last.revoked, *(key.base64 for key in change.revoked)))),
    )
    rotations = [one for one in chain if len(one.signatures) > 1]
    return (*rotations, _signed(document, *dict.fromkeys((root, follower))))


def _signed(document: TrustDocument, *roots: Path) -> SignedTrust:
    content = encode_document(document)
    return SignedTrust(content, tuple(sign(content, root, TRUST) for root in roots))
