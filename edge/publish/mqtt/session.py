"""What happens between CONNACK and the loss of a connection: the window, acknowledgements, refusals."""

from __future__ import annotations

import logging
import time

from edge.publish.entry import Entry
from edge.publish.mqtt.client import Connection
from edge.publish.mqtt.connection import Acknowledged, Waker
from edge.publish.mqtt.trouble import BrokerError, Trouble
from edge.publish.outbox import Outbox

__all__ = ["WINDOW", "Session"]

WINDOW = 10
# Topic, properties and headers of a packet take less than this besides payload and topic.
_HEADERS_BYTES = 160
_OVERSIZE = 0x95
# Refusals that may pass: unspecified, implementation specific, packet id in use, quota. All others are for good.
_PASSING = frozenset({0x80, 0x83, 0x91, 0x97})
_HOLD_MIN_S = 0.5
_HOLD_MAX_S = 30.0

_log = logging.getLogger(__name__)


class Session:
    """Sends from an outbox over one connection; used by one thread.

    At most `WINDOW` messages are on their way, fewer where the broker's Receive Maximum says so: that bounds what can
    be sent twice after a loss.
    """

    def __init__(self, connection: Connection, outbox: Outbox, *, root: str, ack_timeout_s: float) -> None:
        self._connection = connection
        self._outbox = outbox
        self._root = root
        self._ack_timeout_s = ack_timeout_s
        self._window = min(connection.limits.receive_maximum, WINDOW)
        self._on_their_way: dict[int, tuple[Entry, float]] = {}
        self._hold_s = _HOLD_MIN_S
        self._hold_until_s = 0.0
        self._refused_before: set[tuple[str, int]] = set()

    @property
    def is_ready(self) -> bool:
        """Whether another message could be sent now."""
        return len(self._on_their_way) < self._window and time.monotonic() >= self._hold_until_s

    def step(self, timeout_s: float, waker: Waker) -> bool:
        """See what has arrived, then send what may be sent: a goodbye of the broker is read before we write into it.

        Returns whether something was sent.

        Raises:
            BrokerError: when the connection is lost or nothing is acknowledged any more.
        """
        for event in self._connection.poll(timeout_s, waker):
            if isinstance(event, Acknowledged):
                self._settle(event)
        self._check_silence()
        return self._send()

    def _send(self) -> bool:
        has_sent = False
        while self.is_ready:
            entry = self._outbox.take()
            if entry is None:
                break
            payload = entry.encode()
            if self._is_oversize(entry, payload):
                self._give_up(entry, _OVERSIZE)
                continue
            packet_id = self._connection.publish(
                f"{self._root}/{entry.topic}",
                payload,
                is_retained=entry.is_retained,
                expiry_s=entry.expiry_s,
                user_properties=_user_properties(entry),
            )
            self._on_their_way[packet_id] = (entry, time.monotonic())
            has_sent = True
        return has_sent

    def _is_oversize(self, entry: Entry, payload: bytes) -> bool:
        limit = self._connection.limits.packet_bytes
        size = len(payload) + len(self._root) + len(entry.topic) + _HEADERS_BYTES
        return limit is not None and size > limit

    def _settle(self, event: Acknowledged) -> None:
        entry, _ = self._on_their_way.pop(event.packet_id, (None, 0.0))
        if entry is None:
            return
        if not event.is_refused:
            self._hold_s = _HOLD_MIN_S
            self._outbox.acknowledge(entry)
        elif event.reason in _PASSING:
            self._report_refusal(entry, event.reason)
            self._hold_until_s = time.monotonic() + self._hold_s
            self._hold_s = min(_HOLD_MAX_S, 2 * self._hold_s)
            self._outbox.put_back(entry)
        else:
            self._give_up(entry, event.reason)

    def _give_up(self, entry: Entry, reason: int) -> None:
        self._report_refusal(entry, reason)
        self._outbox.park(entry, "oversize" if reason == _OVERSIZE else "refused")

    def _report_refusal(self, entry: Entry, reason: int) -> None:
        """Say it once per connection, kind of message and reason."""
        if (entry.schema, reason) not in self._refused_before:
            self._refused_before.add((entry.schema, reason))
            what = "retrying" if reason in _PASSING else "given up; check the broker's access list and limits"
            _log.warning("message refused topic=%s reason=0x%02X: %s", f"{self._root}/{entry.topic}", reason, what)

    def _check_silence(self) -> None:
        for _, sent_at_s in self._on_their_way.values():
            if time.monotonic() - sent_at_s > self._ack_timeout_s:
                raise BrokerError(Trouble.LOST, f"nothing acknowledged for {self._ack_timeout_s:g} s")
            return


def _user_properties(entry: Entry) -> tuple[tuple[str, str], ...]:
    """Return what lets a consumer look for gaps without parsing."""
    if entry.number is None:
        return (("schema", entry.schema),) if entry.schema else ()
    return (("schema", entry.schema), ("epoch", str(entry.number.epoch)), ("seq", str(entry.number.seq)))
