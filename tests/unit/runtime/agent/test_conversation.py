"""The agent's side of the wire: what a client hears, and what becomes of work when it interrupts or ends."""

import signal
import threading
import time

import pytest

from edge.errors import DeployError
from edge.runtime.agent import session as conversation
from edge.runtime.agent.session import ConnectionEnded, Conversation
from edge.transport.channel import Blob, Message
from edge.wire.peer import PROTOCOL, Nothing
from tests.support.agent_session import hang_up, piped

LONG_S = 30.0  # for what never comes


@pytest.fixture
def ends():
    agent, client = piped()
    yield agent, client
    agent.close()
    client.close()


@pytest.fixture
def client(ends):
    return ends[1]


@pytest.fixture
def talk(ends):
    return Conversation(ends[0], silence_s=10.0)


class Turns:
    """The time, as a loop reads it: at least once a turn."""

    MOST = 200

    def __init__(self):
        self.count = 0
        self.are_many = threading.Event()

    def monotonic(self):
        self.count += 1
        if self.count > self.MOST:
            self.are_many.set()
        return time.monotonic()


def doing(talk, work):
    return talk.while_doing(work, phase="verify", total_s=None)


def heard(client, timeout_s=9.0):
    frame = client.receive(timeout_s=timeout_s)
    return frame.verb, frame.values.get("id"), frame.values.get("code")


@pytest.mark.parametrize("values", [{}, {"protocol": PROTOCOL}])
def test_who_does_not_begin_with_a_hello_is_told_so(talk, values):
    with pytest.raises(DeployError, match="expected hello, got lock") as caught:
        talk.meet(Message("lock", values))
    assert caught.value.code == "request.order"


def test_the_end_of_the_clients_session_is_not_that_of_work_that_goes_on_alone(talk, endings):
    hang_up()
    assert endings == [signal.SIGTERM, signal.SIGHUP]

    talk.go_on_alone()
    hang_up()
    assert endings == [signal.SIGTERM, signal.SIGHUP]


def test_between_the_parts_of_a_blob_a_ping_is_answered_and_a_request_refused(talk, client):
    for frame in (Message("ping", {"id": -1}), Message("gc", {"id": 7}), Blob(b"rest")):
        client.send(frame)

    assert talk.next_blob() == b"rest"
    assert heard(client) == ("ok", -1, None)
    assert heard(client) == ("err", 7, "request.order")


def test_during_work_a_ping_is_answered_and_a_request_refused(talk, client):
    def work():
        client.send(Message("ping", {"id": -1}))
        client.send(Message("gc", {"id": 7}))
        return [heard(client), heard(client)]

    assert doing(talk, work) == [("ok", -1, None), ("err", 7, "request.order")]


def test_an_error_of_the_work_is_raised_where_its_result_is_awaited(talk):
    def fail():
        raise DeployError("build.failed", "no memory")

    with pytest.raises(DeployError, match="no memory"):
        doing(talk, fail)


@pytest.mark.parametrize(
    ("has_ended", "silence_s", "code"), [(True, 10.0, "transfer.closed"), (False, 0.2, "transfer.timeout")]
)
def test_a_client_that_ends_or_says_nothing_during_work_ends_the_connection_before_the_work(
    ends, client, has_ended, silence_s, code
):
    talk, over = Conversation(ends[0], silence_s=silence_s), threading.Event()
    if has_ended:
        client.close()
    try:
        with pytest.raises(ConnectionEnded) as caught:
            doing(talk, lambda: over.wait(LONG_S))
    finally:
        over.set()
    assert caught.value.error.code == code
    assert talk.is_gone


def test_a_client_that_is_gone_when_it_is_answered_ends_the_connection(talk, client):
    client.close()
    with pytest.raises(ConnectionEnded, match="ended the connection"):
        talk.ok(Nothing())
    assert talk.is_gone


def test_work_that_goes_on_alone_is_not_ended_by_an_answer_that_nobody_takes(talk, client):
    client.close()
    talk.go_on_alone()
    talk.ok(Nothing())
    assert talk.is_gone
    assert doing(talk, lambda: "done") == "done"


@pytest.mark.parametrize("is_gone", [False, True])
def test_waiting_for_work_costs_no_processor_whether_or_not_the_client_is_there(talk, client, monkeypatch, is_gone):
    if is_gone:
        client.close()
        talk.go_on_alone()
        talk.ok(Nothing())
    turns = Turns()
    monkeypatch.setattr(conversation, "time", turns)

    assert doing(talk, lambda: turns.are_many.wait(0.5)) is False
