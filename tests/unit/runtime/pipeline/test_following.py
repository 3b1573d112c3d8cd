"""The stage between boxes and messages: what is published, in which order, and what a camera that goes away means."""

import itertools
import json
import logging
import threading

import pytest

from edge.config.pipeline import load_pipeline
from edge.media.camera import StreamStatus
from edge.publish.events import EventPublisher
from edge.publish.message import ModelInfo, RunInfo
from edge.publish.messages import EventMessage, OccupancyMessage
from edge.runtime.serve.following import Following, make_followers
from edge.track.bytetrack import ByteTracker
from edge.track.events import LineTotals, Occupancy
from edge.track.follow import Follower, WatchRules
from edge.track.geometry import Line, Zone
from edge.types import StreamId, StreamState
from tests.support.logged import logged
from tests.support.service_parts import Kept
from tests.support.watching import result

EAST = StreamId("east")
WHOLE = Zone(id="yard", polygon=((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)))
GATE = Line(id="gate", start=(0.5, 1.0), end=(0.5, 0.0))
PARKED = (400, 200, 500, 260)


class Stage:
    def __init__(self, *streams, is_up=True):
        self.kept, self.frames = Kept(), []
        rules = WatchRules(zones=[WHOLE], lines=[GATE], anchor="bottom", settle_s=0.2, lost_s=1.0, classes=2)
        followers = {stream: Follower(ByteTracker(lost_s=1.0, sure_score=0.5), rules) for stream in streams or (EAST,)}
        info = RunInfo(41, [], "gate-01", ["car"], ModelInfo(name="tiny", precision="int8"))
        events = EventPublisher(self.kept, info, is_synced=lambda: None)
        clock = itertools.count(10**9, 10**9)
        self.following = Following(followers, events, now_ns=lambda: 0, monotonic_ns=lambda: next(clock))
        if is_up:
            self.status(StreamState.UP)

    def give(self, *results):
        self.following.follow(results, self.frames.append)

    def status(self, state):
        self.following.change(StreamStatus(stream=EAST, state=state, reason="test", reconnects=0))

    def told(self):
        return [(event.kind, event.zone or event.line, event.reason) for event in self.kept.of(EventMessage)]


@pytest.fixture
def stage():
    return Stage()


def parked(first, count):
    return [result(first + i, PARKED) for i in range(count)]


def test_frames_carry_the_numbers_of_their_objects(stage):
    stage.give(*parked(1, 3))

    assert [frame.track_id.tolist() for frame in stage.frames] == [[0], [1], [1]]


def test_a_stream_that_is_not_followed_is_handed_on_as_it_is():
    stage = Stage(StreamId("west"))
    frame = result(1, PARKED)
    stage.give(frame)

    assert stage.frames == [frame]
    assert stage.frames[0] is frame
    assert stage.kept.messages == []


def test_events_come_after_their_frame_with_numbers_of_their_own(stage):
    stage.give(*[result(i, (20 * i, 200, 20 * i + 100, 260)) for i in range(1, 40)])
    events = stage.kept.of(EventMessage)

    assert [(event.seq, event.kind) for event in events] == [(1, "appear"), (2, "cross")]
    assert {(event.device, event.stream, event.epoch) for event in events} == {("gate-01", "east", 41)}
    assert (events[1].line, events[1].direction, events[1].zone, events[1].frame) == ("gate", "forward", None, 23)
    assert events[1].bbox == [460.0, 200.0, 100.0, 60.0]
    assert (events[1].label, events[1].track_id, events[1].size) == ("car", 1, [1000, 500])


def test_occupancy_follows_and_ends_with_the_service(stage):
    stage.give(*parked(1, 8))
    stage.following.stop()
    last = stage.kept.of(OccupancyMessage)

    assert (last[-2].state, last[-2].objects, last[-2].zones) == ("following", {"car": 1}, {"yard": {"car": 1}})
    assert (last[-1].state, last[-1].objects, last[-1].zones) == ("stopped", {}, {"yard": {}})
    assert stage.told() == [("appear", "yard", None), ("vanish", "yard", "stopped")]


def test_classes_of_one_label_are_added_up():
    kept = Kept()
    info = RunInfo(41, [], "gate-01", ["car", "bus", "car"], ModelInfo(name="tiny", precision="int8"))
    totals = LineTotals(forward={2: 1, 0: 4}, backward={1: 0})
    occupancy = Occupancy(objects={0: 2, 1: 1, 2: 3}, zones={"yard": {2: 3}}, lines={"gate": totals})
    EventPublisher(kept, info).tell(EAST, occupancy, state="following", now_ns=0)

    (told,) = kept.of(OccupancyMessage)
    assert (told.objects, told.zones) == ({"car": 5, "bus": 1}, {"yard": {"car": 3}})
    assert (told.lines["gate"].forward, told.lines["gate"].backward) == ({"car": 5}, {})


def test_a_camera_that_goes_away_makes_nobody_leave(stage):
    stage.give(*parked(1, 8))
    stage.status(StreamState.DOWN)
    stage.status(StreamState.DOWN)

    assert stage.told() == [("appear", "yard", None), ("vanish", "yard", "interrupted")]
    assert [message.state for message in stage.kept.of(OccupancyMessage)][-1] == "interrupted"
    assert stage.kept.of(OccupancyMessage)[-1].zones == {"yard": {}}


