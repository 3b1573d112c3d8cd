"""Brokers for tests, and who listens to them: plain paho, which shares no code with ours, and `listen`.

A real mosquitto, and a strict broker of a few lines, which can refuse, limit and count what mosquitto does not. What it
knows of MQTT's wire format was written from the standard, not from paho.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edge.config.schema import MqttConfig
from edge.deploy.listen import ListenOptions, listen
from tests.support.manifests import Certificates
from tests.support.ports import free_port
from tests.support.promise import Findings, findings
from tests.support.tcp_server import TcpServer
from tests.support.wait import wait_until


class Mosquitto:
    """Started by `start` or `with`; `options` are further lines of its configuration."""

    def __init__(
        self,
        directory: Path,
        *,
        options: tuple[str, ...] = (),
        tls: Certificates | None = None,
        users: dict[str, str] | None = None,
        is_persistent: bool = False,
        host: str = "127.0.0.1",
        port: int | None = None,
        is_verbose: bool = True,
    ) -> None:
        self.directory = directory
        self.host, self.port = host, port or free_port()
        self._process: subprocess.Popen | None = None
        self._verbosity = ["-v"] if is_verbose else []
        directory.mkdir(parents=True, exist_ok=True)
        lines = [f"listener {self.port} {self.host}", "user root", "max_queued_messages 100000", *options]
        if tls is not None:
            lines += [f"cafile {tls.ca}", f"certfile {tls.certificate}", f"keyfile {tls.key}"]
        if users is None:
            lines.append("allow_anonymous true")
        else:
            lines += ["allow_anonymous false", f"password_file {self._password_file(users)}"]
        if is_persistent:
            lines += ["persistence true", f"persistence_location {directory}/"]
        self._config = directory / "mosquitto.conf"
        self._config.write_text("\n".join(lines) + "\n")

    def _password_file(self, users: dict[str, str]) -> Path:
        path = self.directory / "passwords"
        path.touch(mode=0o600)
        for name, password in users.items():
            subprocess.run(["mosquitto_passwd", "-b", str(path), name, password], check=True, capture_output=True)
        return path

    def start(self) -> Mosquitto:
        log = (self.directory / "mosquitto.log").open("ab")
        self._process = subprocess.Popen(
            ["mosquitto", "-c", str(self._config), *self._verbosity], stdout=log, stderr=log
        )
        log.close()
        wait_until(self._is_listening, what=f"mosquitto listens; see {self.directory}/mosquitto.log")
        return self

    def _is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((self.host, self.port)) == 0

    def stop(self) -> None:
        """SIGTERM: it keeps what is persistent."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def restart(self, *, pause_s: float = 0.0) -> None:
        self.stop()
        time.sleep(pause_s)
        self.start()

    def save(self) -> None:
        """Write down now what is persistent, the sessions of subscribers too: a kill does not take them then."""
        os.kill(self._process.pid, signal.SIGUSR1)

    def freeze(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def log(self) -> str:
        return (self.directory / "mosquitto.log").read_text(errors="replace")

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(how)
            self._process.wait(60)
        self._process = None

    def __enter__(self) -> Mosquitto:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()


class KeptSession:
    """Hands on everything below `#`, over reconnects, with a session that the broker keeps."""

    def __init__(self, port: int, on_message: Callable[[mqtt.MQTTMessage], object], *, host: str = "127.0.0.1") -> None:
        self._is_subscribed = False
        self._client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, client_id=f"collector-{id(self)}", protocol=mqtt.MQTTv5
        )
        self._client.on_connect = lambda client, *_: client.subscribe("#", qos=1)
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = lambda _client, _data, message: on_message(message)
        self._client.reconnect_delay_set(0.05, 0.2)
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 86_400
        self._client.connect(host, port, clean_start=False, properties=properties)
        self._client.loop_start()
        wait_until(lambda: self._is_subscribed, what="collector subscribed")

    def _on_subscribe(self, *_: object) -> None:
        self._is_subscribed = True

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class Collector(KeptSession):
    """Collects everything below `#`."""

    def __init__(self, port: int, *, host: str = "127.0.0.1") -> None:
        self.messages: list[mqtt.MQTTMessage] = []
        super().__init__(port, self.messages.append, host=host)

    def payloads(self, ending: str | tuple[str, ...]) -> list[dict]:
        """Return the parsed payloads of all topics that end so (or in one of these ways), in order of arrival."""
        return [json.loads(m.payload) for m in list(self.messages) if m.payload and m.topic.endswith(ending)]

    def findings(self, *, may_be_open: bool = False) -> Findings:
        """Return what all that came says of the promise; `may_be_open` as for `findings`."""
        came = [(message.topic, message.payload) for message in list(self.messages)]
        return findings(came, may_be_open=may_be_open)

    def numbers(self) -> dict[str, list[int]]:
        """Return the detections' numbers by stream, live and late ones, in order of arrival, with duplicates."""
        found: dict[str, list[int]] = defaultdict(list)
        for payload in self.payloads(("/detections", "/replay")):
            found[payload["stream"]].append(payload["seq"])
        return found

    def declared(self) -> dict[str, set[int]]:
        """Return the numbers that gap messages name, by stream."""
        found: dict[str, set[int]] = defaultdict(set)
        for gap in self.payloads("/gaps"):
            found[gap["stream"]] |= set(range(gap["from"], gap["to"] + 1))
        return found

    def undeclared(self, stream: str, last: int) -> set[int]:
        """Return which of 1 to `last` neither came nor were declared."""
        return set(range(1, last + 1)) - set(self.numbers()[stream]) - self.declared()[stream]


