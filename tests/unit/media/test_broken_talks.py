"""Cameras that stop the talk half way, encrypt by a key that is not read, or want a login that is not computed."""

import contextlib
import re
import socket
import threading
from pathlib import Path

import pytest

from edge.config.schema import StreamConfig
from edge.errors import SourceError
from edge.media.address import parse_address
from edge.media.select import look_at, make_connection, require_decoder
from tests.support.clips import CANVAS

SDP = (
    "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=camera\r\nt=0 0\r\n"
    "m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:track1\r\n"
)
SRTP = SDP.replace("RTP/AVP 96", "RTP/SAVP 96").replace(
    "a=rtpmap", "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:d0RmdmcmVCspeEc3QGZiNWpVLFJhQX1cfHAwJSoj\r\na=rtpmap"
)
ANSWERS = {
    "OPTIONS": ("Public: DESCRIBE, SETUP, PLAY", ""),
    "DESCRIBE": ("Content-Type: application/sdp", SDP),
    "SETUP": ("Session: 1\r\nTransport: RTP/AVP/TCP;unicast;interleaved=0-1", ""),
}


def answer(connection, sdp=SDP, refusals=None):
    with connection, connection.makefile("rb") as requests:
        while line := requests.readline():
            method, number = line.split()[0].decode(), ""
            while header := requests.readline().strip():
                name, _, value = header.decode().partition(":")
                number = value.strip() if name.lower() == "cseq" else number
            if method not in ANSWERS:
                return
            headers, body = ANSWERS[method]
            status = (refusals or {}).get(method, "200 OK")
            body = body and sdp
            head = f"RTSP/1.0 {status}\r\nCSeq: {number}\r\n{headers}\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall((head + body).encode())


def refuse_all(server, *challenges):
    asked = "".join(f"WWW-Authenticate: {one}\r\n" for one in challenges)

    def refuse(connection):
        with connection, contextlib.suppress(OSError):
            while number := re.search(r"CSeq: (\d+)", connection.recv(4096).decode()):
                connection.sendall(f"RTSP/1.0 401 Unauthorized\r\nCSeq: {number[1]}\r\n{asked}\r\n".encode())

    with contextlib.suppress(OSError):  # it is closed
        while True:
            threading.Thread(target=refuse, args=(server.accept()[0],), daemon=True).start()


def problem_of(server, kind, login=""):
    uri = f"rtsp://{login}127.0.0.1:{server.getsockname()[1]}/main"
    stream, address = StreamConfig(id="east", uri=uri), parse_address(uri, base_dir=Path("/"))
    require_decoder(stream, address, kind)
    source = make_connection(stream, address, decoder=kind, preprocess=CANVAS)
    try:
        source.open()
        with pytest.raises(SourceError) as caught:
            source.read(30.0)
        return caught.value
    finally:
        source.close()


def test_a_camera_that_closes_at_play_is_not_said_to_forbid_something():
    pytest.importorskip("av")
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: answer(server.accept()[0]), daemon=True).start()
        assert "asked to play" in problem_of(server, "pyav").problem


@pytest.mark.parametrize("kind", ["pyav", "software"])
@pytest.mark.slow(reason="a decoder waits five seconds for an answer")
def test_a_camera_that_accepts_and_never_answers_is_said_to_give_no_answer(kind):
    pytest.importorskip("gi" if kind == "software" else "av")
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert problem_of(server, kind).problem.endswith("no answer for 5 s")


@pytest.mark.parametrize("kind", ["software", "pyav"])
@pytest.mark.parametrize(
    ("refusals", "told", "is_permanent"),
    [
        ({"SETUP": "461 Unsupported Transport"}, "does not send over TCP; turn on RTP over RTSP", True),
        ({"DESCRIBE": "503 Service Unavailable"}, "the camera answers", False),
    ],
)
def test_a_camera_that_answers_with_a_refusal_is_not_said_to_be_out_of_reach(kind, refusals, told, is_permanent):
    pytest.importorskip("gi" if kind == "software" else "av")
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: answer(server.accept()[0], refusals=refusals), daemon=True).start()
        problem = problem_of(server, kind)
    assert told in str(problem)
    assert problem.is_permanent == is_permanent


@pytest.mark.parametrize("spoken", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_a_port_that_speaks_no_rtsp_is_told_from_one_that_is_not_reached(spoken):
    def speak(server):
        with contextlib.suppress(OSError):  # it is closed
            while True:
                with server.accept()[0] as link:
                    link.recv(4096)
                    link.sendall(spoken)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=speak, args=(server,), daemon=True).start()
        uri = f"rtsp://127.0.0.1:{server.getsockname()[1]}/main"
        with pytest.raises(SourceError, match="gives no RTSP answer; correct the address"):
            look_at(StreamConfig(id="east", uri=uri), parse_address(uri, base_dir=Path("/")), within_s=10)


def test_a_camera_that_encrypts_by_a_key_that_is_not_read_is_no_silent_one():
    """As UniFi Protect does at the address that it shows: `rtsps://HOST:7441/NAME?enableSrtp`."""
    pytest.importorskip("gi")
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: answer(server.accept()[0], SRTP), daemon=True).start()
        problem = problem_of(server, "software")
    assert problem.problem.endswith("only video H264, encrypted (SRTP)")
    assert "enableSrtp" in problem.hint


@pytest.mark.parametrize("kind", ["software", "pyav"])
@pytest.mark.parametrize(
    ("challenges", "hint"),
    [
        (['Digest realm="a", nonce="b", algorithm="SHA-256", stale="FALSE"'], "digests of SHA-256 only"),
        (
            ['Digest realm="a", nonce="b", algorithm=SHA-256', 'Digest realm="a", nonce="b"'],
            "refuses this user and password",
        ),
        (['Digest realm="a", nonce="b", algorithm=MD5'], "refuses this user and password"),
        (['Digest realm="a", nonce="b", algorithm=SHA-256', 'Basic realm="a"'], "refuses this user and password"),
    ],
)
def test_a_login_that_is_not_computed_is_told_from_a_wrong_password_and_from_none(kind, challenges, hint):
    pytest.importorskip("gi" if kind == "software" else "av")
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=refuse_all, args=(server, *challenges), daemon=True).start()
        problem = problem_of(server, kind, "admin:secret@")
        assert "it wants a login" in problem_of(server, kind).hint
    assert hint in problem.hint
    assert problem.wants_login
