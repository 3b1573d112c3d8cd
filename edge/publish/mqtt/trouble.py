"""Problems between us and a broker, with advice, and the kind and time of the next try."""

from __future__ import annotations

import enum
import random
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Literal

from edge.errors import PublishError
from edge.publish.mqtt.endpoint import Endpoint

__all__ = [
    "ADAPTABLE",
    "V311",
    "V5",
    "BrokerBackoff",
    "BrokerError",
    "ProtocolChoice",
    "Trouble",
    "trouble_from_error",
    "trouble_from_reason",
]

V5 = 5
V311 = 4
# So often a broker may close or be silent at CONNECT before we take it for one that does not know MQTT v5.
_CLOSED_BEFORE_FALLBACK = 2


class Trouble(enum.Enum):
    """Kinds that are treated differently."""

    UNREACHABLE = "unreachable"
    TLS = "tls"
    CLOSED = "closed at CONNECT"
    UNANSWERED = "no answer to CONNECT"
    LOST = "lost"
    SILENT = "silent"  # lost, and not closed by the broker
    REFUSED = "refused"  # a person has to change something
    TAKEN_OVER = "taken over"
    VERSION = "protocol version"
    NO_RETAIN = "no retained Will"
    NO_QOS_1 = "no QoS 1 Will"


class BrokerError(PublishError):
    """There is no connection, or no longer; `reason` is the code that the broker sent, if it did."""

    def __init__(self, kind: Trouble, problem: str, *, hint: str | None = None, reason: int | None = None) -> None:
        super().__init__(problem, hint=hint)
        self.kind = kind
        self.reason = reason


_REASONS: dict[int, tuple[Trouble, str | None]] = {
    0x84: (Trouble.VERSION, "with `protocol: auto`, the default, MQTT v5 is tried and then v3.1.1"),
    0x85: (Trouble.REFUSED, "set mqtt.client_id (listen --client-id) to one that the broker accepts"),
    0x86: (Trouble.REFUSED, "check user name and password (mqtt.credential; listen --credential)"),  # v3.1.1's 4
    0x87: (
        Trouble.REFUSED,
        "the broker wants a user (mqtt.credential; listen --credential), or its access list does not allow this one",
    ),  # 5
    0x8A: (Trouble.REFUSED, "the broker has banned this client"),
    0x8C: (Trouble.REFUSED, "the broker wants an authentication method that is not supported"),
    0x8E: (Trouble.TAKEN_OVER, "another client uses this client id: give each device its own name"),
    0x9A: (
        Trouble.NO_RETAIN,
        "a Will that is not retained is tried next, once; then the broker has to allow retained messages",
    ),
    0x9B: (Trouble.NO_QOS_1, "a Will of QoS 0 is tried next, once; then the broker has to allow QoS 1"),
}


# Brokers do not tell which: mosquitto answers a wrong password with 0x87, the code for access lists.
_LOGIN_REASONS = frozenset({0x86, 0x87})
_LOGIN_HINT = (
    "user name or password (mqtt.credential; listen --credential) may be wrong, "
    "or the broker's access list does not allow this user"
)


def trouble_from_reason(
    reason: int, name: str, *, is_login: bool = False, is_about_messages: bool = False
) -> BrokerError:
    """Return what a CONNACK or DISCONNECT with this MQTT v5 reason code means.

    `is_login` says that it answers a CONNECT with user name and password, `is_about_messages` that it ended a
    connection that was accepted, with messages on their way: "not authorized" is then said of one of these.
    """
    kind, hint = _REASONS.get(reason, (Trouble.LOST, None))
    if is_about_messages and kind is Trouble.REFUSED:
        kind, hint = Trouble.LOST, "its access list may not allow one of the topics"
    if is_login and reason in _LOGIN_REASONS:
        hint = _LOGIN_HINT
    return BrokerError(kind, f"the broker answered 0x{reason:02X} ({name})", hint=hint, reason=reason)


def trouble_from_error(error: OSError | ValueError, endpoint: Endpoint) -> BrokerError:
    if isinstance(error, ssl.SSLError):
        return _tls_trouble(error)
    kind, hint = Trouble.UNREACHABLE, "check the network and mqtt.host (listen --host)"
    if isinstance(error, socket.gaierror):
        what, hint = f"no such host name: {endpoint.host}", "check its spelling and the name server"
    elif isinstance(error, ConnectionRefusedError):
        what, hint = "nothing listens on this port", "is the broker running, and is its port right?"
    elif isinstance(error, ConnectionResetError) and endpoint.tls is not None:
        return _no_tls_trouble("connection reset")
    elif isinstance(error, TimeoutError):
        what = "no answer"
    elif isinstance(error, OSError):
        what = error.strerror or type(error).__name__
    else:  # no name at all, or one that cannot be looked up: an empty or very long label
        kind, hint = Trouble.REFUSED, "correct mqtt.host (listen --host)"
        what = f"expected a host name or an address, got {endpoint.host!r} ({error})"
    return BrokerError(kind, what, hint=hint)


