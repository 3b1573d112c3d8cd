"""The consumer's side over real brokers, and `listen` on top of it."""

import contextlib
import itertools
import json
import re
import subprocess
import sys
import threading
import time

import msgspec
import pytest

from edge.config.schema import MqttConfig
from edge.demo.broker import embedded_broker
from edge.errors import ConfigError, PublishError
from edge.publish.messages import DetectionsMessage, StreamStateMessage
from edge.publish.mqtt.subscriber import Subscriber
from edge.publish.mqtt.trouble import BrokerBackoff
from tests.support.mosquitto import Behaviour, FakeBroker, config, listened
from tests.support.ports import free_port
from tests.support.tcp_proxy import AbortingProxy
from tests.support.wait import wait_until
from tests.support.wire_messages import detections, event, publish_frames

pytestmark = pytest.mark.slow_but(reason="further brokers, cuts and disks: the first row of each test is quick")


def receive(subscriber, count, **options):
    arrivals = (arrival for arrival in subscriber.receive(**options) if arrival is not None)
    return list(itertools.islice(arrivals, count))


def test_messages_arrive_parsed_and_in_order(broker, make_publisher):
    subscriber = Subscriber(config(broker.port))
    subscriber.open()
    publisher = make_publisher(broker.port)
    publish_frames(publisher, range(1, 101))
    messages = [arrival.message for arrival in receive(subscriber, 102)]
    subscriber.close()

    seqs = [message.seq for message in messages if isinstance(message, DetectionsMessage)]
    assert seqs == list(range(1, 101))
    assert {message.schema for message in messages} == {"edge.info/1", "edge.state/1", "edge.detections/1"}


def test_only_the_site_and_device_asked_for_are_heard(broker, collector, make_publisher):
    subscriber = Subscriber(config(broker.port), device="gate-02")
    subscriber.open()
    for device in ("gate-01", "gate-02"):
        collector._client.publish(f"edge/v1/north/{device}/x", device)
        collector._client.publish(f"edge/v1/south/{device}/x", device)
    (arrival,) = receive(subscriber, 1)
    subscriber.close()

    assert arrival.payload == b"gate-02"


def test_what_the_broker_held_during_a_short_loss_is_not_missed(broker, collector):
    with AbortingProxy(broker.port) as proxy:
        subscriber = Subscriber(config(proxy.port), backoff=BrokerBackoff(min_s=0.02, max_s=0.1))
        subscriber.open()
        proxy.cut()
        wait_until(lambda: re.search(r"Client edge-listen-\w+ closed", broker.log()), what="the broker notices")
        collector._client.publish("edge/v1/north/gate-01/x", b"meanwhile", qos=1)
        wait_until(lambda: collector.messages, what="the broker has it")
        (arrival,) = receive(subscriber, 1)
        subscriber.close()

    assert arrival.payload == b"meanwhile"


def test_an_unreachable_broker_is_an_error_at_first():
    with pytest.raises(PublishError, match="nothing listens on this port") as caught:
        Subscriber(config(free_port())).open()

    assert caught.value.exit_code == 3


@pytest.mark.parametrize("on_v5", ["refuse", "close"])
def test_a_broker_without_v5_is_asked_in_v311(on_v5):
    with FakeBroker(Behaviour(on_v5=on_v5)) as fake:
        subscriber = Subscriber(config(fake.port))
        subscriber.open()
        subscriber.close()

        assert [connect[6] for connect in fake.connects] == [5, 4]


def test_the_embedded_broker_serves_publisher_and_subscriber(make_publisher):
    with embedded_broker() as broker:
        subscriber = Subscriber(msgspec.structs.replace(broker, site="north"))
        subscriber.open()
        publisher = make_publisher(broker.port, protocol="v3.1.1")
        publish_frames(publisher, range(1, 201), count=20)
        assert publisher.flush(60)
        found = [arrival.message for arrival in receive(subscriber, 202)]
        subscriber.close()
        publisher.close()

    assert [message.seq for message in found if isinstance(message, DetectionsMessage)] == list(range(1, 201))
    assert not [thread for thread in threading.enumerate() if thread.name == "demo-broker"]


def test_listen_writes_a_line_for_people(broker, connected):
    def act():
        publisher = connected(broker.port)
        publisher.publish(StreamStateMessage(device="gate-01", stream="east", state="down", since=None, reason="404"))
        assert publisher.flush(60)
        publisher.publish(detections(7, count=10))
        publisher.publish(detections(8, count=0))

    code, lines = listened(broker, act, max_messages=5)

    assert code == 0
    assert lines == [
        "gate-01 runs edge 0.1.0, yolo11s-gates int8, streams east",
        "gate-01 online",
        "gate-01/east down (404)",
        f"10:15:02.113 gate-01/east #7 {', '.join(['car 0.81'] * 8)} and 2 more",
        "10:15:02.113 gate-01/east #8 nothing",
    ]


