"""Session between CONNACK and the loss of a connection: the window, acknowledgements, refusals, trials."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from edge.publish.messages import GapMessage, GapReason
from edge.publish.mqtt.client import Connection, Waker
from edge.publish.mqtt.holds import Holds
from edge.publish.mqtt.stream import Acknowledged
from edge.publish.mqtt.suspects import Suspects
from edge.publish.mqtt.trouble import BrokerError, Trouble
from edge.publish.mqtt.window import Window
from edge.publish.outbox.message import Entry
from edge.publish.outbox.queue import Outbox

__all__ = ["MqttSession", "least_packet_bytes"]

# Topic, properties and headers of a packet take less than this besides payload and topic.
_HEADERS_BYTES = 160
_FAILURE, _OVERSIZE = 0x80, 0x95
# Refusals that may pass: unspecified, implementation specific, packet id in use, quota. All others are for good.
_PASSING = frozenset({0x80, 0x83, 0x91, 0x97})
# Innocent messages have a connection so long before a trial may end it, unless none waits.
_TRIAL_AFTER_S = 0.5
_MOST_APART = 1000
_MAX_BYTES = 1 << 20
# A trial is waited for so long, and a message may be overtaken by later ones so long before its topic is held.
_TRIAL_S, _TRIAL_ROUND_TRIPS = 2.0, 8
_OVERTAKEN_S, _OVERTAKEN_ROUND_TRIPS = 0.05, 2
# A topic counts as refused for so long at least: one that takes some messages is not told anew with each.
REFUSED_S = 30.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Sent:
    entry: Entry
    at_s: float
    size_bytes: int
    count: int  # of messages sent on this connection before it


class MqttSession:
    """Sends from an outbox over one connection; used by one thread.

    What is on its way is bounded by the `window`: so many can be sent twice after a loss. At most half of it is replay,
    and half retained. Suspects are sent in trials, with nothing else on its way; a topic refused for now is held alone.
    """

    def __init__(
        self,
        connection: Connection,
        outbox: Outbox,
        *,
        root: str,
        ack_timeout_s: float,
        suspects: Suspects,
        window: Window,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._outbox = outbox
        self._root = root
        self._ack_timeout_s = ack_timeout_s
        self._suspects = suspects
        self._now_s = now_s
        self._window = window
        window.begin(connection.limits.receive_maximum)
        self._on_their_way: dict[int, _Sent] = {}
        self._bytes = self._replays = self._taken = self._sent = 0
        self._last_taken = self._answered = self._overtaken = self._retained = 0
        self._holds = Holds(now_s=now_s)
        self._apart: deque[Entry] = deque()
        self._cleared: deque[Entry] = deque()
        self._is_trial = False
        self._trial_from_s = now_s() + (_TRIAL_AFTER_S if suspects.was_trial else 0.0)
        self._trial_until_s = 0.0
        self._refused_before: set[tuple[str, str, int | None]] = set()
        self._refused: dict[tuple[bool, str], tuple[str, float]] = {}  # why, and when last

    @property
    def is_ready(self) -> bool:
        """Whether another message could be sent now."""
        if self._is_trial or self._is_trial_due:
            return False
        if self._sent - self._answered >= self._window.most:
            return False
        return len(self._on_their_way) - self._overtaken < self._window.size and self._bytes < _MAX_BYTES

    @property
    def has_work(self) -> bool:
        """Whether there is something that could be sent now."""
        if self._is_trial_due:
            return self._is_drained
        if not self.is_ready:
            return False
        if self._cleared or self._holds.due_in_s <= 0:
            return True
        return self._may_take and self._outbox.has_more(may_replay=self._may_replay, may_retain=self._may_retain)

    @property
    def refusal(self) -> str | None:
        """What the broker refuses on this connection, for people; any thread may ask."""
        refused = dict(self._refused)
        if not refused:
            return None
        first = min(refused)  # of detections and events before that of a state
        all_ = f", {len(refused)} topics in all" if len(refused) > 1 else ""
        return f"the broker refuses {first[1]} ({refused[first][0]}){all_}: check its access list and limits"

    @property
    def is_trial(self) -> bool:
        """Whether suspects are on their way, and this connection has worked: its loss is of our own making."""
        return self._is_trial and self._taken > 0

    @property
    def _is_trial_due(self) -> bool:
        if self._is_trial or not self._apart or self._cleared or not self._taken:
            return False
        return self._now_s() >= self._trial_from_s

    @property
    def _is_drained(self) -> bool:
        """Whether nothing is on its way but what the broker has passed over: it answers in the order of arrival."""
        latest = next(reversed(self._on_their_way.values()), None)
        return latest is None or latest.count < self._last_taken

    @property
    def _may_take(self) -> bool:
        """Whether there is room for another message from the outbox that may have to wait here."""
        return self.is_ready and not self._holds.is_full and len(self._apart) < _MOST_APART

    @property
    def _may_replay(self) -> bool:
        return self._replays < max(1, self._window.size // 2)

    @property
    def _may_retain(self) -> bool:
        # Retained messages come first after each start: a broker that answers none of them must not stop the others.
        stuck = self._overtaken + (self._sent - self._answered) - len(self._on_their_way)
        retained = self._retained - self._overtaken
        return retained < max(1, self._window.size // 2) and stuck <= self._window.most // 2

    def step(self, timeout_s: float, waker: Waker) -> None:
        """See what has arrived, then send what may be sent: a goodbye of the broker is read before we write into it.

        Raises BrokerError when nothing is acknowledged any more, or all is lost.
        """
        # What waits for room in the window waits for acknowledgements: each makes room.
        is_hurried = self._outbox.has_more()
        timeout_s = min(timeout_s, self._patience_s(), self._due_in_s())
        for event in self._connection.poll(timeout_s, waker, is_hurried=is_hurried):
            if isinstance(event, Acknowledged):
                self._settle(event)
        self._end_trial()
        self._check_silence()
        if not self._connection.is_lost:
            self._send()

    def lost(self, trouble: BrokerError) -> None:
        """Return all that is not acknowledged to the outbox, less what makes this broker close connections."""
        unsettled = [(sent.entry, sent.size_bytes) for sent in self._on_their_way.values()]
        if trouble.kind is Trouble.NO_RETAIN:
            self._suspects.can_retain = False
        elif trouble.reason == _OVERSIZE and unsettled:
            largest, size_bytes = max(unsettled, key=lambda one: one[1])
            self._suspects.proven(largest, size_bytes)
            self._park(largest, size_bytes, "oversize")
        elif trouble.kind is Trouble.SILENT:
            # Where some were acknowledged, the oldest that is not may be what it is silent about, too.
            for sent in list(self._on_their_way.values())[: max(self._overtaken, self._taken > 0)]:
                if self._suspects.is_silent_again(sent.entry):
                    self._outbox.park(sent.entry, "refused", may_have_arrived=True)
        elif trouble.kind is Trouble.LOST:
            reason = self._suspects.lost(unsettled, has_taken=self._taken > 0, is_trial=self._is_trial)
            if reason is not None:
                self._park(*unsettled[0], reason)
        self._outbox.put_back_all()

    def _park(self, entry: Entry, size_bytes: int, reason: GapReason) -> None:
        self._outbox.park(entry, reason, may_have_arrived=True)
        _log.warning(
            "message dropped topic=%s bytes=%d: the broker closes the connection at it; check its limits",
            entry.full_topic(self._root),
            size_bytes,
        )

    def _send(self) -> None:
        if self._is_trial_due and self._is_drained:
            self._send_trial()
        while self.is_ready:
            entry = self._cleared.popleft() if self._cleared else self._holds.due() or self._next()
            if entry is None:
                break
            self._send_one(entry)
        is_time = self._now_s() >= self._trial_from_s
        if self._apart and is_time and not self._cleared and not self._is_trial and self._is_drained:  # none else waits
            self._send_trial()

    def _next(self) -> Entry | None:
        """Return the next message that may be sent now; those that may not are given up, held or set apart."""
        while self._may_take:
            entry = self._outbox.take(may_replay=self._may_replay, may_retain=self._may_retain)
            if entry is None:
                return None
            reason = self._refusal_of(entry)
            if reason is not None:
                self._give_up(entry, _OVERSIZE if reason == "oversize" else None)
            elif self._goes_apart(entry):
                self._apart.append(entry)
            elif (over := self._holds.takes(entry)) is None:
                return entry
            else:
                for one in over:
                    self._give_up(one, None)
        return None

    def _goes_apart(self, entry: Entry) -> bool:
        """Return whether a message is suspected, or one before it on its topic is, which it must not overtake."""
        if self._suspects.is_apart(entry):
            return True
        return any(one.topic == entry.topic for one in self._apart)

    def _refusal_of(self, entry: Entry) -> GapReason | None:
        limit = self._connection.limits.packet_bytes
        if limit is None and not self._suspects.has_findings:
            return None  # the usual case, in which no payload need be made for its size
        size_bytes = self._size_bytes(entry)
        return "oversize" if limit is not None and size_bytes > limit else self._suspects.verdict(entry, size_bytes)

    def _size_bytes(self, entry: Entry) -> int:
        return len(entry.encode()) + len(self._root) + len(entry.topic) + _HEADERS_BYTES

    def _send_trial(self) -> None:
        """Send some of those that are apart, with nothing else on its way."""
        room = self._window.most - (self._sent - self._answered)
        chosen = self._suspects.trial_of(self._apart, has_taken=self._taken > 0)
        tried = dict.fromkeys(chosen[: max(0, room)])
        self._apart = deque(entry for entry in self._apart if entry not in tried)
        self._is_trial = bool(tried)
        self._trial_until_s = self._now_s() + max(_TRIAL_S, _TRIAL_ROUND_TRIPS * (self._window.round_trip_s or 0.0))
        for entry in tried:
            self._send_one(entry)

    def _send_one(self, entry: Entry) -> None:
        payload = entry.encode()
        size_bytes = len(payload) + len(self._root) + len(entry.topic) + _HEADERS_BYTES
        packet_id = self._connection.publish(
            entry.full_topic(self._root),
            payload,
            is_retained=entry.is_retained and self._suspects.can_retain,
            expiry_s=entry.expiry_s,
            user_properties=_user_properties(entry),
        )
        self._on_their_way[packet_id] = _Sent(entry, self._now_s(), size_bytes, self._sent)
        self._sent += 1
        self._bytes += size_bytes
        self._replays += entry.is_replay
        self._retained += entry.is_retained

    def _land(self, packet_id: int) -> _Sent | None:
        sent = self._on_their_way.pop(packet_id, None)
        if sent is not None:
            self._bytes -= sent.size_bytes
            self._replays -= sent.entry.is_replay
            self._retained -= sent.entry.is_retained
        return sent

    def _end_trial(self) -> None:
        """End a trial that is acknowledged, or that is passed over: then all others need not wait for it."""
        now_s = self._now_s()
        if self._is_trial and (self._is_drained or now_s >= self._trial_until_s):
            self._is_trial = False
            apart, self._apart = self._apart, deque()
            for entry in apart:
                (self._apart if self._goes_apart(entry) else self._cleared).append(entry)
            pause_s = self._window.round_trip_s or 0.0  # in which the others get their turn
            self._trial_from_s = now_s + (pause_s if self._is_drained else _TRIAL_AFTER_S)

    def _settle(self, event: Acknowledged) -> None:
        self._answered += 1
        sent = self._land(event.packet_id)
        if sent is None:
            return
        self._last_taken = max(self._last_taken, sent.count)
        self._window.measured(self._now_s() - sent.at_s)
        if event.reason < _FAILURE:
            self._taken += 1
            if self._refused:
                self._accept_again(sent.entry)
            self._suspects.took(sent.entry, sent.size_bytes)
            self._holds.answered(sent.entry, is_taken=True)
            self._outbox.acknowledge(sent.entry)
        elif event.reason in _PASSING:
            lost = self._holds.refused(sent.entry)
            if not lost:
                self._report_refusal(sent.entry, event.reason, "retrying")
            for entry in lost:
                self._give_up(entry, event.reason)
        else:
            self._holds.answered(sent.entry, is_taken=False)
            self._give_up(sent.entry, event.reason)

    def _give_up(self, entry: Entry, code: int | None) -> None:
        """`code` None: it was not sent, as others of its kind broke it."""
        self._report_refusal(entry, code, "given up; check the broker's access list and limits")
        self._note_refusal(entry, _reason(code))
        self._outbox.park(entry, "oversize" if code == _OVERSIZE else "refused")

    def _report_refusal(self, entry: Entry, code: int | None, what: str) -> None:
        """Say it once per connection, kind of message, reason and what becomes of it."""
        key = (entry.schema, what, code)
        if key not in self._refused_before:
            self._refused_before.add(key)
            _log.warning("message refused topic=%s reason=%s: %s", entry.full_topic(self._root), _reason(code), what)

    def _place_of(self, entry: Entry) -> tuple[bool, str]:
        return entry.number is None, entry.full_topic(self._root)

    def _note_refusal(self, entry: Entry, reason: str) -> None:
        self._refused[self._place_of(entry)] = reason, self._now_s()

    def _accept_again(self, entry: Entry) -> None:
        """Forget all refusals once a topic is accepted again: a birth may not be sent again on this connection."""
        _, last_s = self._refused.get(self._place_of(entry), ("", math.inf))
        if self._now_s() - last_s >= REFUSED_S:
            self._refused.clear()

    def _due_in_s(self) -> float:
        """Return how long until something may be sent that waits for time alone."""
        trial_in_s = self._trial_from_s - self._now_s() if self._apart and not self._is_trial else math.inf
        return max(0.0, min(self._holds.due_in_s, trial_in_s)) if not self._on_their_way else math.inf

    def _patience_s(self) -> float:
        """Return how long the oldest message may still be unacknowledged that can be sent again, or ends all."""
        is_full = self._sent - self._answered >= self._window.most
        oldest = next(islice(self._on_their_way.values(), self._overtaken if is_full else 0, None), None)
        return math.inf if oldest is None else max(0.0, oldest.at_s + self._ack_timeout_s - self._now_s())

    def _check_silence(self) -> None:
        """End a silent connection; hold the topic of a message that is passed over, send it again, then give it up."""
        now_s = self._now_s()
        overtaken_s = max(_OVERTAKEN_S, _OVERTAKEN_ROUND_TRIPS * (self._window.round_trip_s or 0.0))
        self._overtaken = 0
        for packet_id, sent in list(self._on_their_way.items()):
            waited_s = now_s - sent.at_s
            if waited_s < overtaken_s:
                return
            if sent.count >= self._last_taken:  # nothing that was sent later is acknowledged either
                if waited_s >= self._ack_timeout_s:
                    raise BrokerError(Trouble.SILENT, f"nothing acknowledged for {self._ack_timeout_s:g} s")
                return
            self._overtaken += 1
            self._holds.pause(sent.entry.topic)
            if waited_s >= self._ack_timeout_s and self._sent - self._answered < self._window.most:
                self._land(packet_id)
                self._overtaken -= 1
                self._pass_over(sent)

    def _pass_over(self, sent: _Sent) -> None:
        entry = sent.entry
        if not self._suspects.is_silent_again(entry):
            self._send_one(entry)
            return
        _log.warning("message not acknowledged topic=%s: given up", entry.full_topic(self._root))
        self._outbox.park(entry, "refused", may_have_arrived=True)
        self._note_refusal(entry, "not acknowledged")
        for one in self._holds.end(entry.topic):
            self._give_up(one, None)
        given_up = self._sent - self._answered - len(self._on_their_way)
        if given_up > self._window.most // 2:  # they count for the broker as long as the connection lives
            raise BrokerError(Trouble.SILENT, f"never acknowledged {given_up} messages that were given up")


def _reason(code: int | None) -> str:
    return "as before" if code is None else f"0x{code:02X}"


def least_packet_bytes(device: str, root: str) -> int:
    """Return the size of the largest gap record: over a connection that does not take it losses cannot be declared."""
    longest, at = "x" * 32, "2026-11-20T10:15:02.113402Z"
    gap = GapMessage(
        device=device,
        stream=longest,
        epoch=1 << 53,
        from_=1 << 53,
        to=1 << 53,
        count=1 << 53,
        reason="spool-corrupt",
        first_at=at,
        last_at=at,
    )
    return len(gap.encode()) + len(root) + len(gap.topic) + _HEADERS_BYTES


def _user_properties(entry: Entry) -> tuple[tuple[str, str], ...]:
    """Return what lets a consumer look for gaps without parsing."""
    if entry.number is None:
        return (("schema", entry.schema),) if entry.schema else ()
    return (("schema", entry.schema), ("epoch", str(entry.number.epoch)), ("seq", str(entry.number.seq)))
