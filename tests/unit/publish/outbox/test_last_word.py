"""When the last word on a stream is due, where messages of unknown streams are on the disk only."""

import pytest

from edge.publish.outbox.backlog import Backlog
from edge.publish.outbox.entry import entry_from_message
from edge.publish.outbox.flight import Flight
from edge.publish.outbox.last_word import Lanes, LastWord
from edge.publish.outbox.losses import Losses
from tests.support.wire_messages import detections


class Place:
    def __init__(self, *, before_ticket):
        self.now_s = 0.0
        self.backlog = Backlog(live_s=60.0, now_s=lambda: self.now_s)
        lanes = Lanes(self.backlog, Flight(), Losses(device="gate-01"), lambda: self.now_s)
        self.word = LastWord("east", lanes, before_ticket=before_ticket)


@pytest.mark.parametrize("is_event", [False, True])
def test_it_waits_for_what_is_older_on_the_disk_and_for_nothing_newer(is_event):
    place = Place(before_ticket=100)
    place.backlog.first_away[is_event] = 40
    assert not place.word.is_due()
    place.backlog.first_away[is_event] = 99
    assert not place.word.is_due()
    place.backlog.first_away[is_event] = 100
    assert place.word.is_due()


def test_it_has_patience_as_long_as_the_disk_gives_some_back():
    place = Place(before_ticket=100)
    for first in range(10, 90, 10):
        place.backlog.first_away[False] = first
        assert not place.word.is_due()
        place.now_s += 29.0
        assert not place.word.is_due()
    place.now_s += 1.0
    assert place.word.is_due()


def test_what_was_let_go_on_the_disk_is_not_waited_for():
    place = Place(before_ticket=100)
    entry = entry_from_message(detections(1))
    place.backlog.append(entry)
    assert not place.word.is_due()
    place.backlog.take(may_replay=False)
    place.now_s = 5.0
    assert place.word.is_due(), "counted again"
