"""Order, duplicates and missing numbers, from stories whose end is known."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.client.order import Late, Missing, Resequencer
from edge.publish.messages import GapMessage
from tests.support.wire_messages import detections, event

CAME = ("live", "replay", "came-although-named")
NAMED = ("named", "came-although-named")  # by a record that is not exact
FATES = (*CAME, "named", "declared", "unsaid")
WAIT_S = 10.0


def message(seq, *, epoch=41, is_replayed=False):
    return msgspec.structs.replace(detections(seq, epoch=epoch), replayed=is_replayed)


def gap(first, last, *, epoch=41, reason="spool-bytes", is_exact=True, of="detections"):
    count = None if last is None else last - first + 1
    return GapMessage(
        device="gate-01", stream="east", epoch=epoch, from_=first, to=last, count=count, reason=reason, exact=is_exact,
        of=of,
    )  # fmt: skip


def runs(numbers):
    """Return (first, last) of each run of numbers that follow each other."""
    found = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def arrivals(fates, epoch, copies):
    """Return what is sent of the numbers 1 to len(fates), each message `copies[number]` times."""
    sent = []
    for seq, fate in enumerate(fates, start=1):
        if fate in CAME:
            sent += [message(seq, epoch=epoch, is_replayed=fate == "replay")] * copies[seq % len(copies)]
    for kinds, reason, is_exact in ((("declared",), "oversize", True), (NAMED, "spool-bytes", False)):
        numbers = [seq for seq, fate in enumerate(fates, start=1) if fate in kinds]
        sent += [gap(*run, epoch=epoch, reason=reason, is_exact=is_exact) for run in runs(numbers)]
    return sent


def told(items):
    """Return (epoch, number, what became of it) in the order in which it is told."""
    lines = []
    for item in items:
        if isinstance(item, Missing):
            reason = item.reason or "unsaid"
            lines += [(item.epoch, seq, reason, item.is_exact) for seq in range(item.first, item.last + 1)]
        elif isinstance(item, Late):
            lines.append((item.message.epoch, item.message.seq, "late", None))
        else:
            lines.append((item.epoch, item.seq, "came", None))
    return lines


def truth(fates, epoch):
    """Return what is to be told of the numbers up to the last of which anything was heard."""
    words = {"named": ("spool-bytes", False), "declared": ("oversize", True), "unsaid": ("unsaid", False)}
    last = max(seq for seq, fate in enumerate(fates, start=1) if fate != "unsaid")
    return [
        (epoch, seq, *(("came", None) if fate in CAME else words[fate]))
        for seq, fate in enumerate(fates[:last], start=1)
    ]


some_fates = st.lists(st.sampled_from(FATES), max_size=25).map(lambda fates: ["live", *fates])
some_copies = st.lists(st.integers(1, 3), min_size=1, max_size=5)


@given(
    first=some_fates,
    second=some_fates,
    copies=some_copies,
    random=st.randoms(use_true_random=False),
    later=st.sampled_from([42, 3]),
)
def test_any_interleaving_gives_each_number_once_in_order_and_names_what_is_missing(
    first, second, copies, random, later
):
    begin, *sent = arrivals(first, 41, copies)
    sent += arrivals(second, later, copies)
    random.shuffle(sent)
    order = Resequencer(wait_s=WAIT_S, most_held=1000)

    items = list(order.enter(begin, 0.0))
    for epoch in (41, later):
        order.online("gate-01", epoch)
    items += [item for one in sent for item in order.enter(one, 0.0)]
    items += order.expire(WAIT_S)

    assert told(items) == truth(first, 41) + truth(second, later)


@given(
    fates=some_fates,
    copies=some_copies,
    random=st.randoms(use_true_random=False),
    pauses=st.lists(st.sampled_from([0.0, 1.0, 6.0, 20.0]), min_size=1, max_size=30),
    most_held=st.integers(1, 30),
    wait_s=st.sampled_from([0.0, 5.0, 10.0]),
)
def test_whatever_comes_too_late_nothing_is_lost_or_told_twice(fates, copies, random, pauses, most_held, wait_s):
    begin, *sent = arrivals(fates, 41, copies)
    random.shuffle(sent)
    order = Resequencer(wait_s=wait_s, most_held=most_held)
    now_s, items = 0.0, list(order.enter(begin, 0.0))
    for one, pause_s in zip(sent, itertools.cycle(pauses), strict=False):
        now_s += pause_s
        items += order.expire(now_s)
        items += order.enter(one, now_s)
    items += order.expire(now_s + wait_s)
    lines = told(items)

    given_on = [seq for _, seq, what, _ in lines if what in ("came", "late")]
    expected = truth(fates, 41)
    assert sorted(given_on) == [seq for _, seq, what, _ in expected if what == "came"]
    in_order = [seq for _, seq, what, _ in lines if what == "came"]
    assert in_order == sorted(in_order)
    named = {seq: what for _, seq, what, _ in lines if what not in ("came", "late")}
    for place, (_, seq, what, _) in enumerate(lines):
        earlier = {line[1] for line in lines[:place] if line[2] not in ("came", "late")}
        assert (seq in earlier) or what != "late", f"{seq} is late, and nobody has missed it"
        assert (seq not in earlier) or what != "came", f"{seq} was missed, and is said to be in order"
    lost = {seq: what for _, seq, what, _ in expected if what != "came"}
    assert {seq: named.get(seq) for seq in lost} == lost  # the last word on each


def passed(order, *messages, now_s=0.0):
    return told(item for one in messages for item in order.enter(one, now_s))


def test_what_an_exact_record_names_is_not_waited_for():
    order = Resequencer(wait_s=WAIT_S, most_held=10)
    assert passed(order, message(1), message(4)) == [(41, 1, "came", None)]

    assert passed(order, gap(2, 3)) == [
        (41, 2, "spool-bytes", True), (41, 3, "spool-bytes", True), (41, 4, "came", None)
    ]  # fmt: skip


def test_a_replay_that_goes_on_is_waited_for_and_one_that_stops_is_given_up():
    order = Resequencer(wait_s=WAIT_S, most_held=10)
    passed(order, message(1), message(5))
    assert passed(order, message(2, is_replayed=True), now_s=9.0) == [(41, 2, "came", None)]
    assert list(order.expire(18.9)) == []

    assert told(order.expire(19.0)) == [(41, 3, "unsaid", False), (41, 4, "unsaid", False), (41, 5, "came", None)]
    assert passed(order, message(3, is_replayed=True), now_s=20.0) == [(41, 3, "late", None)]
    assert passed(order, message(3), gap(3, 4), now_s=21.0) == [(41, 4, "spool-bytes", True)]


def test_a_hole_has_its_own_time_to_be_filled():
    order = Resequencer(wait_s=WAIT_S, most_held=10)
    passed(order, message(1), message(3))
    passed(order, message(5), now_s=9.0)

    assert told(order.expire(10.0)) == [(41, 2, "unsaid", False), (41, 3, "came", None)]
    assert told(order.expire(19.0)) == [(41, 4, "unsaid", False), (41, 5, "came", None)]


def test_what_was_sent_before_we_came_is_not_missed_and_late_when_it_comes():
    order = Resequencer(wait_s=WAIT_S, most_held=10)

    assert passed(order, message(5), message(3, is_replayed=True), message(3)) == [
        (41, 5, "came", None), (41, 3, "late", None)
    ]  # fmt: skip
    assert list(order.expire(100.0)) == []


def test_more_than_may_be_held_is_not():
    order = Resequencer(wait_s=WAIT_S, most_held=2)

    assert passed(order, message(1), message(4), message(3)) == [(41, 1, "came", None)]
    assert passed(order, message(6)) == [(41, 2, "unsaid", False), (41, 3, "came", None), (41, 4, "came", None)]


@pytest.mark.parametrize(
    ("online", "later"),
    [((), 44), ((41, 44), 44), ((41, 3), 3), ((44, 41, 3), 3)],
    ids=["by number", "next start", "replaced board", "board replaced twice"],
)
def test_an_older_epoch_is_late_once_a_newer_one_has_begun(online, later):
    order = Resequencer(wait_s=WAIT_S, most_held=10)
    passed(order, message(9))
    for epoch in online:
        order.online("gate-01", epoch)
    assert passed(order, message(1, epoch=later)) == []
    assert passed(order, message(10, is_replayed=True), now_s=5.0) == [(41, 10, "came", None)]
    assert list(order.expire(14.9)) == []
    assert told(order.expire(15.0)) == [(later, 1, "came", None)]

    assert passed(order, message(11), message(2, epoch=later), now_s=16.0) == [
        (41, 11, "late", None),
        (later, 2, "came", None),
    ]
    order.online("gate-01", later)  # a connection of the same start
    order.online("gate-01", later + 1)
    assert passed(order, message(12), message(1, epoch=later + 1), now_s=17.0) == [(41, 12, "late", None)]
    assert told(order.expire(27.0)) == [(later + 1, 1, "came", None)]


def test_a_board_that_is_put_back_goes_on_where_it_was():
    order = Resequencer(wait_s=WAIT_S, most_held=10)
    passed(order, message(1))
    order.online("gate-01", 3)
    passed(order, message(1, epoch=3), now_s=10.0)
    assert told(order.expire(20.0)) == [(3, 1, "came", None)]
    order.online("gate-01", 41)
    assert passed(order, message(2), now_s=20.0) == [(41, 2, "came", None)]

    assert passed(order, message(2, epoch=3), now_s=30.0) == [(3, 2, "late", None)]


def test_damage_to_what_was_kept_is_told_at_once_and_is_the_reason_of_what_does_not_come():
    order = Resequencer(wait_s=WAIT_S, most_held=10)
    passed(order, message(1))
    (found,) = order.enter(gap(1, None, reason="spool-corrupt", is_exact=False), 0.0)
    assert (found.first, found.last, found.reason, found.is_exact) == (1, None, "spool-corrupt", False)
    assert passed(order, message(3)) == []

    assert told(order.expire(10.0)) == [(41, 2, "spool-corrupt", False), (41, 3, "came", None)]


def test_events_and_streams_have_numbers_of_their_own():
    order = Resequencer(wait_s=WAIT_S, most_held=10)
    passed(order, message(1), message(3))

    assert passed(order, event(7), event(9), gap(8, 8, of="events")) == [
        (41, 7, "came", None), (41, 8, "spool-bytes", True), (41, 9, "came", None)
    ]  # fmt: skip
    assert passed(order, detections(5, stream="west")) == [(41, 5, "came", None)]
