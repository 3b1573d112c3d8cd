"""Frames on their way to messages: which are published, under which numbers, and what they are when they are sent."""

import dataclasses
import json
import threading
from datetime import datetime, timedelta, timezone

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.protocols import TopicMessage
from edge.publish import frames as frames_module
from edge.publish.frames import (
    FrameMessage,
    FramePublisher,
    Selection,
    detections_message,
    frame_from_packed,
    is_clock_synced,
    is_noticeably_different,
    rfc3339_from_ns,
)
from edge.publish.outbox.message import entry_from_message, entry_of, lies_as
from edge.types import StreamId
from tests.support.wire_messages import birth, detections, found, frame_result

EAST, WEST = StreamId("east"), StreamId("west")
SECOND = 1_000_000_000
PARKED = found((100, 100, 200, 200))


def wanted(mode, frames, *, step_ns=SECOND // 30, heartbeat_s=1000.0):
    selection = Selection(mode, heartbeat_s=heartbeat_s)
    return [selection.wants(EAST, frame, now_ns=index * step_ns) for index, frame in enumerate(frames)]


def test_all_takes_every_frame():
    assert wanted("all", [found()] * 3) == [True] * 3


def test_nonempty_takes_frames_with_detections_and_the_first():
    assert wanted("nonempty", [found(), found(), PARKED, PARKED, found()]) == [True, False, True, True, False]


def test_change_takes_a_parked_car_once_and_its_leaving():
    assert wanted("change", [PARKED, PARKED, PARKED, found(), found()]) == [True, False, False, True, False]


def test_slow_drift_adds_up():
    frames = [found((100 + x, 100, 200 + x, 200)) for x in range(0, 40, 2)]

    assert wanted("change", frames).count(True) >= 3


@pytest.mark.parametrize(
    ("then", "now", "is_different"),
    [
        (found(), found(), False),
        (PARKED, found((104, 100, 204, 200)), False),
        (PARKED, found((120, 100, 220, 200)), True),
        (PARKED, found((100, 100, 200, 200), class_id=3), True),
        (PARKED, found((100, 100, 200, 200), (101, 100, 201, 200)), True),
        (found((0, 0, 10, 10), (50, 50, 60, 60)), found((50, 50, 60, 60), (0, 0, 10, 10)), False),
        (found((0, 0, 10, 10), (50, 50, 60, 60)), found((0, 0, 10, 10), (0, 0, 10, 9)), True),
        (found((5, 5, 5, 5)), found((5, 5, 5, 5)), False),
    ],
)
def test_a_difference_is_noticeable_when_a_box_has_no_counterpart(then, now, is_different):
    assert is_noticeably_different(now, then) is is_different
    assert is_noticeably_different(then, now) is is_different


def test_a_heartbeat_comes_in_every_mode():
    for mode in ("all", "nonempty", "change"):
        taken = wanted(mode, [found()] * 91, heartbeat_s=1.0)
        assert taken.count(True) >= 3


def test_streams_do_not_see_each_other():
    selection = Selection("change", heartbeat_s=1000)

    assert selection.wants(EAST, PARKED, now_ns=0)
    assert selection.wants(WEST, PARKED, now_ns=0)
    assert not selection.wants(EAST, PARKED, now_ns=1)


boxes = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(1, 50), st.integers(1, 50)), max_size=4
).map(lambda corners: found(*[(x, y, x + w, y + h) for x, y, w, h in corners]))


@given(st.lists(st.tuples(boxes, st.integers(0, SECOND)), min_size=1, max_size=20))
def test_a_consumer_always_has_a_picture_that_is_fresh_and_close(steps):
    selection = Selection("change", heartbeat_s=1.0)
    now_ns, published = 0, None
    for frame, pause_ns in steps:
        now_ns += pause_ns
        if selection.wants(EAST, frame, now_ns=now_ns):
            published = (now_ns, frame)
        assert now_ns - published[0] < SECOND
        assert not is_noticeably_different(frame, published[1])


class Kept:
    def __init__(self):
        self.messages = []

    def publish(self, message):
        self.messages.append(message)


def test_only_published_frames_are_numbered():
    kept = Kept()
    frames = FramePublisher(
        kept,
        birth().run_info,
        Selection("nonempty", heartbeat_s=1000),
        is_synced=lambda: True,
        now_ns=lambda: 0,
    )
    car = found((0, 0, 10, 10))
    taken = [frames.publish(frame_result(result)) for result in (car, found(), found(), car)]

    assert taken == [True, False, False, True]
    assert [
        (message.epoch, message.seq, json.loads(message.encode())["clock"]["synced"]) for message in kept.messages
    ] == [
        (41, 1, True),
        (41, 2, True),
    ]


def test_each_stream_counts_by_ones():
    kept = Kept()
    frames = FramePublisher(kept, birth().run_info, Selection("all", heartbeat_s=1000))
    result = frame_result(found())
    for stream in ("east", "west", "east", "north", "west", "east"):
        frames.publish(dataclasses.replace(result, header=dataclasses.replace(result.header, stream=stream)))

    numbers = [(message.stream, message.seq) for message in kept.messages]
    assert numbers == [("east", 1), ("west", 1), ("east", 2), ("north", 1), ("west", 2), ("east", 3)]


INFO = birth().run_info
KEYS = {"info": INFO, "seq": 7, "is_synced": True}


def test_it_is_the_same_message_as_one_converted_at_once():
    result = frame_result(found((1, 2, 30, 40), (5, 6, 70, 80)), captured_at_ns=1_795_169_702_113_402_999)
    late, early = FrameMessage(result, **KEYS), detections_message(result, **KEYS)

    assert isinstance(late, TopicMessage)
    for name in ("topic", "is_retained", "expiry_s", "schema", "captured_at", "stream", "epoch", "seq"):
        assert getattr(late, name) == getattr(early, name)
    assert late.encode() == early.encode() == late.encode()


