"""The agent and a serving runtime that somebody has taken over: bounded in bytes and time, and said in one sentence."""

import base64
import contextlib
import socket
import threading
from types import SimpleNamespace

import pytest

from edge.errors import DeployError
from edge.http.server import bind_socket_file, short_name
from edge.runtime.agent import serve as looking
from edge.runtime.agent.serve import look
from edge.wire.release import MOST_BYTES, LookRequest
from tests.support.raised import code_of, error_of

SOON_S = 20.0


@pytest.fixture
def session(root):
    root.layout.http_socket.parent.mkdir(parents=True)
    return SimpleNamespace(device=root.device)


@contextlib.contextmanager
def runtime(session, answer, *, then=None):
    """A runtime that gives these bytes to whoever comes first, and `then` again and again: the connection stays."""
    over = threading.Event()
    with bind_socket_file(session.device.layout.http_socket) as listening:
        listening.listen()

        def run():
            with contextlib.suppress(OSError):
                connection, _ = listening.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(answer)
                    while then is not None and not over.wait(0.05):
                        connection.sendall(then)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            over.set()
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            thread.join(30)


def test_what_it_shows_is_handed_on(session):
    with runtime(session, b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n\xff\xd8\xff"):
        assert look(session, LookRequest(stream="east")).content == base64.b64encode(b"\xff\xd8\xff").decode()


@pytest.mark.parametrize("status", [b"404 Not Found", b"503 Service Unavailable"])
def test_no_picture_yet_is_no_error(session, status):
    with runtime(session, b"HTTP/1.1 " + status + b"\r\n\r\nno"):
        assert look(session, LookRequest(stream="east")).content is None


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "no HTTP"),
        (b"rubbish", "no HTTP"),
        (b"HTTP/1.1 20000000 OK\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 500 Oh\r\n\r\n", "answers 500"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + bytes(MOST_BYTES + 10_000), "more than"),
    ],
)
def test_what_is_no_answer_is_an_error(session, answer, why):
    with runtime(session, answer), pytest.raises(DeployError, match=why) as error:
        look(session, LookRequest(stream=""))
    assert error.value.code == "device.page"


def given_up(session):
    """Return why nothing is shown; in a thread of its own, because without a deadline there is no end."""
    problems = []

    def ask():
        try:
            look(session, LookRequest(stream=""))
        except DeployError as error:
            problems.append(error.problem)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(SOON_S)
    return " ".join(problems)


@pytest.mark.parametrize("then", [b"", b"x"], ids=["nothing", "a little again and again"])
def test_one_that_never_ends_is_given_up(session, monkeypatch, then):
    monkeypatch.setattr(looking, "_DEADLINE_S", 0.3)
    with runtime(session, b"HTTP/1.1 200 OK\r\n\r\n", then=then):
        assert "no answer in time" in given_up(session)


def test_one_that_takes_no_connection_is_given_up(session, monkeypatch):
    monkeypatch.setattr(looking, "_DEADLINE_S", 0.3)
    path = session.device.layout.http_socket
    with contextlib.ExitStack() as stack:
        stack.enter_context(bind_socket_file(path)).listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:  # until no more are let wait
                waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
                waiting.setblocking(False)
                waiting.connect(stack.enter_context(short_name(path)))

        assert "does not show its status page" in given_up(session)


def test_one_that_is_not_there_says_what_to_do(session):
    assert "edge-deploy status" in error_of(look, session, LookRequest(stream="")).hint


@pytest.mark.parametrize("stream", ["../metrics", "a b", "a\r\nHost: x", "ä"])
def test_a_stream_is_asked_for_by_its_id_alone(session, stream):
    assert code_of(look, session, LookRequest(stream=stream)) == "request.value"
