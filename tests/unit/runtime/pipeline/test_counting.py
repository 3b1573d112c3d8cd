"""The counts of a stream: one value at any time, told when it changes and no more than once a second."""

import pytest

from edge.media.camera import StreamStatus
from edge.runtime.serve.following import Counting
from edge.types import StreamId, StreamState
from tests.support import values
from tests.support.watching import header

EAST = StreamId("east")
SECOND_NS = 1_000_000_000
CAR, PERSON, BIRD, OTHER_CAR = 0, 1, 2, 3


class Stage:
    def __init__(self, **wanted):
        self.published, self.now_ns = [], 0
        self.counting = Counting(
            self,
            device="gate-01",
            epoch=41,
            labels=["car", "person", "bird", "car"],
            wanted=wanted,
            now_ns=lambda: self.now_ns,
            monotonic_ns=lambda: self.now_ns,
        )
        self.status(StreamState.UP)

    def publish(self, message):
        self.published.append(message)

    def see(self, *class_ids, after_s=1.0):
        self.now_ns += round(after_s * SECOND_NS)
        boxes = values.detections([[0] * 4] * len(class_ids), class_id=class_ids)
        self.counting.see([values.result(header(1), boxes)])

    def status(self, state):
        self.counting.change(StreamStatus(stream=EAST, state=state, reason="test", reconnects=0))

    def told(self):
        return [(one.state, one.total, one.objects) for one in self.published]


@pytest.fixture
def stage():
    return Stage(east=())


def test_classes_of_one_label_are_added_up(stage):
    stage.see(CAR, CAR, OTHER_CAR, PERSON)
    assert stage.told() == [("counting", 4, {"car": 3, "person": 1})]


def test_a_label_stays_once_it_was_there_and_the_ones_asked_for_are_there_from_the_first(stage):
    stage.see(CAR, CAR)
    stage.see(PERSON)
    stage.see()
    assert stage.told() == [
        ("counting", 2, {"car": 2}),
        ("counting", 1, {"car": 0, "person": 1}),
        ("counting", 0, {"car": 0, "person": 0}),
    ]

    asked = Stage(east=["bird", "car"])
    asked.see()
    assert asked.told() == [("counting", 0, {"bird": 0, "car": 0})]


def test_it_is_told_when_it_changes_at_most_once_a_second_and_the_newest_at_last(stage):
    for count in (1, 2, 3, 4, 5):
        stage.see(*[CAR] * count, after_s=0.25)
    assert [one.total for one in stage.published] == [1, 5]
    for _ in range(100):
        stage.see(*[CAR] * 5, after_s=0.24)
    assert len(stage.published) == 2, "nothing has changed"


def test_a_camera_that_gives_no_frames_shows_nothing_and_not_nobody(stage):
    stage.see(CAR)
    stage.status(StreamState.DOWN)
    stage.status(StreamState.DOWN)
    stage.see(CAR, CAR)  # a frame that was on its way
    stage.status(StreamState.CONNECTING)
    stage.status(StreamState.UP)
    stage.see(CAR, after_s=0.1)

    nothing = ("interrupted", None, {"car": None})
    assert stage.told() == [("counting", 1, {"car": 1}), nothing, ("counting", 1, {"car": 1})]


@pytest.mark.parametrize("end", [lambda stage: stage.status(StreamState.ENDED), lambda stage: stage.counting.stop()])
def test_at_the_end_nothing_is_counted_any_more(stage, end):
    stage.see(CAR)
    end(stage)
    stage.counting.stop()
    assert stage.told()[1:] == [("stopped", None, {"car": None})]


def test_a_stream_that_was_never_there_has_no_counts(stage):
    stage.status(StreamState.DOWN)
    stage.counting.stop()
    assert stage.published == []


def test_other_classes_begin_anew(stage):
    stage.see(CAR)
    stage.counting.begin(EAST, ["bird"])
    stage.see(CAR, after_s=0.1)  # a frame that was on its way
    stage.status(StreamState.UP)
    stage.see(BIRD, after_s=0.1)
    assert stage.told()[1:] == [("counting", 1, {"bird": 1})]


def test_a_class_without_a_label_has_a_name(stage):
    stage.see(7)
    assert stage.told() == [("counting", 1, {"class 7": 1})]


def test_a_stream_that_is_gone_is_told_of_no_more(stage):
    stage.see(CAR)
    stage.counting.forget(EAST)
    before = stage.told()
    stage.see(PERSON)  # a frame that was on its way
    stage.status(StreamState.DOWN)
    stage.counting.stop()
    assert stage.told() == before

    stage.counting.begin(EAST, ())
    stage.status(StreamState.UP)
    stage.see(PERSON)
    assert stage.told()[len(before) :] == [("counting", 1, {"person": 1})]
