import json
import threading
import time

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from edge.publish.messages import StreamStateMessage
from edge.publish.mqtt.subscriber import message_from_payload
from edge.publish.outbox.message import Entry, Number, entry_from_message
from edge.publish.outbox.queue import Outbox
from tests.support.wire_messages import birth, detections, event


def small_outbox(count=8):
    """One that lets the oldest go down to so many frames when there is one more."""
    frame_bytes = entry_from_message(detections(100)).cost_bytes
    return Outbox(device="gate-01", max_bytes=count * frame_bytes * 32 // 31 + 64)


def put_frames(outbox, first, last, stream="east"):
    for seq in range(first, last + 1):
        outbox.put(entry_from_message(detections(seq, stream=stream)))


def take_all(outbox):
    taken = []
    while (entry := outbox.take()) is not None:
        taken.append(entry)
    return taken


def seqs(entries):
    return [entry.number.seq for entry in entries if entry.number is not None]


def gaps(entries):
    found = [json.loads(entry.encode()) for entry in entries if entry.gap_count]
    return [(gap["stream"], gap["from"], gap["to"], gap["count"]) for gap in found]


def stream_state(state, stream="east"):
    return StreamStateMessage(device="gate-01", stream=stream, state=state, since=None)


def test_one_run_of_evicted_numbers_is_one_gap_record():
    outbox = small_outbox()
    put_frames(outbox, 1, 50)
    assert outbox.counts()["waiting_bytes"] <= outbox._max_bytes
    taken = take_all(outbox)

    (gap,) = gaps(taken)
    assert gap[:3] == ("east", 1, seqs(taken)[0] - 1)
    assert taken[0].gap_count, "the gap has to be told before what follows it"
    assert seqs(taken)[-1] == 50


def test_frames_never_push_out_state():
    outbox = small_outbox()
    outbox.put(entry_from_message(birth()))
    put_frames(outbox, 1, 100)

    assert take_all(outbox)[0].topic == "info"


def test_only_the_latest_state_of_a_topic_is_sent():
    outbox = small_outbox()
    for state in ("connecting", "up", "down"):
        outbox.put(entry_from_message(StreamStateMessage(device="gate-01", stream="east", state=state, since=None)))
    (entry,) = take_all(outbox)

    assert json.loads(entry.encode())["state"] == "down"
    outbox.acknowledge(entry)
    counts = outbox.counts()
    assert (counts["accepted"], counts["delivered"], counts["waiting"]) == (1, 1, 0)
    assert counts["dropped"] == 0


def test_after_a_reconnect_everything_unacknowledged_comes_again_in_order():
    outbox = small_outbox()
    put_frames(outbox, 1, 5)
    first, second, *_ = take_all(outbox)
    outbox.acknowledge(first)
    outbox.acknowledge(second)
    outbox.put_back_all()

    assert seqs(take_all(outbox)) == [3, 4, 5]


def test_after_a_reconnect_state_is_sent_again_and_counted_as_resent():
    outbox = small_outbox()
    outbox.put(entry_from_message(birth()))
    outbox.acknowledge(outbox.take())
    outbox.put_back_all()
    outbox.acknowledge(outbox.take())

    counts = outbox.counts()
    assert (counts["accepted"], counts["delivered"], counts["resent"]) == (1, 1, 1)


def test_a_state_that_is_sent_again_while_a_newer_one_overtakes_it_is_counted_once():
    outbox = small_outbox()
    state = StreamStateMessage(device="gate-01", stream="east", state="connecting", since=None)
    outbox.put(entry_from_message(state))
    outbox.acknowledge(outbox.take())
    outbox.put_back_all()
    again = outbox.take()
    outbox.put(entry_from_message(StreamStateMessage(device="gate-01", stream="east", state="up", since=None)))
    newer = outbox.take()
    outbox.acknowledge(newer)
    assert (outbox.counts()["delivered"], outbox.counts()["waiting"]) == (2, 0)
    outbox.acknowledge(again)
    assert (outbox.counts()["accepted"], outbox.counts()["delivered"]) == (2, 2)


def test_what_comes_back_is_late_by_its_own_time_though_newer_ones_are_not():
    now_s = 0.0
    outbox = Outbox(device="gate-01", live_s=2.0, now_s=lambda: now_s)
    for seq, at_s in ((1, 0.0), (2, 1.0)):
        outbox.put(msgspec.structs.replace(entry_from_message(detections(seq)), accepted_at_s=at_s))
    assert seqs([outbox.take()]) == [1]
    now_s = 2.5
    assert outbox.has_more()
    outbox.put_back_all()

    assert [(entry.number.seq, entry.is_replay) for entry in take_all(outbox)] == [(2, False), (1, True)]


def test_what_an_outbox_lets_go_is_declared_by_kind():
    outbox = Outbox(device="gate-01")
    for message in (detections(1), event(1), detections(2), event(2)):
        outbox.put(message)
    taken = [outbox.take() for _ in range(4)]
    for entry in sorted(taken, key=lambda entry: entry.number.seq):
        outbox.park(entry, "refused")

    gaps = [message_from_payload(outbox.take().encode()) for _ in range(2)]
    assert sorted((gap.of, gap.from_, gap.to, gap.count, gap.exact, gap.reason) for gap in gaps) == [
        ("detections", 1, 2, 2, True, "refused"),
        ("events", 1, 2, 2, True, "refused"),
    ]


def test_a_refused_gap_record_is_counted_as_lost():
    outbox = small_outbox()
    put_frames(outbox, 1, 1)
    outbox.park(outbox.take(), "refused")
    outbox.park(outbox.take(), "refused")

    counts = outbox.counts()
    assert (counts["numbered_in_gaps"], counts["numbered_lost"], counts["waiting"]) == (0, 1, 0)


def test_many_separate_losses_become_few_records():
    outbox = Outbox(device="gate-01")
    put_frames(outbox, 1, 2000)
    for index, entry in enumerate(take_all(outbox)):
        if index % 2:
            outbox.park(entry, "refused")
        else:
            outbox.acknowledge(entry)
    records = [json.loads(entry.encode()) for entry in take_all(outbox)]

    assert len(records) <= 256
    assert sum(record["count"] for record in records) == 1000
    assert not records[-1]["exact"]


def test_waiting_ends_when_all_is_settled():
    outbox = small_outbox()
    put_frames(outbox, 1, 1)
    assert outbox.has_more()

    assert not outbox.wait_idle(0)
    outbox.acknowledge(outbox.take())
    assert outbox.wait_idle(0)


def test_numbers_whose_gap_record_is_left_at_the_end_are_lost():
    outbox = small_outbox()
    put_frames(outbox, 1, 9)
    dropped = outbox.counts()["dropped"]
    assert outbox.counts()["numbered_in_gaps"] == dropped > 0

    outbox.end()
    outbox.end()
    counts = outbox.counts()
    assert (counts["numbered_in_gaps"], counts["numbered_lost"], counts["dropped"]) == (0, dropped, dropped)
    assert counts["numbered_waiting"] == 9 - dropped


def test_waiting_ends_when_nothing_more_is_sent():
    outbox = small_outbox()
    put_frames(outbox, 1, 1)
    outcome = []
    waiter = threading.Thread(target=lambda: outcome.append(outbox.wait_idle(10)))
    waiter.start()
    began = time.monotonic()
    outbox.end()
    waiter.join()

    assert outcome == [False]
    assert time.monotonic() - began < 5


def ended_behind(count, *, now_s=lambda: 0.0):
    """An outbox with frames of two streams on their way, and the word that one of them has ended."""
    outbox = Outbox(device="gate-01", now_s=now_s)
    put_frames(outbox, 1, count)
    put_frames(outbox, 1, count, "west")
    taken = take_all(outbox)
    outbox.put(entry_from_message(stream_state("ended")))
    return outbox, [entry for entry in taken if entry.number.stream == "east"]


def test_the_last_word_on_a_stream_waits_for_its_messages_and_for_no_others():
    outbox, of_east = ended_behind(3)
    for entry in of_east:
        assert not outbox.has_more()
        assert outbox.take() is None
        assert outbox.counts()["waiting"] > 0, "it is not forgotten"
        outbox.acknowledge(entry)

    assert outbox.has_more()
    assert outbox.take().behind == "east"


def test_the_last_word_comes_behind_the_record_of_what_was_lost():
    outbox, of_east = ended_behind(2)
    outbox.acknowledge(of_east[0])
    outbox.park(of_east[1], "refused")
    gap = outbox.take()

    assert gap.is_gap
    assert outbox.take() is None
    outbox.acknowledge(gap)
    assert outbox.take().behind == "east"


def test_the_last_word_is_held_half_a_minute_by_what_does_not_get_through():
    now_s = 0.0
    outbox, of_east = ended_behind(3, now_s=lambda: now_s)
    assert outbox.take() is None
    now_s = 29.0
    assert outbox.take() is None
    outbox.acknowledge(of_east[0])
    now_s = 58.0
    assert outbox.take() is None, "something got through"
    now_s = 89.0
    assert outbox.take().behind == "east"


def test_the_last_word_has_the_patience_of_a_new_connection():
    now_s = 0.0
    outbox, _ = ended_behind(3, now_s=lambda: now_s)
    assert outbox.take() is None
    outbox.put_back_all()
    now_s = 1000.0

    frames = take_all(outbox)
    assert [entry.behind for entry in frames] == [None] * 6
    for entry in frames:
        outbox.acknowledge(entry)
    assert outbox.take().behind == "east"


def test_a_sender_that_cannot_keep_up_is_fair_to_streams():
    """East gives six frames while west and north give one, and three of these eight are sent."""
    now_s = 0.0
    outbox = Outbox(device="gate-01", live_s=2.0, now_s=lambda: now_s)
    live = {"east": [], "west": [], "north": []}
    for step in range(1, 101):
        for stream, each in (("east", 6), ("west", 1), ("north", 1)):
            for seq in range(each * (step - 1) + 1, each * step + 1):
                entry = entry_from_message(detections(seq, stream=stream))
                outbox.put(msgspec.structs.replace(entry, accepted_at_s=now_s))
        for _ in range(3):
            entry = outbox.take(may_replay=False)
            live[entry.number.stream].append(entry.number.seq)
            outbox.acknowledge(entry)
        now_s += 0.1

    assert live["west"] == live["north"] == list(range(1, 101)), "all of theirs, in time and in their order"
    assert len(live["east"]) == 100
    assert live["east"] == sorted(live["east"])


def test_a_busy_stream_pushes_out_its_own_messages_only():
    outbox = small_outbox(count=64)
    put_frames(outbox, 1, 20, "west")
    put_frames(outbox, 1, 200)
    taken = take_all(outbox)

    assert [entry.number.seq for entry in taken if entry.number and entry.number.stream == "west"] == [*range(1, 21)]
    assert {stream for stream, *_ in gaps(taken)} == {"east"}


def test_the_bound_is_of_bytes_however_many_messages_that_are():
    outbox = Outbox(device="gate-01", max_bytes=64 << 20)
    for seq in range(1, 100_201):
        outbox.put(Entry("streams/east/detections", bytes, 0, number=Number("east", 41, seq, "")))
    assert (outbox.counts()["waiting"], outbox.counts()["dropped"]) == (100_200, 0)


def test_a_part_of_the_bound_is_freed_at_a_time():
    outbox = small_outbox(count=320)
    seq = 0
    while not outbox.counts()["dropped"]:
        seq += 1
        put_frames(outbox, seq, seq)
    assert outbox.counts()["dropped"] >= 10


STREAMS = st.sampled_from(["east", "west"])
ACTIONS = (
    *("publish", "publish", "publish_state", "publish_stream_state", "lose_connection", "lose_connection_at_a_message"),
    *["send"] * 6,
    *["settle"] * 4,
)


class OutboxMachine(RuleBasedStateMachine):
    """Whatever a connection does, each number is acknowledged, waiting, or named by a gap record."""

    def __init__(self):
        super().__init__()
        self.outbox = small_outbox()
        self.next = {"east": 1, "west": 1}
        self.in_flight = []
        self.acknowledged = {"east": set(), "west": set()}
        self.declared = {"east": set(), "west": set()}
        self.first_taken = {"east": [], "west": []}
        self.ended_behind = {}

    @rule(action=st.sampled_from(ACTIONS), data=st.data())
    def act(self, action, data):
        """One rule for all: of several, most runs leave out the one that sends, or all others."""
        getattr(self, action)(data.draw)

    def publish(self, draw):
        stream, count = draw(STREAMS), draw(st.integers(1, 12))
        put_frames(self.outbox, self.next[stream], self.next[stream] + count - 1, stream)
        self.next[stream] += count

    def publish_state(self, draw):
        self.outbox.put(Entry(draw(st.sampled_from(["info", "state"])), lambda: b"{}", 2, is_retained=True))

    def publish_stream_state(self, draw):
        stream, state = draw(STREAMS), draw(st.sampled_from(["ended", "ended", "up"]))
        self.outbox.put(entry_from_message(stream_state(state, stream)))
        before = self.ended_behind.get(stream)
        self.ended_behind[stream] = None if state != "ended" else before or self.next[stream] - 1

    def check_that_nothing_comes_behind(self, entry):
        if entry.behind is not None:
            due = set(range(1, self.ended_behind[entry.behind] + 1))
            assert due <= self.acknowledged[entry.behind] | self.declared[entry.behind]

    def send(self, draw):
        entry = self.outbox.take()
        if entry is None:
            return
        self.check_that_nothing_comes_behind(entry)
        self.in_flight.append(entry)
        if entry.number is not None:
            taken = self.first_taken[entry.number.stream]
            if entry.number.seq not in taken:
                taken.append(entry.number.seq)

    def settle(self, draw):
        if not self.in_flight:
            return
        entry = self.in_flight.pop(draw(st.integers(0, len(self.in_flight) - 1)))
        if draw(st.booleans()):
            self.acknowledge(entry)
        elif entry.number is not None:
            self.outbox.park(entry, "refused")
        else:
            self.in_flight.append(entry)

    def acknowledge(self, entry):
        self.outbox.acknowledge(entry)
        if entry.number is not None:
            self.acknowledged[entry.number.stream].add(entry.number.seq)
        for stream, first, last, _ in gaps([entry]):
            self.declared[stream] |= set(range(first, last + 1))

    def lose_connection(self, draw=None):
        self.in_flight.clear()
        self.outbox.put_back_all()

    def lose_connection_at_a_message(self, draw):
        entry = draw(st.sampled_from(self.in_flight)) if self.in_flight else None
        if entry is not None and not entry.gap_count:
            self.outbox.park(entry, "refused", may_have_arrived=True)
        self.lose_connection()

    @invariant()
    def the_balance_holds(self):
        counts = self.outbox.counts()
        assert counts["accepted"] == counts["delivered"] + counts["waiting"] + counts["dropped"]
        assert counts["numbered"] == sum(self.next.values()) - 2
        undelivered = [*self.outbox._flight, *self.outbox._backlog]
        assert counts["numbered_waiting"] == sum(entry.number is not None for entry in undelivered)

    @invariant()
    def frames_are_first_sent_in_order(self):
        for taken in self.first_taken.values():
            assert taken == sorted(taken)

    def teardown(self):
        self.lose_connection()
        while (entry := self.outbox.take()) is not None:
            self.check_that_nothing_comes_behind(entry)
            self.acknowledge(entry)
        for stream, following in self.next.items():
            assert self.acknowledged[stream] | self.declared[stream] == set(range(1, following))
        counts = self.outbox.counts()
        assert counts["numbered"] == counts["numbered_acknowledged"] + counts["numbered_in_gaps"]
        assert counts["waiting"] == 0


TestOutboxMachine = OutboxMachine.TestCase
TestOutboxMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_stranger_is_not_settled_twice():
    outbox = small_outbox()
    put_frames(outbox, 1, 1)
    entry = outbox.take()
    outbox.acknowledge(entry)
    outbox.acknowledge(entry)
    outbox.park(entry, "refused")

    counts = outbox.counts()
    assert (counts["delivered"], counts["dropped"], counts["waiting"]) == (1, 0, 0)
