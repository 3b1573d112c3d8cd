"""What a broker that is killed takes along is told from what the publisher lost: real mosquitto, the soak's record."""

from __future__ import annotations

import json

import paho.mqtt.client as mqtt
import pytest

from tests.soak.record import Record
from tests.support.mosquitto import Mosquitto
from tests.support.promise import Findings

pytestmark = pytest.mark.integration
ACCOUNT = ("east", 3)
PREFIX = "edge/v1/site/device"


def test_what_a_killed_broker_had_acknowledged_is_excused_and_nothing_else(tmp_path):
    with Mosquitto(tmp_path / "broker") as broker, Record(broker.port) as record:
        publisher = connected(record.port, "publisher")
        for seq in range(1, 6):
            message = {"stream": "east", "epoch": 3, "seq": seq, "replayed": False}
            publish(publisher, f"{PREFIX}/streams/east/detections", message)
        gap = {"stream": "east", "of": "detections", "epoch": 3, "from": 6, "to": 7, "count": 2, "exact": True}
        publish(publisher, f"{PREFIX}/gaps", gap)
        broker.kill()
        record.leave()
        broker.start()
        record.come_back(was_killed=True)
        stop(publisher)

    taken = record.taken.all()
    assert taken == {ACCOUNT: set(range(1, 8))}
    Findings().prove({ACCOUNT: 7}, most_duplicates=0, taken=taken)
    with pytest.raises(AssertionError, match=r"undeclared \[8\]"):
        Findings().prove({ACCOUNT: 8}, most_duplicates=0, taken=taken)


def test_a_broker_that_is_stopped_excuses_nothing(tmp_path):
    with Mosquitto(tmp_path / "broker") as broker, Record(broker.port) as record:
        publisher = connected(record.port, "publisher")
        publish(publisher, f"{PREFIX}/streams/east/detections", {"stream": "east", "epoch": 3, "seq": 1})
        broker.stop()
        record.leave()
        broker.start()
        record.come_back(was_killed=False)
        stop(publisher)

    assert record.taken.all() == {}


def connected(port: int, name: str) -> mqtt.Client:
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=name, protocol=mqtt.MQTTv5)
    client.connect("127.0.0.1", port)
    client.loop_start()
    return client


def publish(client: mqtt.Client, topic: str, message: dict) -> None:
    told = client.publish(topic, json.dumps(message), qos=1)
    told.wait_for_publish(60)
    assert told.is_published()


def stop(client: mqtt.Client) -> None:
    client.disconnect()
    client.loop_stop()