@pytest.mark.parametrize("count", [0, 1, 20, 300])
def test_its_size_is_about_known_before(count):
    message = FrameMessage(frame_result(found(*[(412.5, 233.5, 508.5, 305.5)] * count)), **KEYS)

    assert 0.7 * message.size_bytes < len(message.encode()) <= message.size_bytes


def test_its_entry_is_that_of_a_converted_message():
    late = entry_from_message(FrameMessage(frame_result(found()), **KEYS))
    early = entry_from_message(detections(7))

    assert (late.topic, late.schema, late.expiry_s, late.is_retained) == (
        early.topic,
        early.schema,
        early.expiry_s,
        early.is_retained,
    )
    assert (late.number.stream, late.number.epoch, late.number.seq) == ("east", 41, 7)


@pytest.mark.parametrize("changed", [{}, {"labels": []}, {"device": "other"}])
def test_a_frame_lies_on_the_disk_as_its_own_message_also_if_it_is_of_another_run(changed):
    info = msgspec.structs.replace(INFO, **changed)
    entry = entry_from_message(FrameMessage(frame_result(found((1, 2, 3, 4))), info=info, seq=1))

    head, body = lies_as(entry, INFO)

    assert entry_of(head, body, INFO, was_sent=False, ticket=1).encode() == entry.encode()


def test_two_threads_may_encode_it():
    for _ in range(200):
        message = FrameMessage(frame_result(found((1, 2, 30, 40))), **KEYS)
        texts = []
        threads = [threading.Thread(target=lambda: texts.append(message.encode())) for _ in range(2)]  # noqa: B023
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert texts[0] == texts[1] != b""


@pytest.mark.parametrize("boxes", [0, 1, 12])
@pytest.mark.parametrize("is_followed", [False, True])
def test_a_packed_frame_gives_the_same_payload(boxes, is_followed):
    result = found(*[(412.3 + n, 233.5, 508.1, 305.2) for n in range(boxes)])
    one = frame_result(result, captured_at_ns=1_763_633_702_113_402_000)
    one = dataclasses.replace(one, track_id=np.arange(boxes, dtype=np.int64) - 1 if is_followed else None)
    message = FrameMessage(one, **KEYS)
    packed = message.pack()

    again = frame_from_packed(packed, INFO)
    assert again.encode() == message.encode()
    assert (again.topic, again.seq, again.epoch, again.captured_at) == (
        message.topic,
        message.seq,
        message.epoch,
        message.captured_at,
    )
    assert message.pack() is None, "its result is gone"


@pytest.mark.parametrize("packed", [b"", b"\x00", b"\x93\x01\x02\x03", bytes(100)])
def test_what_is_no_packed_frame_is_a_value_error(packed):
    with pytest.raises(ValueError, match=r".+"):
        frame_from_packed(packed, INFO)


EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def message(result, labels=("person", "bicycle", "car")):
    return detections_message(result, info=msgspec.structs.replace(birth().run_info, labels=list(labels)), seq=2)


@given(st.integers(0, 4_000_000_000_000_000_000))
def test_an_instant_agrees_with_the_calendar(unix_ns):
    expected = EPOCH + timedelta(microseconds=unix_ns // 1000)

    assert rfc3339_from_ns(unix_ns) == expected.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def test_a_frame_result_becomes_plain_rounded_values():
    box = (412.04, 233.46, 508.09, 304.93)
    made = message(frame_result(found(box), captured_at_ns=1_795_169_702_113_402_999))

    assert made.captured_at == "2026-11-20T10:15:02.113402Z"
    assert made.pts_us == 608_133_333
    assert made.age_ms.batch_wait == 6.0
    assert made.size == [1920, 1080]
    assert made.clock.source == "arrival"
    (item,) = made.detections
    assert (item.class_id, item.label, item.score) == (2, "car", 0.812)
    assert item.bbox == [412.0, 233.5, 96.0, 71.5]


def test_no_digit_of_float32_noise_reaches_the_wire():
    rng = np.random.default_rng(7)
    corners = np.sort(rng.random((50, 2, 2)) * 1000, axis=1).reshape(50, 4).astype(np.float32)
    text = message(frame_result(found(*corners.tolist()))).encode().decode()

    for item in json.loads(text)["detections"]:
        assert all(f"{number:.1f}" == str(number) for number in item["bbox"])


def test_a_class_without_a_label_has_none():
    (item,) = message(frame_result(found((0, 0, 1, 1))), labels=["person"]).detections

    assert (item.class_id, item.label) == (2, None)


def test_the_clock_is_synced_or_unknown(tmp_path, monkeypatch):
    now_ns = 0
    marker = tmp_path / "synchronized"
    monkeypatch.setattr(frames_module, "_SYNC_MARKER", marker)
    monkeypatch.setattr("time.monotonic_ns", lambda: now_ns)

    assert is_clock_synced() is None
    marker.touch()
    assert is_clock_synced() is None, "looked at the file for every frame"
    now_ns = 10_000_000_000
    assert is_clock_synced() is True
    monkeypatch.undo()
    frames_module._is_synced_at.cache_clear()


@pytest.mark.parametrize("count", [0, 1, 300])
def test_a_message_shares_nothing_with_the_result(count):
    result = frame_result(found(*[(0, 0, 10, 10)] * count))
    made = message(result)
    assert len(made.detections) == count
    before = made.encode()
    result.detections.xyxy[:] = 99

    assert made.encode() == before
