import builtins
import gc
import socket

import paho.mqtt.client as mqtt
import pytest

from edge.demo.broker import EmbeddedBroker
from edge.errors import MissingDependencyError
from tests.support.wait import wait_until


def test_a_broker_serves_on_loopback_until_the_end_of_its_block():
    with EmbeddedBroker() as broker:
        assert broker.host == "127.0.0.1"
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
        client.connect(broker.host, broker.port)
        client.loop_start()
        wait_until(client.is_connected, what="connected")
        client.disconnect()
        client.loop_stop()

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((broker.host, broker.port), timeout=5)


def test_a_client_that_leaves_at_the_last_moment_leaves_no_socket_behind():
    # An open socket that the collector finds is an error of the test that runs by then.
    for _ in range(5):
        with EmbeddedBroker() as broker:
            client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
            client.connect(broker.host, broker.port)
            client.loop_start()
            wait_until(client.is_connected, what="connected")
            client.socket().shutdown(socket.SHUT_RDWR)
        client.loop_stop()
        gc.collect()


def test_two_brokers_get_along():
    with EmbeddedBroker() as one, EmbeddedBroker() as other:
        assert one.port != other.port


def test_a_missing_library_names_its_extra(monkeypatch):
    real = builtins.__import__

    def without_amqtt(name, *rest, **options):
        if name.startswith("amqtt"):
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without_amqtt)

    with pytest.raises(MissingDependencyError, match=r"edge-deploy\[demo\]"):
        EmbeddedBroker()
