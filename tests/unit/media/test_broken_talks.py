"""Cameras that stop the talk half way: one closes at PLAY, as with too many viewers, and one never answers."""

import socket
import threading
from pathlib import Path

import pytest

from edge.config.schema import StreamConfig
from edge.errors import SourceError
from edge.media.address import parse_address
from edge.media.select import make_connection, require_decoder
from tests.support.clips import CANVAS

SDP = (
    "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=camera\r\nt=0 0\r\n"
    "m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:track1\r\n"
)
ANSWERS = {
    "OPTIONS": ("Public: DESCRIBE, SETUP, PLAY", ""),
    "DESCRIBE": ("Content-Type: application/sdp", SDP),
    "SETUP": ("Session: 1\r\nTransport: RTP/AVP/TCP;unicast;interleaved=0-1", ""),
}


def answer(connection):
    with connection, connection.makefile("rb") as requests:
        while line := requests.readline():
            method, number = line.split()[0].decode(), ""
            while header := requests.readline().strip():
                name, _, value = header.decode().partition(":")
                number = value.strip() if name.lower() == "cseq" else number
            if method not in ANSWERS:
                return
            headers, body = ANSWERS[method]
            connection.sendall(
                f"RTSP/1.0 200 OK\r\nCSeq: {number}\r\n{headers}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
            )


def problem_of(server, kind):
    uri = f"rtsp://127.0.0.1:{server.getsockname()[1]}/main"
    stream, address = StreamConfig(id="east", uri=uri), parse_address(uri, base_dir=Path("/"))
    require_decoder(stream, address, kind)
    source = make_connection(stream, address, decoder=kind, preprocess=CANVAS)
    try:
        source.open()
        with pytest.raises(SourceError) as caught:
            source.read(30.0)
        return caught.value.problem
    finally:
        source.close()


def test_a_camera_that_closes_at_play_is_not_said_to_forbid_something():
    pytest.importorskip("av")
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: answer(server.accept()[0]), daemon=True).start()
        assert "asked to play" in problem_of(server, "pyav")


@pytest.mark.parametrize("kind", ["pyav", "software"])
@pytest.mark.slow(reason="a decoder waits five seconds for an answer")
def test_a_camera_that_accepts_and_never_answers_is_said_to_give_no_answer(kind):
    pytest.importorskip("gi" if kind == "software" else "av")
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert problem_of(server, kind).endswith("no answer for 5 s")
