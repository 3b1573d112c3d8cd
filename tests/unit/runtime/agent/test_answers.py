"""One connection from its hello to its end, asked all at once: what is answered, and what the audit logs say of it."""

import errno
import io
import os
import threading

import pytest

from edge.device.device import Device
from edge.device.durable import Durable, Files
from edge.device.lock import PushLock
from edge.runtime.agent import serve as serving
from edge.transport.channel import Message, PipeChannel, encode_frame, read_frame
from edge.wire.peer import PROTOCOL, Nothing
from edge.wire.release import ReleaseAnswer
from tests.support.audit import audit_lines
from tests.support.faults import FaultyFiles
from tests.support.units import FakeUnits

LONG_S = 30.0  # for what never comes
LOCK = Message("lock", {"who": "mina", "why": "a test"})


@pytest.fixture
def device(root):
    return root.device


def answers(device, *requests):
    """Serve a client that says its hello and all of this, and ends; return what it was told after the hello."""
    to_agent, from_client = os.pipe()
    to_client, from_agent = os.pipe()
    said = [Message("hello", {"protocol": PROTOCOL}), *requests]
    os.write(from_client, b"".join(map(encode_frame, said)))
    os.close(from_client)
    agent = threading.Thread(
        target=serving.serve,
        args=(PipeChannel(to_agent, from_agent), device, FakeUnits()),
        kwargs={"origin": "10.0.0.7"},
        daemon=True,
    )
    agent.start()
    agent.join(30)
    assert not agent.is_alive(), "the client has ended, the agent has not"
    with os.fdopen(to_client, "rb") as heard:
        content = io.BytesIO(heard.read())
    return list(frames(content))[1:]


def frames(content):
    while content.tell() < len(content.getbuffer()):
        yield read_frame(content.read)


def answering(monkeypatch, verb, function):
    monkeypatch.setattr(serving, "_ANSWERS", {**serving._ANSWERS, verb: function})


def told(device):
    return [(line["what"], line["result"].partition(":")[0]) for line in audit_lines(device.layout)]


def codes(found):
    return [one.values.get("code", one.verb) for one in found]


def test_the_lock_is_free_before_the_client_learns_that_the_connection_has_ended(device, monkeypatch):
    holders, close = [], PipeChannel.close

    def look_and_close(channel):
        holders.append(PushLock(device.layout).holder())
        close(channel)

    monkeypatch.setattr(PipeChannel, "close", look_and_close)

    assert codes(answers(device, LOCK)) == ["ok"]

    assert holders
    assert set(holders) == {None}


def test_what_was_done_is_written_down_and_of_what_was_only_looked_at_nothing(device):
    assert codes(answers(device, LOCK, Message("facts", {}), Message("ping", {}))) == ["ok", "ok", "ok"]
    assert told(device) == [("lock", "ok")]


def test_what_was_refused_is_answered_with_its_code_and_written_down(device):
    found = answers(device, Message("gc", {"id": 3}), Message("have", {"sha256": [], "id": 4}))

    assert codes(found) == ["request.order", "request.order"]
    assert [one.values["id"] for one in found] == [3, 4]
    assert told(device) == [("gc", "request.order"), ("have", "request.order")]
    assert (device.layout.var / "audit-refused.jsonl").exists()


def test_what_changes_something_is_in_the_log_of_changes_also_if_it_was_refused(device, monkeypatch):
    def change(session, request):
        session.device.layout.current.symlink_to("releases/000000000000")
        return Nothing()

    answering(monkeypatch, "gc", change)
    answers(device, Message("gc", {}))

    assert '"what": "gc"' in device.layout.audit.read_text()


def test_a_fault_of_ours_is_answered_and_written_down_and_told_to_people_with_its_place(device, monkeypatch, capsys):
    def fail(session, request):
        raise RuntimeError("our fault")

    answering(monkeypatch, "gc", fail)
    found = answers(device, Message("gc", {}), Message("ping", {}))

    assert codes(found) == ["device.internal", "ok"]
    assert "our fault" in found[0].values["problem"]
    assert told(device) == [("gc", "device.internal")]
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "our fault" in shown


def test_an_answer_that_no_frame_holds_is_an_error_and_not_the_end(device, monkeypatch):
    answering(monkeypatch, "gc", lambda session, request: ReleaseAnswer(release="x" * 1_000_000))
    assert codes(answers(device, Message("gc", {}), Message("ping", {}))) == ["device.answer", "ok"]


def test_a_client_that_ends_during_its_request_is_written_down(device, monkeypatch):
    over = threading.Event()

    def work(session, request):
        return session.talk.while_doing(lambda: over.wait(LONG_S), phase="clean", total_s=None)

    answering(monkeypatch, "gc", work)
    try:
        assert answers(device, Message("gc", {})) == []
    finally:
        over.set()
    assert told(device) == [("gc", "the connection ended")]


def test_a_refusal_that_the_disk_does_not_take_says_so_beside_its_own_code(root):
    full = FaultyFiles(Files(), at=0, number=errno.ENOSPC, lasts=True, which={"append"})

    (answer,) = answers(Device(root.layout, Durable(full)), Message("gc", {}))

    assert answer.values["code"] == "request.order"
    assert "audit" in answer.values["evidence"]
