"""Whoever may publish at a broker writes to the terminal of whoever listens there: it is shown, and does nothing."""

import json

import msgspec
import pytest

from edge.publish.messages import DeployMessage, StateMessage, StreamStateMessage
from edge.publish.mqtt.subscriber import message_from_payload
from tests.support.mosquitto import listened
from tests.support.wire_messages import birth, detections

CLIPBOARD = "\x1b]52;c;cm0gLXJmIH4=\x07"  # "put this into the clipboard", to many terminals
RED, CLEAR = "\x9b31m", "\x1b[2J\x1b[H"
TURNED = "\u202egpj.exe"
TOPIC = "edge/v1/north/gate-01/x"
DEEP = b"[" * 100_000


def _with_label(label):
    message = detections(7)
    return msgspec.structs.replace(message, detections=[msgspec.structs.replace(message.detections[0], label=label)])


HOSTILE = {
    "class": _with_label(f"car{CLIPBOARD}"),
    "class_on_two_lines": _with_label("car\ngate-02 online"),
    "class_that_turns": _with_label(TURNED),
    "time": msgspec.structs.replace(detections(7), captured_at=f"2026-11-20T{CLEAR}"),
    "stream": msgspec.structs.replace(detections(7), stream="east\n"),
    "streams": msgspec.structs.replace(birth(), software=CLEAR, streams=["east\n"]),
    "model": msgspec.structs.replace(birth(), model=msgspec.structs.replace(birth().model, name=f"{RED}yolo")),
    "reason": StateMessage(device="gate-01", state="degraded", since=None, reason=CLEAR),
    "stream_reason": StreamStateMessage(device="gate-01", stream="east", state="down", since=None, reason=RED),
    "release": DeployMessage(device="gate-01", release=CLIPBOARD, from_=None, result="failed", reason="a\rb", at=CLEAR),
}


def _shown(broker, collector, topic, payload, **options):
    """Return what a listener writes of one message."""
    _, lines = listened(broker, lambda: collector._client.publish(topic, payload), max_messages=1, **options)
    return lines


@pytest.mark.parametrize("is_json", [False, True], ids=["people", "json"])
@pytest.mark.parametrize("message", HOSTILE.values(), ids=HOSTILE)
def test_what_a_device_says_is_one_line_that_does_nothing_to_a_terminal(broker, collector, message, is_json):
    assert message_from_payload(message.encode()) is not None, "it has to be taken for one of ours"
    (line,) = _shown(broker, collector, TOPIC, message.encode(), is_json=is_json)

    assert line.isprintable()


@pytest.mark.parametrize("is_json", [False, True], ids=["people", "json"])
def test_a_topic_cannot_turn_the_line_that_tells_it(broker, collector, is_json):
    (line,) = _shown(broker, collector, f"{TOPIC}/{TURNED}", b"not ours", is_json=is_json)

    assert line.isprintable()


@pytest.mark.parametrize("text", [CLIPBOARD, RED, TURNED, "\ud800", "\U000e0041", "Grüße, 世界"])
def test_a_program_reads_every_character_that_was_sent(broker, collector, text):
    (line,) = _shown(broker, collector, TOPIC, json.dumps({"a": text}), is_json=True)

    assert json.loads(line) == {"topic": TOPIC, "payload": {"a": text}}
    assert line.isprintable()
    assert ("Grüße" in line) == ("Grüße" in text), "what has a shape is not spelled in digits"


@pytest.mark.parametrize("is_json", [False, True], ids=["people", "json"])
@pytest.mark.parametrize("payload", [DEEP, b'{"schema": "edge.state/1", "x": ' + DEEP], ids=["foreign", "as_ours"])
def test_a_message_that_is_nested_without_end_is_not_one_of_ours_and_ends_nothing(broker, collector, payload, is_json):
    (line,) = _shown(broker, collector, TOPIC, payload, is_json=is_json)

    assert json.loads(line)["payload"] is None if is_json else "not a message of edge-deploy" in line


def test_a_picture_is_told_by_its_size_alone(broker, collector):
    (line,) = _shown(broker, collector, TOPIC, b"\xff\xd8" + bytes(40), is_json=False)

    assert line == f"{TOPIC}: a picture, 42 bytes"


def test_what_a_broker_keeps_and_a_device_takes_away_is_said_so(broker, collector):
    (line,) = _shown(broker, collector, TOPIC, b"", is_json=False)

    assert line == f"{TOPIC}: taken away"
