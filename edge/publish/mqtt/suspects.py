"""Find the message, topic or kind of message at which a broker closes the connection or stays silent.

Some brokers give no reason: mosquitto closes at a packet over `max_packet_size` under MQTT v3.1.1, AWS IoT at a topic
that its policy does not allow. One of the messages on their way at the loss is then the cause. After the second loss
these messages are suspects until they are acknowledged: all others go on, and the suspects are tried apart. Brokers
answer in order, so that the first unanswered is tried alone, and the rest in a group, by turns. The message that breaks
a connection alone is given up; two such messages make their topic, or their size, the cause.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from edge.publish.messages import GapReason
from edge.publish.outbox.message import Entry, Number, live_topic_of

__all__ = ["Suspects"]

_LOSSES_BEFORE_SUSPICION = 2
# A single message is proven by its third loss, the last one alone, and not within seconds: a broker may be killed, or a
# network break, several times at the same message. Each working connection that breaks without it asks for one more.
_LOSSES_OF_ONE = 3
_PROVEN_AFTER_S = 5.0
_PROVEN_BEFORE_RULE = 2
_TRIAL_MOST = 32
_WATCHED_S = 60.0  # so long a topic of which one message was given up is tried apart from the others
_BLOCKED_MIN_S, _BLOCKED_MAX_S = 60.0, 600.0
_SIZE_BELIEVED_S = 600.0  # the limit may have been raised

_Key = Number | str | bytes
_Scope = tuple[str, str]  # ("topic", name), ("tree", first level), ("retained", "")


@dataclass(slots=True)
class _Record:
    """The evidence about one scope. `proven` are at most two: of a topic since its last acknowledgement, else ever."""

    proven: set[_Key] = field(default_factory=set)
    least_proven_bytes: int = 0
    times_oversize: int = 0
    is_taken: bool = False
    largest_taken_bytes: int = 0
    watched_until_s: float = 0.0
    blocked_s: float = 0.0
    blocked_until_s: float | None = None
    is_silent: bool = False

    def is_watched(self, now_s: float) -> bool:
        return (self.blocked_until_s is not None and not self.is_silent) or now_s < self.watched_until_s

    def block(self, now_s: float) -> None:
        self.blocked_s = min(_BLOCKED_MAX_S, max(_BLOCKED_MIN_S, 2 * self.blocked_s))
        self.blocked_until_s = now_s + self.blocked_s


@dataclass(slots=True)
class _Losses:
    """Losses of connections since a message or topic was acknowledged last.

    `count`: with it on its way. `others`: without it, of connections that worked, and with no trial under way.
    `is_head`: it was the first unanswered at one of them, or the first one's topic; a broker answers in order.
    """

    first_s: float
    count: int = 0
    others: int = 0
    is_suspected: bool = False
    is_head: bool = False

    def are_enough(self, least: int) -> bool:
        return self.count >= least + self.others


class Suspects:
    """Lives as long as its publisher; used by one thread. Sizes are those of whole packets, in bytes.

    `can_retain` is false once two retained topics were proven and no retained message was ever taken: they are sent
    without the flag from then on. `was_trial` says that the loss before was that of a trial, `has_findings` that
    there was a loss at all.
    """

    def __init__(self, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._losses = 0
        self._are_retained_suspected = False  # they come first after each start: few of many are on their way at a loss
        self._lost: dict[_Key, _Losses] = {}
        self._silent: set[_Key] = set()
        self._records: dict[_Scope, _Record] = {}
        self._largest_taken_bytes = 0
        self._size_proven_at_s = float("-inf")
        self.has_findings = False
        self.can_retain = True
        self.was_trial = self._is_turn_of_heads = False

    def verdict(self, entry: Entry, size_bytes: int) -> GapReason | None:
        """Return the reason for which a message is not to be sent at all; None: it may be."""
        if not self.has_findings:
            return None
        if self._is_oversize(entry, size_bytes):
            return "oversize"
        now_s = self._now_s()
        blocks = (record.blocked_until_s for record in self._records_of(entry))
        return "refused" if any(until_s is not None and now_s < until_s for until_s in blocks) else None

    def is_apart(self, entry: Entry) -> bool:
        """Return whether a message may only go in a trial: a suspect, or of a topic that is watched or was blocked."""
        if not self.has_findings:
            return False
        if entry.is_retained and self._are_retained_suspected and not self._is_topic_taken(entry):
            return True
        return any(one.is_suspected for one in self._losses_of(entry)) or self._is_watched(entry)

    def took(self, entry: Entry, size_bytes: int) -> None:
        """Record that the broker has acknowledged a message: neither it nor its scopes are the cause."""
        if self.has_findings:
            self._clear(entry)
            self._silent.discard(_key(entry))
            if not any(one.is_suspected for one in self._lost.values()):
                self._are_retained_suspected = False
        self._largest_taken_bytes = max(self._largest_taken_bytes, size_bytes)
        for scope in _scopes(entry):
            record = self._records.setdefault(scope, _Record())
            record.is_taken, record.is_silent, record.blocked_until_s, record.blocked_s = True, False, None, 0.0
            record.largest_taken_bytes = max(record.largest_taken_bytes, size_bytes)
            if scope[0] == "topic":
                record.proven.clear()

    def lost(
        self, on_their_way: Sequence[tuple[Entry, int]], *, has_taken: bool, is_trial: bool = False
    ) -> GapReason | None:
        """Record a lost connection; return the reason to declare where its one message is proven to be the cause.

        `on_their_way` are the unacknowledged with the sizes of their packets. Only where it `has_taken` others did it
        break at these. `is_trial`: all of them were sent apart.
        """
        if not on_their_way:
            return None
        keys, topics = {_key(entry) for entry, _ in on_their_way}, {_topic(entry) for entry, _ in on_their_way}
        self._losses += 1
        self.has_findings, self.was_trial = True, is_trial
        self._is_turn_of_heads = is_trial and len(on_their_way) > 1
        is_suspicious = is_trial or self._losses >= _LOSSES_BEFORE_SUSPICION
        for one in keys | topics:
            losses = self._lost.setdefault(one, _Losses(self._now_s()))
            losses.count += 1
            losses.is_suspected |= is_suspicious
        for losses in self._losses_of(on_their_way[0][0]):
            losses.is_head = True
        if has_taken and not is_trial:
            for one in self._lost.keys() - keys - topics:
                self._lost[one].others += 1
        self._are_retained_suspected |= is_suspicious and any(entry.is_retained for entry, _ in on_their_way)
        if len(keys) > 1 or not has_taken:
            return None
        (entry, size_bytes), (key,) = on_their_way[0], keys
        losses = self._lost[key]
        if self._is_watched(entry):
            is_proven = losses.are_enough(1)
        else:
            is_old = self._now_s() - losses.first_s >= _PROVEN_AFTER_S
            is_proven = is_old and losses.are_enough(_LOSSES_OF_ONE)
        return self.proven(entry, size_bytes) if is_proven else None

    def forgive(self) -> None:
        """Take the losses so far for the network's or the broker's own: it could not be reached after the last one."""
        self._losses, self._are_retained_suspected = 0, False
        self._lost.clear()

    def is_silent_again(self, entry: Entry) -> bool:
        """Record that a message is not acknowledged while later ones are; return whether this happens again.

        Its topic is then blocked for a while. It is not tried apart: a trial would wait for it, and all others with it.
        """
        key = _key(entry)
        is_again, self.has_findings = key in self._silent, True
        self._silent.add(key)
        if is_again:
            self._silent.discard(key)
            self._clear(entry)
            record = self._records.setdefault(("topic", _topic(entry)), _Record())
            record.is_silent = True
            record.block(self._now_s())
        return is_again

    def trial_of(self, apart: Sequence[Entry], *, has_taken: bool) -> list[Entry]:
        """Return those to try together: all of topics that were never the first to be unanswered, or one of another.

        The two take turns. Without `has_taken` the one that was lost least comes first, since a message is proven only
        by the loss of a connection that works.
        """
        first_of: dict[str, Entry] = {}  # the order of each topic is kept
        for one in apart:
            first_of.setdefault(one.topic, one)
        if not has_taken:
            return [min(reversed(first_of.values()), key=lambda one: (one.is_retained, self._strikes(one)))]
        blamed = {_topic(one) for one in apart if any(losses.is_head for losses in self._losses_of(one))}
        others = [one for one in apart if _topic(one) not in blamed]
        if others and not (blamed and self._is_turn_of_heads):
            return others[:_TRIAL_MOST]
        heads = (one for one in first_of.values() if _topic(one) in blamed)
        return [max(heads, key=lambda one: self._lost[_key(one)].count if _key(one) in self._lost else 0)]

    def _strikes(self, entry: Entry) -> int:
        return max((one.count for one in self._losses_of(entry)), default=0)

    def _losses_of(self, entry: Entry) -> Iterator[_Losses]:
        return (self._lost[one] for one in {_key(entry), _topic(entry)} if one in self._lost)

    def proven(self, entry: Entry, size_bytes: int) -> GapReason:
        """Record a message at which this broker breaks, and return the reason to declare for it.

        A scope is the cause from there on where its evidence is enough.
        """
        key, now_s = _key(entry), self._now_s()
        self._losses, self.has_findings = 0, True
        self._clear(entry)
        topic = self._records.setdefault(("topic", _topic(entry)), _Record())
        is_oversize = topic.is_taken and size_bytes > self._largest_taken_bytes
        if is_oversize:
            topic.times_oversize += 1
            topic.least_proven_bytes = min(size_bytes, topic.least_proven_bytes or size_bytes)
            self._size_proven_at_s = now_s
        topic.watched_until_s = now_s + _WATCHED_S
        for scope in _scopes(entry):
            record = self._records.setdefault(scope, _Record())
            is_topic = scope[0] == "topic"
            record.proven = {*list(record.proven)[: _PROVEN_BEFORE_RULE - 1], key if is_topic else entry.topic}
            # Another wording of a retained message is the same message: its topic is proven with it.
            is_enough = len(record.proven) >= _PROVEN_BEFORE_RULE or (is_topic and entry.is_retained)
            if not is_enough or (record.is_taken and not is_topic):
                continue
            if scope[0] == "retained":
                self.can_retain = False
                self._records = {one: known for one, known in self._records.items() if known.is_taken}
            else:
                record.block(now_s)
        return "oversize" if is_oversize else "refused"

    def _clear(self, entry: Entry) -> None:
        for one in (_key(entry), _topic(entry)):
            self._lost.pop(one, None)

    def _is_topic_taken(self, entry: Entry) -> bool:
        record = self._records.get(("topic", _topic(entry)))
        return record is not None and record.is_taken

    def _is_watched(self, entry: Entry) -> bool:
        """Return whether a message of its scopes was proven lately: one more loss, alone, is then enough."""
        now_s = self._now_s()
        return any(one.is_watched(now_s) for one in self._records_of(entry))

    def _is_oversize(self, entry: Entry, size_bytes: int) -> bool:
        """Return whether a packet is as large as two that were proven, on its own topic or on two topics."""
        if self._now_s() >= self._size_proven_at_s + _SIZE_BELIEVED_S:
            return False
        own = self._records.get(("topic", _topic(entry)))
        if own is not None and own.times_oversize >= _PROVEN_BEFORE_RULE and own.least_proven_bytes <= size_bytes:
            return own.least_proven_bytes > own.largest_taken_bytes
        least = [one.least_proven_bytes for one in self._records.values() if one.least_proven_bytes]
        larger = [size for size in least if size > self._largest_taken_bytes]
        return len(larger) >= _PROVEN_BEFORE_RULE and size_bytes >= min(larger)

    def _records_of(self, entry: Entry) -> Iterator[_Record]:
        return (self._records[scope] for scope in _scopes(entry) if scope in self._records)


def _key(entry: Entry) -> _Key:
    """Return the identity of a message over retries; a retained one is known by its topic, however it is worded."""
    if entry.is_retained:
        return entry.topic
    return entry.number or entry.encode()


def _topic(entry: Entry) -> str:
    """Return the topic by which a message is judged: late detections are those of their stream."""
    return live_topic_of(entry) if entry.is_replay else entry.topic


def _scopes(entry: Entry) -> Iterator[_Scope]:
    yield "topic", _topic(entry)
    if entry.is_absolute:
        yield "tree", entry.topic.partition("/")[0]
    if entry.is_retained:
        yield "retained", ""
