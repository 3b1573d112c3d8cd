"""What holds for every `Publisher`: it never blocks, keeps order, accounts for each message, and ends in peace."""

import json
import threading
import time
from collections import Counter

import pytest

from edge.config.schema import MqttConfig
from edge.publish.fanout import FanoutPublisher
from edge.publish.jsonl import JsonlPublisher
from edge.publish.messages import StreamStateMessage
from edge.publish.mqtt.publisher import MqttPublisher
from tests.support.mosquitto import Collector, Mosquitto
from tests.support.wait import wait_until
from tests.support.wire_messages import birth, detections, publish_frames


class JsonlCase:
    names = ("jsonl",)

    def __init__(self, directory):
        self.path = directory / "out.jsonl"
        self.publisher = JsonlPublisher(str(self.path))

    def seqs(self):
        found = [json.loads(line) for line in self.path.read_text().splitlines()]
        return [line["seq"] for line in found if line["schema"] == "edge.detections/1"]

    def end(self):
        self.publisher.close()


class MqttCase:
    names = ("mqtt",)

    def __init__(self, directory):
        self.broker = Mosquitto(directory / "broker").start()
        self.collector = Collector(self.broker.port)
        self.publisher = MqttPublisher(MqttConfig(host="127.0.0.1", port=self.broker.port, tls=False), info=birth())

    def seqs(self):
        return self.collector.numbers()["east"]

    def end(self):
        self.publisher.close()
        self.collector.close()
        self.broker.kill()


class FanoutCase(MqttCase):
    names = ("mqtt", "jsonl")

    def __init__(self, directory):
        super().__init__(directory)
        self.jsonl = JsonlCase(directory)
        self.publisher = FanoutPublisher([self.publisher, self.jsonl.publisher])


@pytest.fixture(params=[JsonlCase, MqttCase, FanoutCase])
def case(request, tmp_path):
    made = request.param(tmp_path)
    yield made
    made.end()


def totals(case):
    """The counts of all outputs together: a message given to two counts twice."""
    total = Counter()
    for counts in case.publisher.by_output().values():
        total.update(counts)
    return total


def test_everything_accepted_is_delivered_in_order(case):
    publish_frames(case.publisher, range(1, 201))

    assert case.publisher.flush(60)
    wait_until(lambda: len(case.seqs()) == 200, what="200 messages arrived")
    assert case.seqs() == list(range(1, 201))


def test_counts_balance_at_any_time_and_each_output_has_its_own(case):
    case.publisher.publish(StreamStateMessage(device="gate-01", stream="east", state="up", since=None))
    for seq in range(1, 201):
        case.publisher.publish(detections(seq))
        counts = totals(case)
        # The parts are read one after the other where there are several; each part is exact in itself.
        assert counts["accepted"] == counts["delivered"] + counts["waiting"] + counts["dropped"]
    assert case.publisher.flush(60)

    assert case.publisher.flush(0), "nothing is left to wait for"
    assert not case.publisher.is_broken
    counts = totals(case)
    assert counts["waiting"] == counts["dropped"] == 0
    assert counts["delivered"] >= 201 * len(case.names)
    by_output = case.publisher.by_output()
    assert tuple(by_output) == case.names
    assert all(one["numbered_acknowledged"] == 200 for one in by_output.values())


def test_publish_returns_at_once(case):
    began = time.monotonic()
    publish_frames(case.publisher, range(1, 1001), count=20)

    assert time.monotonic() - began < 5


def test_close_delivers_ends_all_threads_and_may_come_twice(case):
    publish_frames(case.publisher, range(1, 51))
    case.publisher.close()
    case.publisher.close()

    wait_until(lambda: len(case.seqs()) == 50, what="50 messages arrived")
    assert not [thread for thread in threading.enumerate() if thread.name in ("mqtt-publisher", "jsonl-publisher")]
    counts = totals(case)
    assert counts["accepted"] == counts["delivered"]
    assert counts["dropped"] == 0


def test_a_message_after_close_is_not_accepted(case):
    case.publisher.close()
    before = totals(case)["accepted"]
    case.publisher.publish(detections(1))

    assert totals(case)["accepted"] == before
