"""Ends connections to a server that sends without an end: the libraries that read them cannot be interrupted.

GStreamer's RTSP source and FFmpeg read a header until it ends, whatever they are told meanwhile, and do not show their
sockets. Such a connection is known by where it leads, and by text that goes on and on, or by how much comes over it: a
camera's packets have bytes that are no text, and no camera sends so much before its first packet or picture. By how
much comes, none is ended where another source reads from the same server: which of them is whose, nothing tells.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator

from edge.errors import SourceError
from edge.media.address import Address
from edge.media.threads import Effort

__all__ = ["FloodWatch", "endless_error"]

_SUSPICIOUS_S, _MOST_S = 0.3, 1.0  # of CPU before the first picture: making a decoder takes a quarter of a second
_LOOK_EVERY_S = 0.5
_LOOKS, _LOOK_S = 20, 0.01
_LONGEST_END = 50  # times that all of these looks are taken
_FLOOD_BYTES_PER_S = 8_000_000  # 64 Mbit/s; only looked for where a camera has cost much and given nothing
_HEADER_BYTES = 1 << 16  # of all that a connection has brought: who has sent so much is past all headers
_BURST_BYTES = 1 << 23  # a recorder begins with all since the last key frame, a playlist with a whole segment
_TEXT_BYTES, _TEXT_LOOKS = 256, 3
_TEXT = bytes([*b"\t\r\n", *range(0x20, 0x7F)])  # pictures of one colour have control characters among ASCII
_TCP_INFO_BYTES, _RECEIVED_AT = 136, 128  # struct tcp_info of linux/tcp.h, up to tcpi_bytes_received


Peer = tuple[str, int]  # host and port

_living: weakref.WeakSet[FloodWatch] = weakref.WeakSet()
_changing = threading.Lock()


def endless_error(address: Address) -> SourceError:
    """Return the error for a camera that sends and sends, and no picture comes of it."""
    return SourceError(
        f"{address.shown}: what the camera answers does not end, and has no picture in it",
        hint="correct the address: it is none of a camera; or restart the camera",
        is_permanent=True,
    )


class FloodWatch:
    """Of one source; by its reader, while no picture comes.

    Args:
        effort: of the thread that reads from the network.
        packets: changes with each packet of media; a camera whose packets come is no flood, though its first picture
            may take long and cost much.
    """

    def __init__(self, effort: Effort, address: Address, packets: Callable[[], int]) -> None:
        self._effort, self._address, self._packets = effort, address, packets
        self._counted, self._borne_s = packets(), 0.0
        self._looked_at = 0.0
        with _changing:
            _living.add(self)

    def close(self) -> None:
        with _changing:
            _living.discard(self)

    def is_flooded(self, address: Address) -> bool:
        """Return whether what comes from there has cost much, or comes and comes, and no picture with it yet."""
        now, spent_s = time.monotonic(), self._fruitless_s()
        if spent_s > _MOST_S:
            return True
        if spent_s < _SUSPICIOUS_S or now - self._looked_at < _LOOK_EVERY_S:
            return False
        self._looked_at = now
        return self._end_floods(address)

    def _fruitless_s(self) -> float:
        spent_s, count = self._effort.fruitless_s, self._packets()
        if count != self._counted or spent_s < self._borne_s:
            self._counted, self._borne_s = count, spent_s
        return spent_s - self._borne_s

    def _end_floods(self, address: Address) -> bool:
        """End those connections of this process to the server of `address` whose data does not end; takes 0.2 s.

        Returns whether there was one; false, too, where what was waited for has come meanwhile.
        """
        peers = _peers(address)
        with contextlib.ExitStack() as stack:
            looks = [_Look(stack.enter_context(link)) for link in _connections(peers)]
            for _ in range(_LOOKS):
                time.sleep(_LOOK_S)
                for look in looks:
                    look.take()
            if self._fruitless_s() < _SUSPICIOUS_S:
                return False
            may_be_too_much = self._is_alone(peers)
            floods = [one for one in looks if one.is_endless_text or (may_be_too_much and one.is_too_much)]
            for flood in floods:
                _end(flood.link)
        return bool(floods)

    def _is_alone(self, peers: Collection[Peer]) -> bool:
        """Whether no source that may be an ordinary one reads from these."""
        with _changing:
            others = [one for one in _living if one is not self and one._fruitless_s() < _SUSPICIOUS_S]
        ports = {port for _, port in peers}
        near = [one._address for one in others if one._address.server and one._address.server[1] in ports]
        return not any(_peers(address) & set(peers) for address in near)

    @contextlib.contextmanager
    def ended(self, address: Address) -> Iterator[None]:
        """Let what reads from there come to its end while it is waited for; it may begin another connection."""
        if self._fruitless_s() < _SUSPICIOUS_S:
            yield
            return
        has_ended = threading.Event()

        def end() -> None:
            for _ in range(_LONGEST_END):
                if not has_ended.is_set():
                    self._end_floods(address)

        threading.Thread(target=end, name="end of a flood", daemon=True).start()
        try:
            yield
        finally:
            has_ended.set()


class _Look:
    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self._before = _received_bytes(link)
        self._texts = self._others = 0

    def take(self) -> None:
        with contextlib.suppress(OSError):
            waiting = self.link.recv(_TEXT_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            is_text = not waiting.translate(None, _TEXT)
            self._texts += is_text and len(waiting) == _TEXT_BYTES
            self._others += not is_text

    @property
    def is_endless_text(self) -> bool:
        is_text = self._texts >= _TEXT_LOOKS and not self._others
        return is_text and _received_bytes(self.link) > max(self._before, _HEADER_BYTES)

    @property
    def is_too_much(self) -> bool:
        count = _received_bytes(self.link)
        return count > _BURST_BYTES and count - self._before > _FLOOD_BYTES_PER_S * _LOOKS * _LOOK_S


def _peers(address: Address) -> set[Peer]:
    """Empty where `address` names no server, or its name is not known."""
    if address.server is None:
        return set()
    try:
        found = socket.getaddrinfo(*address.server, type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return set()
    return {(str(where[0]), int(where[1])) for *_, where in found}


def _end(link: socket.socket) -> None:
    """End it, and take away what waits there: a header of megabytes is read byte by byte."""
    with contextlib.suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
        while link.recv(1 << 20, socket.MSG_DONTWAIT):
            pass


def _connections(peers: Collection[Peer]) -> list[socket.socket]:
    """Return the connections of this process to `peers`, each with a descriptor of its own."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            link = socket.socket(fileno=os.dup(int(name)))
            try:
                is_there = link.type == socket.SOCK_STREAM and link.getpeername()[:2] in peers
            except OSError:  # it is not connected
                is_there = False
            if is_there:
                found.append(link)
            else:
                link.close()
    return found


def _received_bytes(link: socket.socket) -> int:
    told = link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    count: int = struct.unpack_from("=Q", told, _RECEIVED_AT)[0] if len(told) == _TCP_INFO_BYTES else 0
    return count
