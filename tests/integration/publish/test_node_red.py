"""docs/node-red.json in a real Node-RED: what it shows of what a device says."""

import json

import msgspec
import paho.mqtt.client as paho
import pytest

from edge.publish.message import RetainedBytes
from edge.publish.messages import GapMessage, StreamStateMessage
from tests.support import node_red
from tests.support.node_red import FLOW, NodeRed
from tests.support.wait import wait_until
from tests.support.wire_messages import crossing, detections, event, occupancy

pytestmark = pytest.mark.slow(reason="asks a Node-RED, which only make test-rest installs")
SINCE = "2026-11-20T10:15:02.113402Z"


class Screen:
    """What the debug nodes show, by their names."""

    def __init__(self, port):
        self.shown = {}
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        self._client.on_message = self._see
        self._client.connect("127.0.0.1", port)
        self._client.subscribe("seen/#", qos=1)
        self._client.loop_start()

    def _see(self, _client, _data, message):
        text = message.payload.decode()
        shown = json.loads(text) if text.startswith("{") else text
        self.shown.setdefault(message.topic.removeprefix("seen/"), []).append(shown)

    def wait_for(self, name, expected):
        try:
            wait_until(lambda: self.shown.get(name) == expected, what=f"{name} as expected")
        except AssertionError:
            assert self.shown.get(name) == expected

    def close(self):
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture
def screen(broker, tmp_path):
    if missing := node_red.lacking():
        pytest.skip(missing)
    with NodeRed(tmp_path / "node-red", broker_port=broker.port) as running:
        screen = Screen(broker.port)
        wait_until(lambda: broker.log().count("Sending SUBACK") == 4, what="three topics of the flow, one of ours")
        yield screen
        screen.close()
        assert "[error]" not in running.log()


def test_node_red_shows_counts_events_losses_and_states_each_once(screen, broker, make_publisher):
    publisher = make_publisher(broker.port)
    lost = GapMessage(device="gate-01", stream="east", epoch=41, from_=2, to=3, count=2, reason="oversize", exact=True)
    late = msgspec.structs.replace(detections(4), replayed=True)
    down = StreamStateMessage(device="gate-01", stream="east", state="down", since=SINCE, reason="no frame for 3 s")
    again = [detections(1), crossing(1), event(2)]  # as after a broken connection
    picture, gone = RetainedBytes("streams/east/picture", b"\xff\xd8\xff", 60), RetainedBytes("streams/old/state")
    for message in (
        picture,
        gone,
        *again,
        *again,
        lost,
        late,
        detections(5, count=0),
        occupancy(),
        down,
        event(3, kind="vanish"),
    ):
        publisher.publish(message)
    screen.wait_for("events", ["car 57 crosses gate forward", "car 57 enters yard", "car 57 vanishes in yard"])
    screen.wait_for("lost", ["gate-01 east: detections 2 to 3 are lost (oversize)"])
    frame = {"device": "gate-01", "stream": "east", "captured_at": SINCE}
    screen.wait_for("detections", [frame | {"counts": {"car": 1}}, frame | {"counts": {}}])
    screen.wait_for("occupancy", [json.loads(occupancy().encode())])
    wait_until(lambda: "gate-01 east is down (no frame for 3 s)" in screen.shown["states"], what="the camera is down")
    wait_until(lambda: "gate-01 is online" in screen.shown["states"], what="the device is there")


def test_the_numbers_of_another_start_or_stream_are_no_repetitions(screen, broker, make_publisher):
    publisher = make_publisher(broker.port)
    for message in (detections(1), detections(1, epoch=42), detections(1, stream="west"), detections(2, epoch=42)):
        publisher.publish(message)

    wait_until(lambda: len(screen.shown.get("detections", [])) == 4, what="four frames")


def test_it_names_every_topic_but_those_that_nobody_waits_for():
    nodes = json.loads(FLOW.read_text(encoding="utf-8"))

    assert {node["topic"] for node in nodes if node["type"] == "mqtt in"} == {
        "edge/v1/+/+/streams/+/+",
        "edge/v1/+/+/gaps",
        "edge/v1/+/+/state",
    }
    assert {node["type"] for node in nodes} <= {"tab", "mqtt-broker", "mqtt in", "function", "switch", "debug"}
