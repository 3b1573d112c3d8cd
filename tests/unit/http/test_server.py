"""The HTTP server against those who mean it harm: nobody else waits for them, and they cost little."""

import contextlib
import dataclasses
import os
import select
import threading
import time

import pytest

from edge.http.server import (
    HttpResponse,
    HttpServer,
    Listener,
    bind_port,
    bind_socket_file,
    picture_response,
    text_response,
)
from tests.support.http_client import ask, connect, parsed, read_all, serving
from tests.support.logged import logged
from tests.support.people import needs_root, shared_folder, start_as_other
from tests.support.wait import wait_until

LARGE = b"x" * (64 << 20)


def respond(request):
    if request.path == "/large":
        return HttpResponse(status=200, kind="text/plain", body=LARGE)
    if request.path == "/broken":
        raise ValueError("a secret detail")
    return text_response(200, f"{request.method} {request.path}")


def on_port(**limits):
    return Listener(
        name="port",
        bind=lambda: bind_port(0),
        respond=respond,
        is_tcp=True,
        **{"per_s": 1000, **limits},
    )


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_a_request_is_answered_and_the_connection_ends():
    with serving(on_port()) as (port,):
        status, headers, body = ask(port, "/some/where?x=1")
        assert (status, body) == (200, b"GET /some/where\n")
        assert headers["content-length"] == str(len(body))
        status, headers, body = ask(port, "/", method="HEAD")
        assert (status, headers["content-length"], body) == (200, "7", b"")


def test_no_answer_can_be_framed_kept_or_read_by_others():
    with serving(on_port()) as (port,):
        for path in ("/", "/broken"):
            _, headers, _ = ask(port, path)
            assert headers["x-frame-options"] == "DENY"
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert headers["cross-origin-resource-policy"] == "same-origin"
            assert headers["cache-control"] == "no-store"
            assert headers["x-content-type-options"] == "nosniff"
            assert "access-control-allow-origin" not in headers


def test_an_error_of_ours_says_nothing_of_our_code():
    with serving(on_port()) as (port,):
        status, _, body = ask(port, "/broken")
        assert (status, body) == (500, b"internal error\n")


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "10.0.0.1", ""]
)
def test_a_name_that_was_led_here_is_not_served(host):
    with serving(on_port()) as (port,):
        assert ask(port, "/", Host=host)[0] == 421


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9464", "LOCALHOST:1", "[::1]:9464"])
def test_our_own_names_are_served(host):
    with serving(on_port()) as (port,):
        assert ask(port, "/", Host=host)[0] == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:1"}, 403),
        ({"Origin": "http://localhost"}, 200),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "image"}, 403),
        ({"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors", "Sec_Fetch_Dest": "empty"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}, 200),
        ({"Sec_Fetch_Site": "same-origin"}, 200),
        ({"Sec_Fetch_Site": "none"}, 200),
    ],
)
def test_pages_of_other_origins_get_nothing(headers, status):
    with serving(on_port()) as (port,):
        assert ask(port, "/", **headers)[0] == status


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello", 413),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400),
        (b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /" + b"a" * 2000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * (1 << 20), 413),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 421),
    ],
)
def test_what_is_no_plain_request_is_refused(sent, status):
    with serving(on_port()) as (port,), connect(port) as connection:
        with contextlib.suppress(ConnectionError):  # it may be cut off before it has sent all
            connection.sendall(sent)
        content = read_all(connection)
        assert content == b"" or parsed(content)[0] == status
        assert ask(port, "/")[0] == 200


def test_two_hundred_connections_that_say_nothing_hold_up_nobody():
    with serving(on_port(connections=16, read_s=60.0, per_s=1e9)) as (port,), contextlib.ExitStack() as stack:
        before = descriptors()
        silent = [stack.enter_context(connect(port)) for _ in range(200)]
        for connection in silent[::2]:
            with contextlib.suppress(ConnectionError):
                connection.sendall(b"GET / HTTP/1.1\r\n")
        assert ask(port, "/")[0] == 200
        # Ours are 200; the other ends that the server still holds are no more than it allows.
        wait_until(lambda: descriptors() - before <= 200 + 16 + 1, what="what is refused is closed")


