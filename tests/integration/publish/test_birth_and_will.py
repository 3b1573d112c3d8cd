"""What the broker tells others of a device: birth, state, properties, and its Will."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from edge.publish.message import RetainedBytes
from edge.publish.messages import StateMessage, StreamStateMessage
from tests.support.logged import logged
from tests.support.tcp_proxy import AbortingProxy
from tests.support.wait import wait_looks, wait_until
from tests.support.wire_messages import detections, publish_frames

ROOT = "edge/v1/north/gate-01"


def test_birth_and_state_are_retained(broker, connected, make_collector):
    connected(broker.port)
    late = make_collector(broker.port)
    wait_until(lambda: len(late.messages) == 2, what="the retained messages")

    assert {(message.topic, message.retain) for message in late.messages} == {
        (f"{ROOT}/info", True),
        (f"{ROOT}/state", True),
    }
    (state,) = late.payloads("/state")
    assert (state["state"], state["session"]) == ("online", 41_000_001)
    (info,) = late.payloads("/info")
    assert info["labels"] == ["person", "bicycle", "car"]
    assert "edge.detections/1" in info["schemas"]


def test_a_consumer_can_look_for_gaps_without_parsing(collector, broker, make_publisher):
    make_publisher(broker.port).publish(detections(7))
    wait_until(lambda: collector.numbers()["east"], what="the message")
    (message,) = [message for message in collector.messages if message.topic.endswith("detections")]

    assert message.topic == f"{ROOT}/streams/east/detections"
    assert dict(message.properties.UserProperty) == {"schema": "edge.detections/1", "epoch": "41", "seq": "7"}
    assert message.properties.ContentType == "application/json"
    assert 28 <= message.properties.MessageExpiryInterval <= 30
    assert message.qos == 1
    assert not message.retain


def test_a_stream_whose_occupancy_goes_keeps_its_state_over_a_reconnect(broker, collector, make_publisher):
    with AbortingProxy(broker.port) as proxy:
        publisher = make_publisher(proxy.port)
        publisher.publish(StreamStateMessage(device="gate-01", stream="east", state="up", since=None))
        publisher.publish(RetainedBytes("streams/east/occupancy"))
        assert publisher.flush(60)
        proxy.cut()
        wait_until(lambda: publisher.counts()["connections"] == 2, what="a reconnect")
        assert publisher.flush(60)
        wait_until(lambda: 41_000_002 in sessions_of(collector), what="its state is renewed")


def sessions_of(collector):
    return [state["session"] for state in collector.payloads("east/state")]


def test_a_stream_that_is_no_more_is_forgotten_by_the_broker(broker, make_publisher, make_collector):
    first = make_publisher(broker.port, streams=("east", "west"))
    for stream in ("east", "west"):
        first.publish(StreamStateMessage(device="gate-01", stream=stream, state="up", since=None))
    assert first.flush(60)
    first.close()
    second = make_publisher(broker.port)
    second.publish(RetainedBytes("streams/west/state"))
    assert second.flush(60)
    late = make_collector(broker.port)

    wait_until(lambda: len(late.messages) == 3, what="the retained messages")
    assert {message.topic.removeprefix(f"{ROOT}/") for message in late.messages} == {
        "info",
        "state",
        "streams/east/state",
    }
    second.close()
    wait_until(lambda: late.payloads("gate-01/state")[-1]["state"] == "offline", what="the end")
    assert not [message for message in late.messages if "west" in message.topic and message.payload]


def test_a_clean_end_says_so(collector, broker, make_publisher):
    publisher = make_publisher(broker.port, streams=("east", "west"))
    for stream in ("east", "west"):
        publisher.publish(StreamStateMessage(device="gate-01", stream=stream, state="up", since=None))
    assert publisher.flush(60)
    publish_frames(publisher, range(1, 101))
    publisher.close()
    wait_until(lambda: collector.payloads("gate-01/state")[-1]["state"] == "offline", what="the end")

    assert [state["state"] for state in collector.payloads("gate-01/state")] == ["online", "stopping", "offline"]
    for stream in ("east", "west"):
        last = collector.payloads(f"streams/{stream}/state")[-1]
        assert (last["state"], last["reason"]) == ("down", "stopped")
    assert collector.numbers()["east"] == list(range(1, 101))
    assert collector.messages[-1].topic == f"{ROOT}/state", "nothing may follow the goodbye"
    wait_until(lambda: "Received DISCONNECT from edge-gate-01" in broker.log(), what="a DISCONNECT: no Will then")


def test_the_broker_is_asked_to_keep_the_session_or_it_could_not_delay_the_will(make_fake, connected):
    fake = make_fake()
    publisher = connected(fake.port)
    publisher.close()
    (connect,) = fake.connects
    flags, properties = connect[7], connect[11 : 11 + connect[10]]
    assert not flags & 0b10, "clean start would end the session, and with it the delay"
    assert properties == b"\x11\x00\x00\x00\x0f"
    assert b"\x18\x00\x00\x00\x05" in connect, "Will delay of 5 s"


def test_a_sleeping_publisher_is_woken(broker, connected):
    publisher = connected(broker.port)
    for seq in (1, 2, 3):
        wait_until(lambda: publisher._is_asleep, what="nothing to do")
        publisher.publish(detections(seq))
        assert publisher.flush(0.5), "it slept on to the end of its second"


def test_a_device_may_call_itself_degraded(collector, broker, connected):
    publisher = connected(broker.port)
    publisher.publish(StateMessage(device="gate-01", state="degraded", since=None, reason="1 of 2 streams down"))
    assert publisher.flush(60)

    wait_until(lambda: len(collector.payloads("gate-01/state")) == 2, what="both states")
    last = collector.payloads("gate-01/state")[-1]
    assert (last["state"], last["session"]) == ("degraded", 41_000_001)


PROGRAM = """
import sys, time
from edge.config.schema import MqttConfig
from edge.publish.mqtt.publisher import MqttPublisher
from tests.support.wire_messages import birth, detections, publish_frames
publisher = MqttPublisher(MqttConfig(host="127.0.0.1", port=int(sys.argv[1]), site="north", tls=False), info=birth())
publisher.publish(detections(1))
assert publisher.flush(60)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.promised(reason="a device that vanishes is offline")
def test_a_killed_device_is_offline_by_its_will(collector, broker):
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(broker.port)], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: len(collector.payloads("gate-01/state")) == 2, what="the Will, after its delay of 5 s")

    online, offline = collector.payloads("gate-01/state")
    assert (online["state"], offline["state"]) == ("online", "offline")
    assert online["session"] == offline["session"]
    assert offline["reason"] == "connection lost"


def test_close_is_bounded_when_the_broker_is_frozen(broker, connected, caplog):
    publisher = connected(broker.port, close_timeout_s=0.5)
    broker.freeze()
    publisher.publish(detections(1))
    closing = threading.Thread(target=publisher.close)
    closing.start()

    wait_looks(lambda: not closing.is_alive(), what="the end", seconds=3)
    assert "messages-not-delivered" in logged(caplog)
    counts = publisher.counts()
    assert counts["numbered_waiting"] == 1
    assert counts["accepted"] == counts["delivered"] + counts["waiting"]


def test_close_right_after_the_start_still_delivers(collector, broker, make_publisher):
    publisher = make_publisher(broker.port)
    publisher.publish(detections(1))
    publisher.close()

    wait_until(lambda: collector.numbers()["east"] == [1], what="the message")
