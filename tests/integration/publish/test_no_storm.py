"""Brokers that end every connection at once: whoever connects pauses in between, and says once what to do.

And what mosquitto does of the ways in which brokers were seen to refuse: the innocent stream gets all of its own. The
others are functions, on a clock of their own (tests/unit/publish/test_suspects.py).
"""

import logging

import pytest

from edge.client import Client
from edge.config.schema import MqttConfig
from edge.errors import PublishError
from edge.publish.mqtt.subscriber import Subscriber
from edge.publish.mqtt.trouble import BrokerBackoff
from tests.support.mosquitto import Behaviour, FakeBroker
from tests.support.wait import next_try_s, wait_until
from tests.support.wire_messages import birth, detections, publish_frames

REFUSALS = ["refuse", "refuse-in-v5"]
ENDS = {
    "closes": "close",
    "http": b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
    "no-mqtt": b"\xff" * 64,
    "half-a-connack": b"\x20\x03\0",
    "connack-of-nonsense": b"\x20\x05\0\0\x05\x99\x01",
    "accepts-and-closes": b"\x20\x03\0\0\0",
    "accepts-and-talks-nonsense": b"\x20\x03\0\0\0" + b"\xff" * 20,
    "accepts-and-is-not-available": b"\x20\x03\0\0\0\xe0\x01\x88",
}
ends = pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
LEAST_S = 0.5
QUICK = {("v5", "closes"), ("v5", "no-mqtt")}
SLOW = pytest.mark.slow(reason="two pauses of a second or two each, for each kind of end")


def config(fake, protocol="v5"):
    return MqttConfig(host="127.0.0.1", port=fake.port, tls=False, site="north", protocol=protocol)


def assert_pauses(fake):
    first, _, third = fake.connected_at_s[:3]
    assert third - first >= 2 * LEAST_S


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_device_that_may_speak_v5_only_waits_for_a_person(make_fake, make_publisher, caplog, refusal):
    caplog.set_level(logging.INFO)
    fake = make_fake(on_v5=refusal)
    publisher = make_publisher(fake.port, protocol="v5", backoff=BrokerBackoff())
    wait_until(lambda: next_try_s(publisher), what="a plan")

    assert next_try_s(publisher) > 10
    assert "protocol: auto" in publisher.status
    publisher.close()
    assert len(fake.connects) == 1
    assert len([one for one in caplog.messages if one.startswith("broker status=not connected")]) == 1


@pytest.mark.parametrize(
    ("protocol", "end"),
    [
        pytest.param(protocol, end, id=f"{protocol}-{name}", marks=() if (protocol, name) in QUICK else SLOW)
        for protocol in ("v5", "auto")
        for name, end in ENDS.items()
    ],
)
def test_a_device_pauses_between_connections_that_end_at_once(make_fake, make_publisher, caplog, protocol, end):
    caplog.set_level(logging.INFO)
    fake = make_fake(on_v5=end)
    make_publisher(fake.port, protocol=protocol, backoff=BrokerBackoff(min_s=LEAST_S))
    wait_until(lambda: len(fake.connects) >= 3 or fake.accepted, what="three connections")

    if not fake.accepted:
        assert_pauses(fake)
        if "status=connected" not in caplog.text:
            assert len([one for one in caplog.messages if "not connected" in one]) == 1
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("reason", [0x9A, 0x9B])
def test_a_broker_that_takes_no_will_whatever_it_is_like_is_asked_twice(make_fake, make_publisher, reason):
    fake = make_fake(connack_reason=reason)
    publisher = make_publisher(fake.port, protocol="v5", backoff=BrokerBackoff())
    wait_until(lambda: next_try_s(publisher) >= 10, what="a long wait")
    publisher.close()

    assert len(fake.connects) == 2


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_subscriber_that_may_speak_v5_only_says_what_to_do_and_asks_once(refusal):
    with FakeBroker(Behaviour(on_v5=refusal)) as fake:
        with pytest.raises(PublishError, match="protocol: auto"):
            Subscriber(config(fake)).open()
        with pytest.raises(PublishError, match="protocol: auto"):
            Client("127.0.0.1", port=fake.port, tls=False, protocol="v5")

        assert len(fake.connects) == 2


