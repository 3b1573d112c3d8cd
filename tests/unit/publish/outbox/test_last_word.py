"""When the last word on a stream is due, where messages of unknown streams are in the store only."""

import pytest

from edge.publish.outbox.lanes import Backlog, Retained
from edge.publish.outbox.message import Entry


class Place:
    def __init__(self, *, before_ticket):
        self.now_s = 0.0
        self.backlog = Backlog(live_s=60.0, now_s=lambda: self.now_s)
        self.retained = Retained(first_of=self.backlog.first_of, now_s=lambda: self.now_s)
        word = Entry("streams/east/state", bytes, 0, is_retained=True, behind="east")
        self.retained.put(word, before_ticket=before_ticket)

    @property
    def is_due(self):
        return bool(self.retained)


@pytest.mark.parametrize("is_event", [False, True])
def test_it_waits_for_what_is_older_on_the_disk_and_for_nothing_newer(is_event):
    place = Place(before_ticket=100)
    place.backlog.first_away[is_event] = 40
    assert not place.is_due
    place.backlog.first_away[is_event] = 99
    assert not place.is_due
    place.backlog.first_away[is_event] = 100
    assert place.is_due


def test_it_has_patience_as_long_as_the_disk_gives_some_back():
    place = Place(before_ticket=100)
    for first in range(10, 90, 10):
        place.backlog.first_away[False] = first
        assert not place.is_due
        place.now_s += 29.0
        assert not place.is_due
    place.now_s += 1.0
    assert place.is_due