def _tls_trouble(error: ssl.SSLError) -> BrokerError:
    reason = error.reason or "connection closed"
    if isinstance(error, ssl.SSLCertVerificationError):
        what = f"the broker's certificate is not accepted: {error.verify_message}"
        hint = "its authority has to be named (mqtt.tls.ca; --ca), and mqtt.host (--host) be a name in it"
        if error.verify_code in _OF_TIME:
            hint = "renew the broker's certificate, or set this machine's clock"
    elif "ALERT" in reason:
        what = f"the broker ended the TLS handshake: {reason}"
        hint = "it may want a client certificate (mqtt.tls.certificate and key; listen --certificate --key)"
    else:
        return _no_tls_trouble(reason)
    return BrokerError(Trouble.TLS, what, hint=hint)


def _no_tls_trouble(reason: str) -> BrokerError:
    hint = "name the broker's TLS port; plain text has to be asked for (`tls: false`; listen --no-tls)"
    return BrokerError(Trouble.TLS, f"TLS handshake failed: {reason}", hint=hint)


_OF_TIME = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID and ..._HAS_EXPIRED of OpenSSL's <x509_vfy.h>
ADAPTABLE = frozenset({Trouble.VERSION, Trouble.NO_RETAIN, Trouble.NO_QOS_1})
"""Refusals after which there may be another way to ask; where there is none, a person has to act."""
_NO_WORD = frozenset({Trouble.SILENT, Trouble.UNANSWERED})
_SILENT_S, _AWAY_S = 4.0, 2.0
_REFUSED_FIRST_S = 15.0  # a person who mends a login looks whether that helps
_AFTER_TRIAL_S = 0.1


class BrokerBackoff:
    """How long to wait before the next attempt: doubling, with jitter over the whole range so that fleets spread.

    One that says nothing at all, as when it hangs, is not asked less often for that: nothing but a connection can tell
    when it goes on, and what waits in its socket is then answered at once. One that cannot be reached is asked every
    one to two seconds, and its connections are not waited for longer afterwards.
    Where a person has to act (refused, also for what we have no other way to ask) it grows from 15 s to `refused_s`;
    after two takeovers within a minute it is `refused_s` at once: no war between two clients of one name.
    """

    def __init__(
        self,
        *,
        min_s: float = 0.5,
        max_s: float = 30.0,
        refused_s: float = 300.0,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._min_s = min_s
        self._max_s = max_s
        self._refused_s = refused_s
        self._uniform = uniform
        self._ceiling_s = 2 * min_s
        self._refusal_s = min(_REFUSED_FIRST_S, refused_s)
        self._takeovers: deque[float] = deque(maxlen=2)

    def delay_s(
        self, kind: Trouble, *, lived_s: float, now_s: float, is_adapted: bool = False, is_trial: bool = False
    ) -> float:
        """Return the wait after a connection that lived `lived_s` (0: it was never made).

        `is_adapted` says that the next one is asked for in another way: then what this one was refused for is over.
        `is_trial` says that a connection that worked was lost at suspected messages: there is hardly any wait.
        """
        if is_trial and kind is Trouble.LOST:
            self._ceiling_s = 2 * self._min_s
            return self._uniform(0.0, _AFTER_TRIAL_S)
        if kind in ADAPTABLE and is_adapted:
            return 0.0
        is_contested = False
        if kind is Trouble.TAKEN_OVER:
            self._takeovers.append(now_s)
            is_contested = len(self._takeovers) == 2 and now_s - self._takeovers[0] < 60
        if kind is Trouble.REFUSED or kind in ADAPTABLE or is_contested:
            wait_s = self._refused_s if is_contested else self._refusal_s
            self._refusal_s = min(self._refused_s, 2 * self._refusal_s)
            return self._uniform(0.9 * wait_s, 1.1 * wait_s)
        self._refusal_s = min(_REFUSED_FIRST_S, self._refused_s)
        if kind is Trouble.UNREACHABLE:
            away_s = min(self._max_s, _AWAY_S)
            return self._uniform(away_s / 2, away_s)
        if lived_s >= self._max_s:  # less, and clients of one id that throw each other out would never slow down
            self._ceiling_s = 2 * self._min_s
        most_s = min(self._ceiling_s, _SILENT_S) if kind in _NO_WORD else self._ceiling_s
        self._ceiling_s = min(self._max_s, 2 * self._ceiling_s)
        return self._uniform(min(self._min_s, most_s), most_s)


class ProtocolChoice:
    """The version of the next CONNECT, as packet number (5, or 4 for v3.1.1).

    A broker that says it does not know v5 is believed for good. One that closes or says nothing twice is only guessed
    at, in turns with v5, and never once it has accepted v5: then it is merely restarting.
    """

    def __init__(self, protocol: Literal["auto", "v5", "v3.1.1"]) -> None:
        self.version = V311 if protocol == "v3.1.1" else V5
        self._is_open = protocol == "auto"
        self._closed = 0

    @property
    def name(self) -> str:
        """For people."""
        return "MQTT v5" if self.version == V5 else "MQTT v3.1.1"

    def accepted(self) -> None:
        self._is_open = self._is_open and self.version != V5
        self._closed = 0

    def failed(self, kind: Trouble, *, patience: int = _CLOSED_BEFORE_FALLBACK) -> bool:
        """Think about another version after a failed CONNECT; return whether the next one speaks it."""
        before = self.version
        if self._is_open and kind is Trouble.VERSION:
            self.version = V311
            self._is_open = False
        elif self._is_open and kind in (Trouble.CLOSED, Trouble.UNANSWERED):
            self._closed += 1
            if self._closed >= patience:
                self._closed = 0
                self.version = V311 if self.version == V5 else V5
        return self.version != before
