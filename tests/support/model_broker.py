"""A broker as a function of topic, size and retain flag, on a clock of its own; and a publisher's loop over it.

The loop is that of `edge.publish.mqtt.publisher`, without threads: real session, suspects, outbox and back-off.
"""

import json
import math
import random
from collections import defaultdict
from dataclasses import dataclass, field

import msgspec

from edge.publish.messages import StateMessage
from edge.publish.mqtt.client import MqttLimits
from edge.publish.mqtt.session import MqttSession
from edge.publish.mqtt.stream import Acknowledged
from edge.publish.mqtt.suspects import Suspects
from edge.publish.mqtt.trouble import BrokerBackoff, BrokerError, Trouble, trouble_from_reason
from edge.publish.mqtt.window import Window
from edge.publish.outbox.message import Entry, Number, entry_from_message
from edge.publish.outbox.queue import Outbox
from tests.support.wire_messages import birth, detections

ROOT = "edge/v1/north/gate-01"
LIVE_S = 2.0


@dataclass(frozen=True)
class Published:
    topic: str
    size_bytes: int
    is_retained: bool
    payload: bytes


class Clock:
    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


class ModelConnection:
    """Answers in the order of arrival, after a round trip; `answer` gives 0, a reason code, None (never) or `close`.

    The network breaks after `lives_s`, whatever is under way.
    """

    def __init__(self, clock, answer, *, round_trip_s, receive_maximum, lost_acks, seen, lives_s=math.inf):
        self.limits = MqttLimits(receive_maximum=receive_maximum)
        self._clock, self._answer, self._round_trip_s, self._lost_acks, self._seen = (
            clock,
            answer,
            round_trip_s,
            lost_acks,
            seen,
        )
        self._events: list[tuple[float, Acknowledged]] = []
        self._unanswered = 0
        self._ids = 0
        self._loss: tuple[float, BrokerError] | None = None
        self._break = clock() + lives_s, BrokerError(Trouble.LOST, "broken")

    @property
    def _end(self):
        return min((one for one in (self._loss, self._break) if one is not None), key=lambda one: one[0])

    @property
    def is_lost(self):
        return self._clock() >= self._end[0]

    def publish(self, topic, payload, *, is_retained, expiry_s=None, user_properties=()):
        self._ids += 1
        self._unanswered += 1
        assert self._unanswered <= self.limits.receive_maximum, "Receive Maximum is exceeded"
        if self._loss is None:
            at_s = self._clock() + self._round_trip_s
            published = Published(topic, len(payload), is_retained, payload)
            answer = self._answer(published)
            if answer == "close" or isinstance(answer, BrokerError):
                trouble = answer if isinstance(answer, BrokerError) else BrokerError(Trouble.LOST, "closed")
                self._loss = (at_s, trouble)
                del self._events[max(0, len(self._events) - self._lost_acks) :]
            elif answer is not None:
                self._events.append((at_s, Acknowledged(self._ids, answer)))
                if answer == 0:
                    self._seen.append((at_s, published))
        return self._ids

    def poll(self, timeout_s, waker=None, *, is_hurried=False):
        next_s = min([at_s for at_s, _ in self._events[:1]] + [self._end[0]])
        self._clock.now_s = max(self._clock.now_s, min(self._clock() + max(timeout_s, 1e-4), next_s))
        due = [event for at_s, event in self._events if at_s <= min(self._clock(), self._end[0])]
        del self._events[: len(due)]
        self._unanswered -= len(due)
        if not due and self.is_lost:
            raise self._end[1]
        return due


def disconnect(code):
    """What a DISCONNECT with a reason code makes of a connection with messages on their way."""
    return trouble_from_reason(code, "test", is_about_messages=True)


@dataclass
class Outcome:
    published: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    arrived: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    declared: dict[str, dict[int, tuple[float, str]]] = field(default_factory=lambda: defaultdict(dict))
    connections: int = 0
    steps: int = 0
    undeclared: int = 0

    def share_in_time(self, stream, until_s):
        """The share of a stream's messages that arrived while they were live."""
        asked = {seq: at_s for seq, at_s in self.published[stream].items() if at_s < until_s - LIVE_S}
        got = self.arrived[stream]
        return sum(seq in got and got[seq] - at_s <= LIVE_S + 0.5 for seq, at_s in asked.items()) / len(asked)

    def unaccounted(self, stream, before_s):
        """The numbers published before a time of which nobody has heard."""
        known = self.arrived[stream].keys() | self.declared[stream].keys()
        return sorted(seq for seq, at_s in self.published[stream].items() if at_s < before_s and seq not in known)

    def reasons(self, stream):
        return {reason for _, reason in self.declared[stream].values()}


