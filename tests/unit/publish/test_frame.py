import dataclasses
import threading

import msgspec
import numpy as np
import pytest

from edge.protocols import TopicMessage
from edge.publish.convert import detections_message
from edge.publish.frames import FrameMessage, frame_from_packed
from edge.publish.outbox.message import entry_from_message, entry_of, lies_as
from tests.support.wire_messages import birth, detections, found, frame_result

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
