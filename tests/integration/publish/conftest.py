import contextlib

import msgspec
import pytest

from edge.config.schema import MqttConfig
from edge.publish.mqtt.publisher import MqttPublisher
from edge.publish.mqtt.trouble import BrokerBackoff
from tests.support.mosquitto import Behaviour, Collector, FakeBroker, Mosquitto
from tests.support.own_disk import OwnDisk
from tests.support.wait import wait_connected
from tests.support.wire_messages import birth


def quick_backoff(refused_s=300.0):
    return BrokerBackoff(min_s=0.02, max_s=0.1, refused_s=refused_s)


@pytest.fixture
def make_publisher(make_fake):
    """Make publishers that try again quickly and are closed at the end."""
    made = []

    def make(port, *, streams=("east",), epoch=41, credential=None, base_dir=None, **options):
        keys = {"host": "127.0.0.1", "tls": False}
        for name in ("host", "tls", "credential", "client_id", "keepalive_s", "protocol"):
            if name in options:
                keys[name] = options.pop(name)
        options = {"backoff": quick_backoff(), "close_timeout_s": 2.0} | options
        publisher = MqttPublisher(
            MqttConfig(port=port, site="north", **keys),
            info=msgspec.structs.replace(birth(*streams), epoch=epoch),
            credential=credential if callable(credential) else lambda: credential,
            base_dir=base_dir,
            **options,
        )
        made.append(publisher)
        return publisher

    yield make
    for publisher in made:
        publisher.close()


@pytest.fixture
def connected(make_publisher):
    """Make publishers that are connected, and have nothing left to send."""

    def make(port, **options):
        publisher = make_publisher(port, **options)
        wait_connected(publisher)
        assert publisher.flush(60)
        return publisher

    return make


@pytest.fixture
def make_broker(tmp_path):
    made = []

    def make(**options):
        made.append(Mosquitto(tmp_path / f"broker{len(made)}", **options))
        return made[-1]

    yield make
    for broker in made:
        broker.kill()


@pytest.fixture
def broker(make_broker):
    return make_broker().start()


@pytest.fixture
def disk(tmp_path):
    with contextlib.closing(OwnDisk(tmp_path / "disk", tmp_path / "image")) as made:
        yield made


@pytest.fixture
def make_fake():
    """Make fake brokers; `make_publisher` asks for it first, so that publishers are closed before them."""
    with contextlib.ExitStack() as stack:
        yield lambda **behaviour: stack.enter_context(FakeBroker(Behaviour(**behaviour)))


@pytest.fixture
def make_collector():
    made = []

    def make(port):
        made.append(Collector(port))
        return made[-1]

    yield make
    for collector in made:
        collector.close()


@pytest.fixture
def collector(broker, make_collector):
    return make_collector(broker.port)


@pytest.fixture
def away(make_broker, make_collector):
    """A broker that is away, and who collects from it: their session is kept, so no message can come before them."""
    broker = make_broker(is_persistent=True).start()
    collector = make_collector(broker.port)
    broker.stop()
    return broker, collector
