"""Blobs into the store: only of the release on offer, only from where they stopped, and no longer than it says."""

import pytest

from edge.runtime.agent.serve import blob, have
from edge.transport.channel import Blob
from edge.wire.release import BlobRequest, HaveRequest
from tests.support.agent_session import AgentSession
from tests.support.raised import code_of


@pytest.fixture
def file(root):
    return root.bundle(model=b"0123456789").manifest.files[0]


@pytest.fixture
def session(root):
    session = AgentSession(root.device).hold()
    session.put(root.bundle(model=b"0123456789"))
    return session


def request(file, *, offset=0, length=10):
    return BlobRequest(sha256=file.sha256, offset=offset, length=length)


def test_each_part_that_is_written_is_acknowledged_and_the_whole_is_in_the_store(session, file):
    for part in (b"0123", b"456789"):
        session.client.send(Blob(part))

    blob(session, request(file))

    progress = [one.values for one in session.heard() if one.verb == "progress" and one.values["phase"] == "blob"]
    assert [(one["done"], one["total"]) for one in progress] == [(4, 10), (10, 10)]
    assert session.device.store.verify(file.sha256)


def test_more_than_the_manifest_says_is_refused_and_not_written(session, file):
    session.client.send(Blob(b"0123456789+"))

    assert code_of(blob, session, request(file)) == "transfer.length"
    assert have(session, HaveRequest(sha256=(file.sha256,))).missing == {file.sha256: 0}


@pytest.mark.parametrize(("offset", "length"), [(4, 6), (0, 9), (0, 11)])
def test_a_blob_that_goes_on_from_elsewhere_or_to_elsewhere_is_refused(session, file, offset, length):
    session.client.send(Blob(b"x" * length))
    assert code_of(blob, session, request(file, offset=offset, length=length)) == "transfer.offset"


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (have, HaveRequest(sha256=("0" * 64,))),
        (blob, BlobRequest(sha256="0" * 64, offset=0, length=10)),
    ],
)
def test_a_blob_of_no_release_on_offer_is_refused(session, function, values):
    assert code_of(function, session, values) == "request.blob"


def test_without_the_lock_or_an_offer_nothing_is_taken(root, session, file):
    unlocked = AgentSession(root.device)
    unlocked.offer = session.offer
    session.offer = None

    for asking in (unlocked, session):
        assert code_of(have, asking, HaveRequest(sha256=())) == "request.order"
        assert code_of(blob, asking, request(file)) == "request.order"