def config(port: int, **keys: Any) -> MqttConfig:
    """Return what leads to a broker of this machine, at site `north`."""
    return MqttConfig(host="127.0.0.1", port=port, site="north", tls=False, **keys)


def listened(broker: Any, act: Callable[[], object], **options: Any) -> tuple[int, list[str]]:
    """Run `listen` in a thread while `act` runs; return its exit code and the lines of its output."""
    out, progress, code = io.StringIO(), io.StringIO(), []
    given = ListenOptions(mqtt=config(broker.port), **options)
    thread = threading.Thread(target=lambda: code.append(listen(given, out, progress=progress)))
    thread.start()
    wait_until(lambda: "listening to" in progress.getvalue(), what="listening")
    act()
    thread.join(60)
    return code[0], out.getvalue().split("\n")[:-1]


@dataclass
class Behaviour:
    """What it does; the defaults accept everything.

    `on_v5` is `accept`, `refuse` as MQTT v3.1.1 says it, `refuse-in-v5`, `close`, or what it says.
    """

    on_v5: str | bytes = "accept"
    connack_reason: int = 0
    receive_maximum: int | None = None
    maximum_packet_size: int | None = None
    can_retain: bool = True
    maximum_qos: int | None = None
    disconnect_reason: int | None = None
    puback_reason: Callable[[Publish], int] = field(default=lambda publish: 0)


