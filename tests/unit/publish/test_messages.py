"""The wire messages: keys, topics, the way back from a payload, and the schemas that describe them."""

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
import yaml

from edge.protocols import TopicMessage
from edge.publish.messages import (
    MESSAGE_TYPES,
    DeployMessage,
    GapMessage,
    PullMessage,
    StateMessage,
    StreamStateMessage,
)
from edge.publish.mqtt.subscriber import message_from_payload
from tests.support.wire_messages import birth, counts, crossing, detections, event, occupancy
from tools.message_schemas import documents

DOCS = Path(__file__).parents[3] / "docs"

GAP = GapMessage(device="gate-01", stream="east", epoch=41, from_=7, to=9, count=3, reason="spool-bytes")
STATE = StateMessage(device="gate-01", state="offline", since=None, session=41_000_001, reason="connection lost")
STREAM_STATE = StreamStateMessage(
    device="gate-01", stream="east", state="down", since="2026-11-20T10:15:02.000000Z", reason="404"
)
DEPLOY = DeployMessage(
    device="gate-01",
    release="b" * 12,
    from_="a" * 12,
    result="rolled-back",
    reason="no frames",
    at="2026-11-20T10:15:02Z",
)
SAMPLES = [
    detections(1, count=0),
    detections(2, count=20),
    event(1),
    crossing(2),
    event(3, kind="vanish", duration_s=4.2, reason="lost"),
    counts(),
    counts(state="interrupted", objects={"car": None}, total=None),
    occupancy(),
    GAP,
    STATE,
    STREAM_STATE,
    birth(),
    PullMessage(
        device="gate-01",
        repository="registry.example/farms/gates",
        channel="stable",
        ring="canary",
        release="b" * 12,
        result="refused",
        code="preflight.disk",
        reason="no room",
        at="2026-11-20T10:15:02Z",
        looked_at="2026-11-20T10:25:02Z",
    ),
    DEPLOY,
    msgspec.structs.replace(DEPLOY, from_=None, reason=None),
]


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


@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: message.schema)
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


def schema_of(name):
    return json.loads(documents()[f"schema/{name.replace('/', '-')}.json"])


@pytest.mark.parametrize("name", documents())
def test_the_committed_document_is_the_generated_one(name):
    assert (DOCS / name).read_text() == documents()[name], "run: python -m tools.message_schemas docs"


@pytest.mark.parametrize("name", MESSAGE_TYPES)
def test_a_schema_is_valid_itself(name):
    jsonschema.Draft202012Validator.check_schema(schema_of(name))


@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: message.schema)
def test_a_real_message_fits_its_schema_and_no_other(message):
    payload = json.loads(message.encode())

    for name in MESSAGE_TYPES:
        is_valid = jsonschema.Draft202012Validator(schema_of(name)).is_valid(payload)
        assert is_valid is (name == message.schema)


@pytest.mark.parametrize(
    ("key", "value"),
    [("seq", 0), ("stream", "Gate East"), ("size", [1920]), ("epoch", None), ("detections", [{"class_id": 1}])],
)
def test_a_wrong_value_does_not_fit(key, value):
    payload = json.loads(detections(1).encode()) | {key: value}

    assert not jsonschema.Draft202012Validator(schema_of("edge.detections/1")).is_valid(payload)


@pytest.mark.parametrize("key", ["seq", "captured_at", "clock"])
def test_no_key_may_be_absent(key):
    payload = json.loads(detections(1).encode())
    del payload[key]

    assert not jsonschema.Draft202012Validator(schema_of("edge.detections/1")).is_valid(payload)


def test_the_asyncapi_document_is_yaml_and_its_topics_are_the_messages_own():
    document = yaml.safe_load(documents()["asyncapi.yaml"])

    addresses = {channel["address"].split("{device}/")[1] for channel in document["channels"].values()}
    assert addresses == {message.topic.replace("east", "{stream}") for message in SAMPLES}
    by_name = {message["name"]: key for key, message in document["components"]["messages"].items()}
    for message in SAMPLES:
        binding = document["operations"][by_name[message.schema]]["bindings"]["mqtt"]
        assert binding["retain"] is message.is_retained
        assert binding.get("messageExpiryInterval") == message.expiry_s
        payload = document["components"]["messages"][by_name[message.schema]]["payload"]["$ref"]
        assert (DOCS / payload).is_file()