@ends
def test_a_subscriber_says_of_every_end_what_it_is(end):
    with FakeBroker(Behaviour(on_v5=end)) as fake, pytest.raises(PublishError, match=f"127.0.0.1:{fake.port}"):
        Subscriber(config(fake)).open()


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_client_whose_broker_forgets_v5_while_it_listens_waits_for_a_person(refusal):
    """As where a broker is replaced by an older one: v5 was accepted, so nothing else is tried."""
    said = []
    with FakeBroker() as fake:
        client = Client("127.0.0.1", port=fake.port, tls=False, on_status=said.append)
        fake.behaviour.on_v5 = refusal
        fake.drop()
        items = client.receive()
        wait_until(lambda: next(items) is None and "0x84" in "".join(said), what="the refusal")
        for _ in range(3):  # looks at the connection
            next(items)
        client.close()

        assert len(fake.connects) == 2
        assert len([one for one in said if "0x84" in one]) == 1


@pytest.mark.parametrize("end", [ENDS["closes"], ENDS["no-mqtt"]], ids=["closes", "no-mqtt"])
def test_one_who_listens_pauses_between_connections_that_end_at_once(end):
    said = []
    with FakeBroker(Behaviour(on_v5=end)) as fake:
        subscriber = Subscriber(config(fake), backoff=BrokerBackoff(min_s=LEAST_S))
        arrivals = subscriber.receive(on_status=said.append)
        wait_until(lambda: next(arrivals) is None and len(fake.connects) >= 3, what="three")
        subscriber.close()

        assert_pauses(fake)
        assert len(said) == 1


BIG = 60  # objects
NONE, REFUSED, OVERSIZE = frozenset(), frozenset({"refused"}), frozenset({"oversize"})
WEST = frozenset(range(1, 31))


@pytest.mark.promised(reason="no message stops the others")
@pytest.mark.parametrize(
    ("option", "protocol", "lost", "reasons"),
    [
        ("max_packet_size 2000", "v3.1.1", {15}, OVERSIZE),  # it closes the connection without a word
        ("max_packet_size 2000", "v5", {15}, OVERSIZE),  # it says so in its CONNACK
        ("message_size_limit 2000", "v5", {15}, OVERSIZE),  # it answers 0x95
        ("acl_file {acl}", "v5", WEST, REFUSED),  # it answers 0x87
        ("retain_available false", "v5", set(), NONE),
        ("max_inflight_messages 1", "v5", set(), NONE),
    ],
)
def test_a_mosquitto_that_does_so_takes_all_of_the_innocent_stream(
    make_broker, make_publisher, make_collector, tmp_path, option, protocol, lost, reasons
):
    acl = tmp_path / "acl"
    acl.write_text("topic deny edge/v1/north/gate-01/streams/west/#\ntopic readwrite #\n")
    acl.chmod(0o700)
    broker = make_broker(options=(option.format(acl=acl),)).start()
    collector = make_collector(broker.port)
    publisher = make_publisher(broker.port, protocol=protocol, streams=("east", "west"))
    for seq in WEST:
        publisher.publish(detections(seq))
        publisher.publish(detections(seq, stream="west", count=BIG if seq == 15 and lost == {15} else 1))

    assert publisher.flush(60)
    wait_until(
        lambda: not collector.undeclared("east", 30) | collector.undeclared("west", 30), what="all is accounted for"
    )
    assert (set(collector.numbers()["east"]), set(collector.numbers()["west"])) == (WEST, WEST - lost)
    assert {gap["reason"] for gap in collector.payloads("/gaps")} == reasons


@pytest.mark.promised(reason="no message stops the others")
def test_a_birth_message_over_the_limit_does_not_stop_the_frames(make_broker, make_publisher, make_collector):
    broker = make_broker(options=("max_packet_size 2000",)).start()
    collector = make_collector(broker.port)
    publisher = make_publisher(broker.port, protocol="v3.1.1", streams=[f"stream-number-{n:018d}" for n in range(100)])
    assert len(birth(*[f"stream-number-{n:018d}" for n in range(100)]).encode()) > 2000
    publish_frames(publisher, range(1, 31))

    wait_until(lambda: len(set(collector.numbers()["east"])) == 30, what="all frames")
    wait_until(lambda: publisher.counts()["dropped"] == 1, what="the birth is given up")
    assert not collector.payloads("/info")


def test_a_broker_that_is_killed_again_and_again_is_not_taken_for_one_that_refuses(
    make_broker, connected, make_collector
):
    broker = make_broker(is_persistent=True).start()
    collector = make_collector(broker.port)
    publisher = connected(broker.port)
    for round_ in range(6):
        broker.freeze()
        publisher.publish(detections(round_ + 1))
        wait_until(lambda: publisher.counts()["in_flight"] > 0, what="it is on its way")
        broker.kill()
        wait_until(lambda: not publisher.is_connected, what="the loss")
        broker.start()
        wait_until(lambda: publisher.is_connected, what="the reconnect")

    assert publisher.flush(60)
    assert publisher.counts()["dropped"] == 0
    assert not collector.payloads("/gaps")