class FakeBroker(TcpServer):
    """Acknowledges late, so that too many messages on their way are seen."""

    def __init__(self, behaviour: Behaviour | None = None) -> None:
        super().__init__()
        self.behaviour = behaviour or Behaviour()
        self.connects: list[bytes] = []
        self.connected_at_s: list[float] = []
        self.accepted: list[Publish] = []
        self.violations: list[str] = []
        self._connections: list[socket.socket] = []

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.drop()
        for thread in self._threads:
            thread.join(60)

    def drop(self) -> None:
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def serve(self, connection: socket.socket) -> None:
        self._connections.append(connection)
        first = read_packet(connection)
        assert first.kind == CONNECT
        self.connects.append(first.body)
        self.connected_at_s.append(time.monotonic())
        version = first.body[6]
        if not self._answer_connect(connection, version):
            return
        if self.behaviour.disconnect_reason is not None:
            connection.sendall(packet(DISCONNECT, bytes([self.behaviour.disconnect_reason])))
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):  # closing with unread data would reset what we just said
                pass
            return
        self._serve_packets(connection, version)

    def _answer_connect(self, connection: socket.socket, version: int) -> bool:
        behaviour = self.behaviour
        if version == 5 and behaviour.on_v5 != "accept":
            if behaviour.on_v5 == "refuse":
                connection.sendall(packet(CONNACK, b"\0\1"))
            elif behaviour.on_v5 == "refuse-in-v5":
                connection.sendall(packet(CONNACK, b"\0\x84\0"))
            elif isinstance(behaviour.on_v5, bytes):
                connection.sendall(behaviour.on_v5)
            return False
        properties = self._connack_properties() if version == 5 else b""
        connection.sendall(packet(CONNACK, bytes([0, behaviour.connack_reason]) + properties))
        return behaviour.connack_reason == 0

    def _connack_properties(self) -> bytes:
        behaviour, found = self.behaviour, b""
        if behaviour.receive_maximum is not None:
            found += b"\x21" + struct.pack("!H", behaviour.receive_maximum)
        if behaviour.maximum_packet_size is not None:
            found += b"\x27" + struct.pack("!I", behaviour.maximum_packet_size)
        if not behaviour.can_retain:
            found += b"\x25\0"
        if behaviour.maximum_qos is not None:
            found += b"\x24" + bytes([behaviour.maximum_qos])
        return bytes([len(found)]) + found

    def _serve_packets(self, connection: socket.socket, version: int) -> None:
        outstanding: list[Publish] = []
        connection.settimeout(0.01)
        while True:
            try:
                received = read_packet(connection)
            except TimeoutError:
                for publish in outstanding:
                    self._acknowledge(connection, publish, version)
                outstanding.clear()
                continue
            if received.kind == PINGREQ:
                connection.sendall(packet(PINGRESP, b""))
            elif received.kind == DISCONNECT:
                return
            elif received.kind == SUBSCRIBE:
                connection.sendall(packet(SUBACK, received.body[:2] + (b"\0\1" if version == 5 else b"\1")))
            elif received.kind == PUBLISH:
                publish = parse_publish(received, version=version)
                self._check(received, publish, len(outstanding) + 1)
                if publish.qos == 0:
                    self.accepted.append(publish)
                else:
                    outstanding.append(publish)

    def _check(self, received: Packet, publish: Publish, outstanding: int) -> None:
        behaviour = self.behaviour
        if outstanding > (behaviour.receive_maximum or 65_535):
            self.violations.append(f"{outstanding} on their way")
        if len(received.raw) > (behaviour.maximum_packet_size or 1 << 28):
            self.violations.append(f"packet of {len(received.raw)} bytes")
        if publish.is_retained and not behaviour.can_retain:
            self.violations.append("retained")
        if publish.qos > (1 if behaviour.maximum_qos is None else behaviour.maximum_qos):
            self.violations.append(f"QoS {publish.qos}")

    def _acknowledge(self, connection: socket.socket, publish: Publish, version: int) -> None:
        reason = self.behaviour.puback_reason(publish) if version == 5 else 0
        body = struct.pack("!H", publish.packet_id) + (bytes([reason]) if version == 5 else b"")
        if reason < 0x80:
            self.accepted.append(publish)
        connection.sendall(packet(PUBACK, body))


CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK, PINGREQ, PINGRESP, DISCONNECT = 1, 2, 3, 4, 8, 9, 12, 13, 14


@dataclass(frozen=True)
class Packet:
    kind: int
    flags: int
    body: bytes
    raw: bytes


def read_exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("closed")
        data += part
    return data


def read_packet(connection: socket.socket) -> Packet:
    raw = read_exactly(connection, 1)
    length, shift = 0, 0
    while True:
        byte = read_exactly(connection, 1)
        raw += byte
        length |= (byte[0] & 127) << shift
        shift += 7
        if byte[0] < 128:
            break
    body = read_exactly(connection, length)
    return Packet(raw[0] >> 4, raw[0] & 15, body, raw + body)


def packet(kind: int, body: bytes, flags: int = 0) -> bytes:
    length, head = len(body), bytes([kind << 4 | flags])
    while True:
        length, digit = divmod(length, 128)
        head += bytes([digit | (128 if length else 0)])
        if not length:
            return head + body


def text_at(body: bytes, offset: int) -> tuple[bytes, int]:
    """Return a length-prefixed field and the offset behind it."""
    (length,) = struct.unpack_from("!H", body, offset)
    return body[offset + 2 : offset + 2 + length], offset + 2 + length


@dataclass(frozen=True)
class Publish:
    topic: str
    packet_id: int
    qos: int
    is_retained: bool
    is_duplicate: bool
    payload: bytes


def parse_publish(received: Packet, *, version: int) -> Publish:
    topic, offset = text_at(received.body, 0)
    qos = received.flags >> 1 & 3
    packet_id = 0
    if qos:
        (packet_id,) = struct.unpack_from("!H", received.body, offset)
        offset += 2
    if version == 5:
        length, shift = 0, 0
        while True:
            byte = received.body[offset]
            offset += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        offset += length
    return Publish(
        topic.decode(), packet_id, qos, bool(received.flags & 1), bool(received.flags & 8), received.body[offset:]
    )
