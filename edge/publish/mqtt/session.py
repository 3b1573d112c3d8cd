"""What happens between CONNACK and the loss of a connection: the window, acknowledgements, refusals."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from edge.publish.mqtt.client import Connection
from edge.publish.mqtt.connection import Acknowledged, Waker
from edge.publish.mqtt.poison import PoisonMessages
from edge.publish.mqtt.trouble import BrokerError, Trouble
from edge.publish.mqtt.window import Window
from edge.publish.outbox.entry import Entry, Number
from edge.publish.outbox.outbox import Outbox

__all__ = ["MqttSession"]

# Topic, properties and headers of a packet take less than this besides payload and topic.
_HEADERS_BYTES = 160
_OVERSIZE = 0x95
# Refusals that may pass: unspecified, implementation specific, packet id in use, quota. All others are for good.
_PASSING = frozenset({0x80, 0x83, 0x91, 0x97})
# So often one message is tried: 16 s at least, and no message stops all others for good.
_MOST_TRIES = 6
_HOLD_MAX_S = 30.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Sent:
    entry: Entry
    at_s: float
    size_bytes: int


class MqttSession:
    """Sends from an outbox over one connection; used by one thread.

    What is on its way is bounded by the `window`: so many can be sent twice after a loss. At most half of it is replay.
    A suspect, and what may be larger than the broker takes, goes alone.
    """

    def __init__(
        self,
        connection: Connection,
        outbox: Outbox,
        *,
        root: str,
        ack_timeout_s: float,
        poison: PoisonMessages,
        hold_min_s: float = 0.5,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._outbox = outbox
        self._root = root
        self._ack_timeout_s = ack_timeout_s
        self._poison = poison
        self._now_s = now_s
        self.window = Window(connection.limits.receive_maximum)
        self._on_their_way: dict[int, _Sent] = {}
        self._bytes = self._replays = self._taken = 0
        self._is_alone = False  # what waits next, or is on its way, goes alone
        self._hold_min_s = self._hold_s = hold_min_s
        self._hold_until_s = 0.0
        self._tries: dict[Entry | Number, int] = {}
        self._refused_before: set[tuple[str, int]] = set()

    @property
    def is_ready(self) -> bool:
        """Whether another message could be sent now."""
        if self._on_their_way and (self._is_alone or self._poison.is_careful):
            return False
        return self.window.has_room(len(self._on_their_way), self._bytes) and self._now_s() >= self._hold_until_s

    @property
    def has_work(self) -> bool:
        """Whether there is something that could be sent now."""
        return self.is_ready and self._outbox.has_more(may_replay=self._may_replay)

    @property
    def _may_replay(self) -> bool:
        return self._replays < max(1, self.window.size // 2)

    def step(self, timeout_s: float, waker: Waker) -> bool:
        """See what has arrived, then send what may be sent: a goodbye of the broker is read before we write into it.

        Returns whether something was sent.

        Raises:
            BrokerError: when the connection is lost or nothing is acknowledged any more.
        """
        # What waits for room in the window waits for acknowledgements: each makes room.
        is_hurried = self._outbox.has_more()
        for event in self._connection.poll(min(timeout_s, self._patience_s()), waker, is_hurried=is_hurried):
            if isinstance(event, Acknowledged):
                self._settle(event)
        self._check_silence()
        return not self._connection.is_lost and self._send()

    def lost(self, kind: Trouble) -> None:
        """Return all that is not acknowledged to the outbox, less what makes this broker close connections."""
        suspect, is_proven = None, False
        unsettled = [(sent.entry, sent.size_bytes) for sent in self._on_their_way.values()]
        if kind is Trouble.LOST:
            suspect, is_proven = self._poison.lost(unsettled, has_taken=self._taken > 0)
        self._outbox.put_back_all(suspect)
        if suspect is not None and is_proven:
            size_bytes = unsettled[0][1]
            self._outbox.park_suspect("oversize" if self._poison.is_too_large(size_bytes) else "refused")
            _log.warning(
                "message given up topic=%s bytes=%d: the broker closes the connection at it; check its limits",
                suspect.full_topic(self._root),
                size_bytes,
            )

    def _send(self) -> bool:
        has_sent = False
        while self.is_ready:
            entry = self._outbox.take(may_replay=self._may_replay)
            if entry is None:
                break
            payload = entry.encode()
            size_bytes = len(payload) + len(self._root) + len(entry.topic) + _HEADERS_BYTES
            if self._is_oversize(size_bytes):
                self._give_up(entry, _OVERSIZE)
                continue
            self._is_alone = self._poison.is_doubtful(size_bytes)
            if self._is_alone and self._on_their_way:
                self._outbox.put_back(entry)
                break
            self._send_one(entry, payload, size_bytes)
            has_sent = True
        return has_sent

    def _send_one(self, entry: Entry, payload: bytes, size_bytes: int) -> None:
        packet_id = self._connection.publish(
            entry.full_topic(self._root),
            payload,
            is_retained=entry.is_retained,
            expiry_s=entry.expiry_s,
            user_properties=_user_properties(entry),
        )
        self._on_their_way[packet_id] = _Sent(entry, self._now_s(), size_bytes)
        self._bytes += size_bytes
        self._replays += entry.is_replay

    def _is_oversize(self, size_bytes: int) -> bool:
        limit = self._connection.limits.packet_bytes
        return (limit is not None and size_bytes > limit) or self._poison.is_hopeless(size_bytes)

    def _settle(self, event: Acknowledged) -> None:
        sent = self._on_their_way.pop(event.packet_id, None)
        if sent is None:
            return
        self._bytes -= sent.size_bytes
        self._replays -= sent.entry.is_replay
        self.window.measured(self._now_s() - sent.at_s)
        if not event.is_refused:
            self._taken += 1
            self._hold_s = self._hold_min_s
            self._poison.took(sent.entry, sent.size_bytes)
            self._outbox.acknowledge(sent.entry)
        elif event.reason in _PASSING and self._may_try_again(sent.entry):
            self._report_refusal(sent.entry, event.reason, "retrying")
            self._hold_until_s = self._now_s() + self._hold_s
            self._hold_s = min(_HOLD_MAX_S, 2 * self._hold_s)
            self._outbox.put_back(sent.entry)
        else:
            self._give_up(sent.entry, event.reason)

    def _may_try_again(self, entry: Entry) -> bool:
        key = entry.number or entry
        tries = self._tries.pop(key, 0) + 1
        if tries < _MOST_TRIES:
            self._tries[key] = tries
        return tries < _MOST_TRIES

    def _give_up(self, entry: Entry, reason: int) -> None:
        self._report_refusal(entry, reason, "given up; check the broker's access list and limits")
        self._outbox.park(entry, "oversize" if reason == _OVERSIZE else "refused")

    def _report_refusal(self, entry: Entry, reason: int, what: str) -> None:
        """Say it once per connection, kind of message, reason and what becomes of it."""
        key = (f"{entry.schema} {what}", reason)
        if key not in self._refused_before:
            self._refused_before.add(key)
            _log.warning("message refused topic=%s reason=0x%02X: %s", entry.full_topic(self._root), reason, what)

    def _patience_s(self) -> float:
        """Return how long the oldest message may still be unacknowledged."""
        oldest = next(iter(self._on_their_way.values()), None)
        return math.inf if oldest is None else max(0.0, oldest.at_s + self._ack_timeout_s - self._now_s())

    def _check_silence(self) -> None:
        if self._patience_s() <= 0:
            raise BrokerError(Trouble.SILENT, f"nothing acknowledged for {self._ack_timeout_s:g} s")


def _user_properties(entry: Entry) -> tuple[tuple[str, str], ...]:
    """Return what lets a consumer look for gaps without parsing."""
    if entry.number is None:
        return (("schema", entry.schema),) if entry.schema else ()
    return (("schema", entry.schema), ("epoch", str(entry.number.epoch)), ("seq", str(entry.number.seq)))
