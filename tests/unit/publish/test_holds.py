"""A topic that a broker refuses for now waits alone, in its order."""

import msgspec

from edge.publish.mqtt.holds import Holds
from edge.publish.outbox.message import entry_from_message
from tests.support.model_broker import Clock
from tests.support.wire_messages import detections


def entries(count, stream="east"):
    made = [entry_from_message(detections(seq, stream=stream)) for seq in range(1, count + 1)]
    return [msgspec.structs.replace(entry, ticket=number) for number, entry in enumerate(made)]


def seqs(taken):
    return [entry.number.seq for entry in taken]


def test_a_window_that_is_refused_at_once_is_one_try_and_keeps_its_order():
    clock = Clock()
    holds = Holds(now_s=clock)
    sent = entries(10)

    assert [holds.refused(entry) for entry in sent] == [[]] * 10
    assert holds.due() is None
    clock.now_s += 0.6
    probe = holds.due()
    holds.answered(probe, is_taken=True)

    assert seqs([probe, *(holds.due() for _ in range(9))]) == list(range(1, 11))
    assert len(holds) == 0


def test_other_topics_do_not_wait_for_one_that_is_held():
    holds = Holds(now_s=Clock())
    (east,), (west,) = entries(1), entries(1, "west")
    holds.refused(east)

    assert holds.takes(west) is None
    assert list(holds.takes(entries(2)[1])) == []
    assert len(holds) == 2


def test_after_six_tries_a_message_is_given_up_and_after_the_next_one_all_that_wait():
    clock = Clock()
    holds = Holds(now_s=clock)
    first, second, third = entries(3)
    lost = holds.refused(first)
    for entry in (second, third):
        holds.takes(entry)
    for _ in range(5):
        assert lost == []
        clock.now_s += 40
        lost = holds.refused(holds.due())

    assert seqs(lost) == [1]
    clock.now_s += 40
    assert seqs(holds.refused(holds.due())) == [2, 3]


def test_of_a_hopeless_topic_nothing_waits_while_others_are_taken_and_all_does_while_none_is():
    clock = Clock()
    holds = Holds(now_s=clock)
    lost, (west,) = [], entries(1, "west")
    sent = entries(300)
    holds.refused(sent[0])
    for entry in sent[1:290]:
        lost += holds.takes(entry)
    assert lost == [], "no other topic tells that this one is alone"
    holds.answered(west, is_taken=True)
    assert seqs(holds.takes(sent[290])) == list(range(1, 36)), "the oldest, down to 256"
    for _ in range(6):
        clock.now_s += 40
        lost = holds.refused(holds.due())
    assert len(lost) > 200
    assert seqs(holds.takes(sent[299])) == [300]
