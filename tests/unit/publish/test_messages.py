import json

import pytest

from edge.protocols import TopicMessage
from edge.publish.device_messages import DeployMessage, StateMessage
from edge.publish.messages import GapMessage, StreamStateMessage
from edge.publish.mqtt.subscriber import message_from_payload
from tests.support.wire_messages import birth, detections

GAP = GapMessage(device="gate-01", stream="east", epoch=41, from_=7, to=9, count=3, reason="spool-bytes")
STATE = StateMessage(device="gate-01", state="online", since="2026-11-20T10:15:02.000000Z")
STREAM_STATE = StreamStateMessage(device="gate-01", stream="east", state="down", since=None, reason="404")
DEPLOY = DeployMessage(
    device="gate-01",
    release="b" * 12,
    from_="a" * 12,
    result="rolled-back",
    reason="no frames",
    at="2026-11-20T10:15:02Z",
)

ALL = [detections(1), GAP, STATE, STREAM_STATE, DEPLOY, birth()]


def test_detections_have_the_documented_keys_in_order():
    found = json.loads(detections(18_244).encode())

    keys = (
        "schema device stream epoch seq frame pts_us captured_at clock age_ms model size detections recovered replayed"
    )
    assert list(found) == keys.split()
    assert list(found["clock"]) == ["source", "synced", "uncertainty_ms"]
    assert list(found["age_ms"]) == ["decode", "batch_wait", "infer", "post"]
    assert list(found["model"]) == ["name", "release", "engine", "calibration", "precision"]
    assert list(found["detections"][0]) == ["class_id", "label", "score", "bbox", "track_id"]
    assert found["schema"] == "edge.detections/1"
    assert found["model"]["release"] is None


def test_a_gap_names_its_first_number_from():
    found = json.loads(GAP.encode())

    assert (found["schema"], found["from"], found["to"], found["exact"]) == ("edge.gap/1", 7, 9, True)


@pytest.mark.parametrize(
    ("message", "topic", "is_retained", "expiry_s"),
    [
        (detections(1), "streams/east/detections", False, 30),
        (GAP, "gaps", False, None),
        (STATE, "state", True, None),
        (STREAM_STATE, "streams/east/state", True, None),
        (birth(), "info", True, None),
        (DEPLOY, "deploy", True, None),
    ],
)
def test_each_message_knows_its_topic(message, topic, is_retained, expiry_s):
    assert isinstance(message, TopicMessage)
    assert (message.topic, message.is_retained, message.expiry_s) == (topic, is_retained, expiry_s)


@pytest.mark.parametrize("message", ALL, ids=lambda message: message.schema)
def test_a_message_comes_back_from_its_payload(message):
    assert message_from_payload(message.encode()) == message


def test_an_unknown_key_is_passed_over():
    payload = json.loads(GAP.encode()) | {"added_in_2030": 1}

    assert message_from_payload(json.dumps(payload).encode()) == GAP


@pytest.mark.parametrize(
    "payload",
    [b"", b"ON", b"{", b"[]", b'{"schema": "edge.gap/1"}', b'{"schema": "other/1"}', b'{"schema": 1}', b"\xff\xfe"],
)
def test_whatever_else_travels_is_no_message(payload):
    assert message_from_payload(payload) is None


def test_an_integer_on_the_wire_is_exact_in_javascript():
    found = json.loads(detections(1).encode())

    assert max(found["pts_us"], found["seq"], found["epoch"], found["frame"]) < 2**53