def test_a_connection_that_is_too_slow_is_closed():
    with serving(on_port(read_s=0.3)) as (port,), connect(port) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHo")
        assert parsed(read_all(connection))[0] == 408


def test_one_who_does_not_read_is_given_up_and_holds_up_nobody():
    with serving(on_port(write_s=0.3)) as (port,), connect(port) as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert ask(port, "/")[0] == 200
        watch = select.poll()
        watch.register(connection, select.POLLRDHUP)
        wait_until(lambda: watch.poll(0), what="the server has given it up")
        assert len(read_all(connection)) < len(LARGE)


@pytest.mark.parametrize(("early", "status"), [(3, 200), (1_000_000, 503)])
def test_what_may_come_in_a_moment_is_waited_for_and_holds_up_nobody(early, status):
    asked = []

    def respond(request):
        if request.path == "/other":
            return text_response(200, "other")
        asked.append(request.path)
        return picture_response(None if len(asked) <= early else b"jpeg", is_early=True)

    with serving(dataclasses.replace(on_port(), respond=respond)) as (port,), connect(port) as connection:
        connection.sendall(b"GET /late HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: asked, what="it is asked for")
        assert ask(port, "/other")[0] == 200
        assert len(asked) <= early
        found, headers, _ = parsed(read_all(connection))
    assert found == status
    assert ("retry-after" in headers) == (status == 503)
    assert len(asked) <= min(early, 20) + 1


def test_a_flood_is_answered_no_faster_than_is_allowed():
    with serving(on_port(per_s=20)) as (port,):
        began, answered = time.monotonic(), 0
        lock = threading.Lock()

        def flood():
            nonlocal answered
            while time.monotonic() - began < 1.5:
                with contextlib.suppress(OSError):
                    ask(port, "/")
                    with lock:
                        answered += 1

        threads = [threading.Thread(target=flood) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert 1 <= answered <= 20 * (time.monotonic() - began) + 2


def test_the_end_waits_for_nobody():
    with serving(on_port(read_s=60.0, write_s=60.0)) as (port,), contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(connect(port)).sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        ask(port, "/")
        began = time.monotonic()
    assert time.monotonic() - began < 60


def test_a_port_that_somebody_else_has_is_told_once_and_the_other_listener_serves(tmp_path, caplog):
    with bind_port(0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        held = Listener(name="held", bind=lambda: bind_port(port), respond=respond, is_tcp=True)
        path = tmp_path / "s"
        free = Listener(name=str(path), bind=lambda: bind_socket_file(path), respond=respond, is_tcp=False)
        server = HttpServer([held, free])
        server.start()
        wait_until(path.exists, what="the socket file is there")
        wait_until(lambda: "http-not-served at=held" in logged(caplog), what="the port is said to be taken")
        assert ask(path, "/")[0] == 200
        server.close()
    assert logged(caplog).count("http-not-served") == 1


def test_a_socket_file_replaces_one_that_was_left_and_may_have_a_long_name(tmp_path):
    path = tmp_path / ("d" * 120) / "http.sock"
    path.parent.mkdir()
    bind_socket_file(path).close()
    with bind_socket_file(path):
        assert path.is_socket()
        assert path.stat().st_mode & 0o777 == 0o660


@needs_root
def test_another_user_cannot_connect_to_the_socket_file():
    with shared_folder() as folder:
        path = folder / "http.sock"
        listener = Listener(name=str(path), bind=lambda: bind_socket_file(path), respond=respond, is_tcp=False)
        with serving(listener):
            assert ask(path, "/")[0] == 200
            program = "import socket, sys\ntry:\n socket.socket(socket.AF_UNIX).connect(sys.argv[1])\n"
            other = start_as_other(program + "except PermissionError:\n print('refused')\n", path)
            assert other.communicate(timeout=30)[0] == "refused\n"
