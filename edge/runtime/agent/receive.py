"""Blobs into the store: resumed where they stopped, proven by their hash, and only those of the release on offer."""

from __future__ import annotations

from typing import Any

from edge.device.store import check_sha256
from edge.errors import DeployError
from edge.runtime.agent.session import Offer, Session
from edge.wire.ending import Nothing
from edge.wire.sending import BlobRequest, HaveAnswer, HaveRequest
from edge.wire.verbs import BLOB, HAVE, Verb

__all__ = ["blob", "have"]


def have(session: Session, request: HaveRequest) -> HaveAnswer:
    """Return the offset to go on from for each of the asked blobs that is not here."""
    offer = _offer(session, HAVE)
    asked = {one: _length_of(offer, one) for one in request.sha256}
    return HaveAnswer(missing=session.device.store.missing(asked))


def blob(session: Session, request: BlobRequest) -> Nothing:
    """Take the rest of a blob from `offset` on; each part that is in its file is acknowledged by a progress."""
    offer = _offer(session, BLOB)
    sha256, offset = check_sha256(request.sha256), request.offset
    length = _length_of(offer, sha256)
    store = session.device.store
    if store.has(sha256):
        return Nothing()
    _check_agreed(request, store.begin(sha256, length), length)
    while offset < length:
        content = session.talk.next_blob()
        if len(content) > length - offset:
            raise DeployError(
                "transfer.length", f"blob {sha256[:12]}: more than the {length} bytes of the manifest came"
            )
        store.write(sha256, offset, content)
        offset += len(content)
        session.talk.progress("blob", offset, length)
    session.talk.while_doing(lambda: store.finish(sha256, length), phase="hash", total_s=None)
    return Nothing()


def _offer(session: Session, verb: Verb[Any, Any]) -> Offer:
    session.check_locked(verb)
    if session.offer is None:
        raise DeployError("request.order", f"{verb.name}: no release has been offered")
    return session.offer


def _length_of(offer: Offer, sha256: str) -> int:
    length = offer.lengths.get(sha256)
    if length is None:
        raise DeployError("request.blob", f"{sha256[:12]} is no file of release {offer.manifest.release}")
    return length


def _check_agreed(request: BlobRequest, here: int, length: int) -> None:
    if request.length != length - request.offset or request.offset != here:
        raise DeployError(
            "transfer.offset",
            f"blob {request.sha256[:12]}: {here} of {length} bytes are here, the sender goes on from {request.offset}",
            evidence={"offset": here},
        )
