"""Which connections are ended as endless, with real ones: those that flood, and none of an ordinary camera."""

import contextlib
import socket
import threading
import time
from pathlib import Path

import pytest

from edge.media.address import parse_address
from edge.media.flood import FloodWatch
from edge.media.threads import Effort
from tests.support.tcp_server import TcpServer

HEADER = b"X-Filler: " + b"a" * 1000 + b"\r\n"
NOISE = bytes(range(256)) * 16
# Of a picture of one colour, JPEG repeats two bits of DC and four of AC; begun one bit later these bytes are all ASCII.
FLAT_JPEG = b"\x51\x45\x14\x00" * 1024
CABAC_ZERO_WORDS = b"\x00\x00\x03" * 1024


class Sender(TcpServer):
    """Sends the same without an end to who connects, as fast as it is read or by a rate."""

    def __init__(self, content, bytes_per_s=None):
        super().__init__()
        self._content, self._bytes_per_s = content, bytes_per_s
        self.address = parse_address(f"rtsp://127.0.0.1:{self.port}/a", base_dir=Path("/"))

    def serve(self, link):
        pieces = self._content * (1 + (1 << 16) // len(self._content))
        while True:
            link.sendall(pieces)
            if self._bytes_per_s is not None:
                time.sleep(len(pieces) / self._bytes_per_s)


class Reader:
    """Reads one connection and throws away what comes, as fast as it can or with pauses."""

    def __init__(self, address, *, pause_s=0.0):
        self._pause_s = pause_s
        host, port = address.location.partition("//")[2].partition("/")[0].split(":")
        self._link = socket.create_connection((host, int(port)))
        self.count = 0
        self.has_ended = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        with contextlib.suppress(OSError):
            while piece := self._link.recv(4096):
                self.count += len(piece)
                time.sleep(self._pause_s)
        self.has_ended.set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        self.has_ended.wait(10)
        self._link.close()

    def await_bytes(self, count):
        deadline = time.monotonic() + 20
        while self.count < count:
            assert time.monotonic() < deadline
            time.sleep(0.01)


class Spent(Effort):
    """Of a thread that has spent that much."""

    def __init__(self, fruitless_s):
        super().__init__()
        self._fruitless_s = fruitless_s

    @property
    def fruitless_s(self):
        return self._fruitless_s


MEGABYTE = 1 << 20


def no_packets():
    return 0


@pytest.mark.parametrize("content", [HEADER, NOISE], ids=["text", "noise"])
def test_a_camera_that_floods_is_ended(content):
    with Sender(content) as sender, Reader(sender.address) as reader:
        watch = FloodWatch(Spent(0.5), sender.address, no_packets)
        reader.await_bytes(20 * MEGABYTE)
        assert watch.is_flooded(sender.address)
        assert reader.has_ended.wait(5)


@pytest.mark.parametrize(
    "content", [FLAT_JPEG, CABAC_ZERO_WORDS, bytes(4096)], ids=["flat jpeg", "cabac zero words", "zeros"]
)
def test_what_is_no_text_is_not_taken_for_a_header(content):
    with Sender(content, 4_000_000) as sender, Reader(sender.address, pause_s=0.002) as reader:
        watch = FloodWatch(Spent(0.5), sender.address, no_packets)
        reader.await_bytes(MEGABYTE // 4)
        assert not watch.is_flooded(sender.address)
        assert not reader.has_ended.is_set()


def test_a_fast_neighbour_at_the_same_server_is_let_alone():
    with Sender(NOISE) as recorder, Reader(recorder.address) as neighbour, Reader(recorder.address) as costly:
        watch, other = (FloodWatch(Spent(spent_s), recorder.address, no_packets) for spent_s in (0.5, 0.0))
        neighbour.await_bytes(20 * MEGABYTE)
        costly.await_bytes(20 * MEGABYTE)

        assert not watch.is_flooded(recorder.address)
        assert not neighbour.has_ended.is_set()

        other.close()
        watch = FloodWatch(Spent(0.5), recorder.address, no_packets)
        assert watch.is_flooded(recorder.address)


def test_a_burst_before_the_first_picture_is_let_alone():
    """A recorder sends what it holds since the last key frame at once: of 4K some megabytes."""
    with Sender(NOISE, 20_000_000) as recorder, Reader(recorder.address) as reader:
        watch = FloodWatch(Spent(0.5), recorder.address, no_packets)
        reader.await_bytes(1)
        assert not watch.is_flooded(recorder.address)
        assert not reader.has_ended.is_set()


@pytest.mark.parametrize("spent_s", [0.5, 5.0])
def test_packets_that_come_are_no_flood_however_long_the_first_picture_takes(spent_s):
    count = 0

    def packets():
        nonlocal count
        count += 1
        return count

    with Sender(NOISE) as camera, Reader(camera.address) as reader:
        watch = FloodWatch(Spent(spent_s), camera.address, packets)
        reader.await_bytes(20 * MEGABYTE)
        assert not watch.is_flooded(camera.address)
        assert not reader.has_ended.is_set()