class _Device:
    """What publishes: streams at a rate, a birth, announcements; all into a real outbox."""

    def __init__(self, clock, *, streams, fps, objects, announcements, rng):
        self.outbox = Outbox(device="gate-01", live_s=LIVE_S, now_s=clock)
        self.outcome = Outcome()
        self._clock, self._fps, self._objects = clock, fps, objects
        self._due = {stream: clock() + rng.random() / fps for stream in streams}
        self._seqs = dict.fromkeys(streams, 0)
        self._put(entry_from_message(birth(*streams)))
        for number in range(announcements):
            topic = f"homeassistant/binary_sensor/gate-01/{number}/config"
            self._put(Entry(topic, lambda: b"{}", 2, is_retained=True, is_absolute=True))

    @property
    def next_due_s(self):
        return max(1e-4, min(self._due.values()) - self._clock())

    def publish_due(self):
        for stream, seq in self._seqs.items():
            while self._due[stream] <= self._clock():
                self._due[stream] += 1 / self._fps
                seq += 1
                self._put(entry_from_message(detections(seq, stream=stream, count=self._objects(stream, seq))))
                self.outcome.published[stream][seq] = self._clock()
            self._seqs[stream] = seq

    def put_events(self, stream, count):
        for seq in range(1, count + 1):
            number = Number(stream, 41, seq, "2026-11-20T10:15:02.113402Z", of="events")
            self._put(Entry(f"streams/{stream}/events", lambda: b"{}", 2, schema="edge.event/1", number=number))

    def wait(self, seconds):
        until_s = self._clock() + seconds
        while self._clock() < until_s:
            self._clock.now_s = min(until_s, self._clock() + self.next_due_s)
            self.publish_due()

    def _put(self, entry):
        self.outbox.put(msgspec.structs.replace(entry, accepted_at_s=self._clock()))


def run(
    answer,
    *,
    seconds=90.0,
    fps=10.0,
    streams=("east", "west"),
    objects=lambda stream, seq: 1,
    announcements=0,
    round_trip_s=0.002,
    receive_maximum=20,
    lost_acks=0,
    backlog=0,
    seed=0,
    lives_s=lambda rng: math.inf,
):
    """Publish for so long; return what came of it, and when the clock, which begins at 1000 s, stood still."""
    rng, clock, seen = random.Random(seed), Clock(), []
    device = _Device(clock, streams=streams, fps=fps, objects=objects, announcements=announcements, rng=rng)
    device.put_events("west", backlog)
    suspects, window, backoff = Suspects(now_s=clock), Window(now_s=clock), BrokerBackoff(uniform=rng.uniform)
    state, end_s = StateMessage(device="gate-01", state="online", since=None), clock() + seconds
    while clock() < end_s:
        connection = ModelConnection(
            clock,
            answer,
            round_trip_s=round_trip_s,
            receive_maximum=receive_maximum,
            lost_acks=lost_acks,
            seen=seen,
            lives_s=lives_s(rng),
        )
        device.outcome.connections += 1
        clock.now_s += round_trip_s
        worded = msgspec.structs.replace(state, session=device.outcome.connections)
        device.outbox.put(worded)
        session = MqttSession(
            connection,
            device.outbox,
            root=ROOT,
            ack_timeout_s=15.0,
            suspects=suspects,
            window=window,
            now_s=clock,
        )
        began_s = clock()
        try:
            while clock() < end_s:
                device.publish_due()
                device.outcome.steps += 1
                session.step(0 if session.has_work else min(1.0, device.next_due_s), None)
        except BrokerError as trouble:
            is_trial = session.is_trial
            session.lost(trouble)
            lived_s = clock() - began_s
            device.wait(backoff.delay_s(trouble.kind, lived_s=lived_s, now_s=clock(), is_trial=is_trial))
    _read(seen, device.outcome)
    device.outcome.undeclared = device.outbox.counts()["numbered_lost"]
    return device.outcome, end_s


def _read(seen, outcome):
    for at_s, published in seen:
        content = json.loads(published.payload)
        tail = published.topic.rpartition("/")[2]
        if tail in ("detections", "replay"):
            outcome.arrived[content["stream"]].setdefault(content["seq"], at_s)
        elif tail == "gaps" and content["of"] == "detections":
            for seq in range(content["from"], content["to"] + 1):
                outcome.declared[content["stream"]].setdefault(seq, (at_s, content["reason"]))
