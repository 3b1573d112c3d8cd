import builtins
import gc
import socket
import sys

import paho.mqtt.client as mqtt
import pytest

from edge.demo.broker import embedded_broker
from edge.errors import MissingDependencyError
from tests.support.wait import wait_until


def test_a_broker_serves_on_loopback_until_the_end_of_its_block():
    with embedded_broker() as broker:
        assert broker.host == "127.0.0.1"
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
        client.connect(broker.host, broker.port)
        client.loop_start()
        wait_until(client.is_connected, what="connected")
        client.disconnect()
        client.loop_stop()

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((broker.host, broker.port), timeout=5)


def connected_client(broker):
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.connect(broker.host, broker.port)
    client.loop_start()
    client.subscribe("#")
    return client


@pytest.mark.slow(reason="hundreds of connections")
def test_clients_that_leave_at_the_last_moment_leave_no_socket_behind(monkeypatch):
    found = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: found.append(str(unraisable.exc_value)))
    for _ in range(6):
        with embedded_broker() as broker:
            clients = [connected_client(broker) for _ in range(3)]
            for client in clients:
                client.publish("a/b", "x", qos=1)
            clients[0].disconnect()
        for client in clients:
            client.disconnect()
            client.loop_stop()
        gc.collect()

    assert found == []


def test_two_brokers_get_along():
    with embedded_broker() as one, embedded_broker() as other:
        assert one.port != other.port


def test_a_missing_library_names_its_extra(monkeypatch):
    real = builtins.__import__

    def without_amqtt(name, *rest, **options):
        if name.startswith("amqtt"):
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without_amqtt)

    with pytest.raises(MissingDependencyError, match=r"edge-deploy\[demo\]"):
        embedded_broker().__enter__()
