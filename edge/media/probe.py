"""When a camera that is away is tried again: after a wait that grows, or when it answers.

Whether it is back is asked at the price of a packet: the connection itself is tried rarely. A server that answers is
not yet one that delivers, so its answer only brings the next attempt forward.
"""

from __future__ import annotations

import contextlib
import random
import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from edge.errors import SourceError
from edge.media.address import ANSWERS, PORTS, REFUSES_LOGIN, WANTS_LOGIN, Address, remedy_of

__all__ = ["CameraBackoff", "ProbeWatch", "is_there", "remedy_of_answer", "remedy_of_refusal", "why_unreached"]

EVERY_S = 1.0
_ANSWER_S = 1.0
_FIRST_ANSWER_S = 2 * _ANSWER_S
_STATUS = re.compile(rb"RTSP/1\.\d (\d{3})")
_UNKNOWN = ("404", "454", "503")  # the server is there, the stream is not
_CHALLENGE = re.compile(r"^WWW-Authenticate: *(\w+)(?:.*algorithm=\"?([\w-]+))?", re.IGNORECASE | re.MULTILINE)
_HEAD_BYTES = 4096
_OTHER_PORT = f"correct the address: RTSP has port {PORTS['rtsp']} by default, a web camera http://"


def is_there(address: Address, *, was_unknown: bool = False) -> bool | None:
    """Return whether a connection is worth trying; None where only a connection can tell. Takes two seconds at most,
    and as long as the system takes to look up a name.

    Args:
        address: of the stream. User and password are never sent: an attempt counts where accounts get locked.
        was_unknown: the server answered last time that it does not have this stream: then it is asked for it.
    """
    if address.scheme == "v4l2":
        return Path(address.location).exists()
    if address.server is None:
        return None
    try:
        with socket.create_connection(address.server, _ANSWER_S) as link:
            return address.scheme != "rtsp" or _answers(
                link, address.location, "DESCRIBE" if was_unknown else "OPTIONS"
            )
    except (OSError, ValueError):  # a name that is unknown, or that cannot be one
        return False


def why_unreached(address: Address) -> SourceError | None:
    """Return why no talk with a camera of the network comes about, which a decoder does not tell; None where one
    does, or there is nothing to connect to. Takes as long as `is_there`.
    """
    if address.server is None:
        return None
    host, port = address.server
    remedy = remedy_of(address.scheme)
    try:
        with socket.create_connection((host, port), _ANSWER_S) as link:
            if address.scheme != "rtsp" or _answers(link, address.location, "OPTIONS"):
                return None
            raise ConnectionResetError
    except ConnectionResetError:
        why, remedy = f"port {port} of {host} takes connections and gives no RTSP answer", _OTHER_PORT
    except (socket.gaierror, UnicodeError):
        why = f"no such host name: {host}"
    except ConnectionRefusedError:
        why = f"nothing listens on port {port} of {host}"
    except TimeoutError:
        why = f"{host} does not answer on port {port}"
    except OSError as error:
        why = f"{host} cannot be reached: {error.strerror}"
    return SourceError(f"{address.shown}: {why}", hint=remedy)


def remedy_of_answer(address: Address) -> str:
    """Return what to do where a camera has answered that it does not give the stream, and not that it is a login."""
    is_rtsp = False
    if address.scheme == "http" and address.server is not None:
        with contextlib.suppress(OSError, ValueError), socket.create_connection(address.server, _ANSWER_S) as link:
            is_rtsp = _answers(link, address.location, "OPTIONS")
    return "it speaks RTSP: write rtsp:// for http://" if is_rtsp else ANSWERS


def remedy_of_refusal(address: Address) -> str:
    """Return what to do where a camera has refused a login. One of RTSP is asked, within a second, which logins it
    takes: GStreamer and FFmpeg compute digests of MD5 alone, and call the others a wrong password.
    """
    if address.credential is None:
        return WANTS_LOGIN
    if address.scheme != "rtsp" or address.server is None:
        return REFUSES_LOGIN
    try:
        with socket.create_connection(address.server, _ANSWER_S) as link:
            _ask(link, address.location, "DESCRIBE")
            head = link.recv(_HEAD_BYTES).decode(errors="replace")
    except (OSError, ValueError):
        return REFUSES_LOGIN
    wanted = {name.upper() if kind.lower() == "digest" else "" for kind, name in _CHALLENGE.findall(head)}
    if not wanted or wanted & {"", "MD5"}:
        return REFUSES_LOGIN
    return f"the camera takes digests of {', '.join(sorted(wanted))} only, set its RTSP login to MD5 or basic"


