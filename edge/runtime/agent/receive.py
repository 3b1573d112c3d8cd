"""Blobs into the store: resumed where they stopped, proven by their hash, and only those of the release on offer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edge.device.store import check_sha256
from edge.errors import DeployError
from edge.runtime.agent.conversation import Request, number_of, text_of
from edge.runtime.agent.session import Offer, Session

__all__ = ["blob", "have"]

_MAX_LENGTH_BYTES = 2**50


def have(session: Session, request: Request) -> Mapping[str, Any]:
    """Return the offset to go on from for each of the asked blobs that is not here."""
    offer = _offer(session, request)
    asked = request.values.get("sha256")
    if not isinstance(asked, list) or not all(isinstance(one, str) for one in asked):
        raise DeployError("request.value", "have: expected sha256 as a list of texts")
    return {"missing": session.device.store.missing({one: _length_of(offer, one) for one in asked})}


def blob(session: Session, request: Request) -> Mapping[str, Any]:
    """Take the rest of a blob from `offset` on; each part that is in its file is acknowledged by a progress."""
    offer = _offer(session, request)
    sha256 = check_sha256(text_of(request, "sha256"))
    length = _length_of(offer, sha256)
    offset = number_of(request, "offset", most=_MAX_LENGTH_BYTES)
    store = session.device.store
    if store.has(sha256):
        return {}
    _check_agreed(sha256, offset, store.begin(sha256, length), length, request)
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
    return {}


def _offer(session: Session, request: Request) -> Offer:
    session.check_locked(request)
    if session.offer is None:
        raise DeployError("request.order", f"{request.verb}: no release has been offered")
    return session.offer


def _length_of(offer: Offer, sha256: str) -> int:
    length = offer.lengths.get(sha256)
    if length is None:
        raise DeployError("request.blob", f"{sha256[:12]} is no file of release {offer.manifest.release}")
    return length


def _check_agreed(sha256: str, offset: int, here: int, length: int, request: Request) -> None:
    if number_of(request, "length", most=_MAX_LENGTH_BYTES) != length - offset or offset != here:
        raise DeployError(
            "transfer.offset",
            f"blob {sha256[:12]}: {here} of {length} bytes are here, the sender goes on from {offset}",
            evidence={"offset": here},
        )