def test_listen_writes_json_lines(broker, make_publisher):
    _, lines = listened(
        broker, lambda: make_publisher(broker.port).publish(detections(7)), is_json=True, max_messages=3
    )

    (found,) = [json.loads(line) for line in lines if "detections/1" in line and '"seq"' in line]
    assert found["topic"] == "edge/v1/north/gate-01/streams/east/detections"
    assert found["payload"] == json.loads(detections(7).encode())


@pytest.mark.parametrize(("seqs", "code"), [((1, 2, 3), 0), ((1, 2, 5), 4)])
def test_listen_reports_missing_numbers(broker, make_publisher, seqs, code):
    def act():
        publisher = make_publisher(broker.port)
        for seq in seqs:
            publisher.publish(detections(seq))

    found, lines = listened(broker, act, is_gaps=True, max_messages=5)

    assert found == code
    if code:
        assert lines[0] == "gate-01/east missing [[3, 4]], declared lost []"
    missing = 2 if code else 0
    assert lines[-1] == (
        f"gate-01/east epoch 41: #1 to #{seqs[-1]}, received 3, duplicates 0, declared lost 0, missing {missing}"
    )


def test_listen_tells_no_gap_that_late_messages_fill_at_once(broker, make_publisher):
    def act():
        publisher = make_publisher(broker.port)
        for seq in (1, 30, *range(2, 30)):
            publisher.publish(detections(seq))

    code, lines = listened(broker, act, is_gaps=True, max_messages=32)

    assert code == 0
    assert len(lines) <= 3  # one where a look fell in between, one that it is over, and the report
    assert lines[-1].endswith("#1 to #30, received 30, duplicates 0, declared lost 0, missing 0")


def test_listen_tells_a_gap_that_stays_while_it_goes_on(broker, make_publisher, monkeypatch):
    monkeypatch.setattr("edge.deploy.listen._GAPS_EVERY_S", 0.1)

    def act():
        publisher = make_publisher(broker.port)
        for seq in (1, 4, 2, 3):
            publisher.publish(detections(seq))
            time.sleep(0.5)

    code, lines = listened(broker, act, is_gaps=True, max_messages=6)

    assert code == 0
    assert lines[:-1] == [f"gate-01/east missing {left}, declared lost []" for left in ([[2, 3]], [[3, 3]], [])]


def test_listen_reports_missing_events(broker, make_publisher):
    def act():
        publisher = make_publisher(broker.port)
        for message in (detections(1), event(1), event(3)):
            publisher.publish(message)

    found, lines = listened(broker, act, is_gaps=True, max_messages=5)

    assert found == 4
    assert "gate-01/east events missing [[2, 2]], declared lost []" in lines
    assert lines[-1].startswith("gate-01/east events epoch 41: #1 to #3, received 2,")


def test_listen_reports_in_json(broker, make_publisher):
    _, lines = listened(
        broker, lambda: make_publisher(broker.port).publish(detections(1)), is_gaps=True, is_json=True, max_messages=3
    )

    assert json.loads(lines[-1])["event"] == "account"
    assert json.loads(lines[-1])["received"] == 1


def test_listen_ends_in_time(broker):
    code, lines = listened(broker, lambda: None, duration_s=0.1)

    assert (code, lines) == (0, [])


@pytest.mark.parametrize("device", ["#", "a/b", "", "+/x", "Gate", "a b", "gate-01\n", "x" * 33])
def test_listen_refuses_what_is_no_device(device):
    with pytest.raises(ConfigError, match="device: expected a name"):
        Subscriber(config(1883), device=device)


def test_listen_to_no_host_is_told(capsys):
    with pytest.raises(PublishError, match=r"expected a host name or an address, got ''.*correct mqtt.host"):
        Subscriber(MqttConfig(host="", tls=False)).open()


@contextlib.contextmanager
def listen_command(broker, *options):
    # fmt: off
    words = [
        sys.executable, "-m", "edge.cli.edge_deploy", "listen", "--host", "127.0.0.1", "--port", str(broker.port),
        "--no-tls", "--site", "north", *options,
    ]
    # fmt: on
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_listen_ends_well_when_its_reader_has_had_enough(broker, make_publisher, options):
    with listen_command(broker, *options) as process:
        assert "listening to" in process.stderr.readline()
        publisher = make_publisher(broker.port)
        assert process.stdout.readline()
        process.stdout.close()
        publish_frames(publisher, range(1, 101))

        assert process.wait(60) == 0
        assert process.stderr.read() == ""


@pytest.mark.parametrize("has_devices", [True, False])
@pytest.mark.slow(reason="waits for silence")
def test_who_listens_to_a_site_that_is_not_there_is_told_who_is(broker, make_publisher, has_devices):
    if has_devices:
        publisher = make_publisher(broker.port)
        publisher.publish(detections(1))
        wait_until(lambda: publisher.is_connected, what="the device says that it is online")
    with listen_command(broker, "--site", "nroth") as process:
        assert "listening to" in process.stderr.readline()
        told = process.stderr.readline()

    known = "this broker knows north: gate-01\n" if has_devices else "no device of ours is under edge/v1, or this login"
    assert told.startswith("nothing yet from edge/v1/nroth/+; ")
    assert known in told