def _ask(link: socket.socket, location: str, method: str) -> None:
    link.settimeout(_ANSWER_S)
    link.sendall(f"{method} {location} RTSP/1.0\r\nCSeq: 1\r\nUser-Agent: edge-deploy\r\n\r\n".encode())


def _answers(link: socket.socket, location: str, method: str) -> bool:
    _ask(link, location, method)
    status = _STATUS.match(link.recv(64))
    return status is not None and not (method == "DESCRIBE" and status[1].decode() in _UNKNOWN)


class ProbeWatch:
    """Asks again and again in a thread of its own, because looking up a name may take long.

    Args:
        look: says whether it is there; None: that is unknown.
        why: says why it cannot be reached, and what to do, where that is known.
        is_renewed: says whether there is another reason to try at once, such as a new password.

    Attributes:
        is_away: nothing has answered yet, or not the last time: there is no use in trying.
        is_known_away: the latter.
        has_returned: it was away and is there again, or something is new.
        problem: why it was away when it was first asked.
    """

    def __init__(
        self,
        look: Callable[[], bool | None],
        *,
        name: str,
        is_renewed: Callable[[], bool] = lambda: False,
        why: Callable[[], SourceError | None] = lambda: None,
        every_s: float = EVERY_S,
    ) -> None:
        self._look = look
        self._is_renewed = is_renewed
        self._why = why
        self._every_s = every_s
        self._stop, self._has_asked = threading.Event(), threading.Event()
        self.is_away = True
        self.is_known_away = False
        self.has_returned = False
        self.problem: SourceError | None = None
        threading.Thread(target=self._run, name=f"probe {name}", daemon=True).start()

    def stop(self) -> None:
        """Ask no more; the thread ends by itself, at the latest after the answer that it waits for."""
        self._stop.set()
        self._has_asked.set()

    def first_problem(self) -> SourceError | None:
        """Return `problem` after the first answer, or after the time that most take: a name may take longer."""
        self._has_asked.wait(_FIRST_ANSWER_S)
        return self.problem

    def _run(self) -> None:
        while not self._stop.is_set():
            is_there = self._look()
            if is_there is False and not self.is_known_away:
                self.problem = self._why()
            has_come = is_there is True and self.is_known_away
            self.has_returned = self.has_returned or has_come or self._is_renewed()
            self.is_away = self.is_known_away = is_there is False
            self._has_asked.set()
            self._stop.wait(self._every_s)


FIRST_S = 0.5
LONGEST_S = 3.0
HEALTHY_S = 10.0
REFUSED_S = 30.0
CHEAP_S = 0.5
COST_FACTOR = 30.0  # what no picture comes of takes a thirtieth of a core at most
JITTER = 0.2


class CameraBackoff:
    """Doubles the wait with every failure, up to a limit.

    The limit is low: with 30 s, a camera whose server flapped stayed dark for half a minute after the server was back.
    It can be: of a server that does not even answer, no connection is tried (`ProbeWatch`).
    Jitter keeps the cameras of one switch from coming back all at once.
    """

    def __init__(self, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._uniform = uniform
        self._next_s = FIRST_S

    def delay_s(self, *, streamed_s: float, is_refused: bool, cost_s: float = 0.0) -> float:
        """Return the wait after a connection that delivered frames for `streamed_s` seconds.

        Args:
            streamed_s: from 10 s on, the connection counts as healthy and the doubling begins anew.
            is_refused: the camera said no (401, 404): asking often gets accounts locked, so wait long.
            cost_s: CPU seconds that the connection took without giving anything for them.
        """
        if streamed_s >= HEALTHY_S:
            self._next_s = FIRST_S
        wait_s = REFUSED_S if is_refused else self._next_s
        if cost_s > CHEAP_S:
            wait_s = max(wait_s, cost_s * COST_FACTOR)
        self._next_s = min(LONGEST_S, self._next_s * 2)
        return wait_s * self._uniform(1 - JITTER, 1 + JITTER)