def test_nobody_is_followed_in_a_file_that_was_read_to_its_end(stage):
    stage.give(*parked(1, 8))
    stage.status(StreamState.ENDED)

    assert stage.told() == [("appear", "yard", None), ("vanish", "yard", "stopped")]
    assert (stage.kept.of(OccupancyMessage)[-1].state, stage.kept.of(OccupancyMessage)[-1].objects) == ("stopped", {})
    stage.following.stop()
    assert len(stage.told()) == 2, "nothing happens behind the end"


def test_frames_that_were_on_their_way_when_the_camera_went_bring_nobody_back(stage):
    stage.give(*parked(1, 8))
    stage.status(StreamState.DOWN)
    stage.give(*parked(9, 5))

    assert stage.told()[-1] == ("vanish", "yard", "interrupted")
    assert [frame.track_id for frame in stage.frames[8:]] == [None] * 5
    stage.status(StreamState.UP)
    stage.give(*parked(14, 8))
    assert stage.told()[-1] == ("appear", "yard", None)
    assert stage.kept.of(OccupancyMessage)[-1].state == "following"


def test_frames_of_before_a_reload_are_not_followed_by_the_rules_of_after_it(stage):
    stage.give(*parked(1, 8))
    rules = WatchRules(zones=[WHOLE], lines=[], anchor="bottom", settle_s=0.2, lost_s=1.0, classes=2)
    stage.following.replace(EAST, Follower(ByteTracker(lost_s=1.0, sure_score=0.5), rules))
    stage.give(*parked(9, 5))
    assert [frame.track_id for frame in stage.frames[8:]] == [None] * 5
    assert stage.kept.of(OccupancyMessage)[-1].state == "stopped"

    stage.status(StreamState.UP)
    stage.give(*parked(1, 8))
    assert stage.frames[-1].track_id.tolist() == [2]
    assert stage.kept.of(OccupancyMessage)[-1].state == "following"


def test_a_camera_that_never_came_is_told_as_interrupted():
    stage = Stage(is_up=False)
    stage.status(StreamState.DOWN)
    assert [one.state for one in stage.kept.of(OccupancyMessage)] == ["interrupted"]


def test_occupancy_is_told_when_it_changes_and_not_too_often(stage):
    stage.give(*parked(1, 50))
    assert len(stage.kept.of(OccupancyMessage)) == 3  # nobody; somebody is there; somebody is in the yard

    at_once = Stage()
    at_once.following._monotonic_ns = lambda: 10**9  # the clock stands
    at_once.give(*parked(1, 50))
    assert len(at_once.kept.of(OccupancyMessage)) == 1


def test_a_camera_may_go_away_while_a_frame_is_followed(stage):
    threads = [
        threading.Thread(target=stage.give, args=parked(1, 300)),
        threading.Thread(target=lambda: [stage.status(state) for state in (StreamState.DOWN, StreamState.UP) * 50]),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stage.following.stop()

    events = stage.kept.of(EventMessage)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert sum(1 if kind == "appear" else -1 for kind, *_ in stage.told()) == 0


def test_a_stream_that_is_followed_anew_gives_no_number_twice(stage):
    stage.give(*parked(1, 8))
    for _ in range(2):
        stage.following.replace(EAST, None)
        rules = WatchRules(zones=[WHOLE], lines=[], anchor="bottom", settle_s=0.2, lost_s=1.0, classes=2)
        stage.following.replace(EAST, Follower(ByteTracker(lost_s=1.0, sure_score=0.5), rules))
        stage.status(StreamState.UP)
        stage.give(*parked(9, 8))

    appeared = [event.track_id for event in stage.kept.of(EventMessage) if event.kind == "appear"]
    assert appeared == [1, 2, 3]


def test_frames_that_are_too_few_are_told_once_and_when_they_are_enough_again(stage, caplog):
    caplog.set_level(logging.INFO)
    at_one_fps = [result(10 * i, (400, 200, 500, 260)) for i in range(1, 40)]
    at_ten_fps = parked(400, 120)
    stage.give(*at_one_fps)
    assert logged(caplog).count("tracking-sparse stream=east fps=1.0") == 1

    stage.give(*at_ten_fps)

    assert logged(caplog).count("tracking-sparse") == 1
    assert logged(caplog).count("tracking-dense stream=east fps=10.0") == 1


def test_a_stated_rate_that_is_too_low_is_told_before_the_first_frame(tmp_path, caplog):
    tracking = {"lost_s": 2.5}
    streams = [{"id": f"at-{fps}", "uri": "rtsp://camera/a", "max_fps": fps, "tracking": tracking} for fps in (1, 5)]
    (tmp_path / "tiny.onnx").touch()
    content = {"version": 1, "model": {"onnx": "tiny.onnx"}, "streams": streams, "publish": {"jsonl": "-"}}
    (tmp_path / "gates.yaml").write_text(json.dumps(content), encoding="utf-8")

    make_followers(load_pipeline(tmp_path / "gates.yaml"), ["car"])

    assert [one for one in caplog.messages if "max_fps is low for tracking" in one] == [
        "max_fps is low for tracking stream=at-1 max_fps=1 reason=objects are hardly ever seen twice below 2 fps"
    ]
