"""One connection to a broker, over paho-mqtt: the only module that knows paho.

paho's own queue, reconnecting and resending are not used: they exceed Receive Maximum, duplicate and grow (paho-mqtt
2.2, issue #492). Nor does it make the PUBLISH packets, or see their PUBACK (docs/adr/0013). A `Connection` lives from
one CONNECT to its loss, is driven by the one thread that owns it, and reports what happened as values: paho's callbacks
only append to a list.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import select
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from edge.deadline import Deadline
from edge.errors import MissingDependencyError
from edge.publish.mqtt.endpoint import Endpoint, no_dots
from edge.publish.mqtt.stream import (
    Acknowledged,
    PacketStream,
    Streams,
    acknowledged_from,
    packed_properties,
    publish_packet,
)
from edge.publish.mqtt.trouble import V5, BrokerError, Trouble, trouble_from_error, trouble_from_reason

__all__ = ["Connection", "MqttLimits", "Received", "Subscribed", "Waker", "Will", "seek", "waits_for_return"]

# The broker keeps our session so long after a loss; without it, it would not delay the Will either.
_SESSION_EXPIRY_S = 15
_WILL_DELAY_S = 5
_FAILURE = 0x80
_LARGEST_ID = 65_535
_KEEP_ALIVE = 0x8D
_CHECK_S = 0.25
# Messages and acknowledgements come several at a time: the first one wakes a reader, which waits for the others.
_GATHER_S = 0.002
_LAST_READS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Will:
    """The Will: published by the broker in our name when we are gone."""

    topic: str
    payload: bytes
    qos: int = 1
    is_retained: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttLimits:
    """Limits of this broker (CONNACK)."""

    receive_maximum: int = 65_535
    packet_bytes: int | None = None
    maximum_qos: int = 1
    can_retain: bool = True


@dataclass(frozen=True, slots=True)
class Received:
    """A message of one of our subscriptions."""

    topic: str
    payload: bytes
    is_retained: bool


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The broker has answered a subscription."""

    is_refused: bool


_Event = Acknowledged | Received | Subscribed


class Waker:
    """Ends a `Connection.poll` of another thread."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def wake(self) -> None:
        """Make the current poll, or the next one, return at once."""
        with contextlib.suppress(OSError):  # full of calls already, or closed
            self._writer.send(b"\0")

    def fileno(self) -> int:
        return self._reader.fileno()

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._reader.recv(65_536)

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


class Connection:
    """A live connection, by MQTT `version` 5 or 4 (3.1.1), once the broker has accepted us; of no use after an error.

    Raises BrokerError where there is no answer, or a refusal.
    """

    def __init__(self, endpoint: Endpoint, *, version: int, will: Will | None = None) -> None:
        self.version = version
        self.limits = MqttLimits()
        self._endpoint = endpoint
        self._events: list[_Event] = []
        self._trouble: BrokerError | None = None
        self._is_accepted = False
        self._next_check_s = 0.0
        self._latest_id = 0
        self._unanswered: set[int] = set()
        self._will = will
        self._streams = Streams(endpoint.tls)
        self._paho = _import_paho()
        self._client = self._make_client()
        if will is not None:
            about = {"WillDelayInterval": _WILL_DELAY_S, "ContentType": "application/json", "PayloadFormatIndicator": 1}
            properties = self._properties("WILLMESSAGE", **about)
            self._client.will_set(will.topic, will.payload, will.qos, will.is_retained, properties=properties)
        self._connect()

    def poll(self, timeout_s: float, waker: Waker | None = None, *, is_hurried: bool = False) -> list[_Event]:
        """Drive the connection and return what has happened; waits until something has, or the waker was called.

        Unless it `is_hurried`, acknowledgements of what is sent now are waited for a moment, to be read together.
        Raises `BrokerError` when the connection is lost and all that came before has been returned.
        """
        if self._flush() and timeout_s > 0 and not is_hurried:
            time.sleep(_GATHER_S)
        self._drive(timeout_s, waker)
        if not self._events:
            self._raise_loss()
        events, self._events = self._events, []
        return events

    @property
    def is_lost(self) -> bool:
        """Whether nothing more can be sent: `poll` returns what came before, and raises then."""
        return self._trouble is not None or self._client.socket() is None

    def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        is_retained: bool,
        expiry_s: int | None = None,
        user_properties: tuple[tuple[str, str], ...] = (),
    ) -> int:
        """Have the next `poll` send this, QoS 1 (0 where the broker has no other), and return the packet id.

        Properties need MQTT v5. Not for a connection that subscribes: those ids are paho's.
        """
        packet_id = self._next_id()
        self._stream.queue(
            publish_packet(
                topic,
                payload,
                packet_id=packet_id if self.limits.maximum_qos else None,
                is_retained=is_retained and self.limits.can_retain,
                properties=packed_properties(expiry_s, user_properties) if self.version == V5 else b"",
            )
        )
        self._unanswered.add(packet_id)
        return packet_id

    def subscribe(self, topic_filter: str, *, qos: int) -> None:
        """`Subscribed` tells how it went."""
        self._client.subscribe(topic_filter, qos)

    def close(self) -> None:
        """Say goodbye, so that the Will is not sent."""
        self._client.disconnect()
        self.abandon()

    def abandon(self) -> None:
        """Close the socket without a word."""
        if self._streams.latest is not None:
            self._streams.latest.close()

    def _connect(self) -> None:
        deadline = Deadline.after(self._endpoint.connect_timeout_s)
        options: dict[str, Any] = {"keepalive": self._endpoint.keepalive_s}
        if self.version == V5:
            expiry = self._properties("CONNECT", SessionExpiryInterval=_SESSION_EXPIRY_S)
            options |= {"clean_start": False, "properties": expiry}
        try:
            self._client.connect(self._endpoint.host, self._endpoint.port, **options)
            while not self._is_accepted:
                if deadline.is_over:
                    raise BrokerError(Trouble.UNANSWERED, "the broker does not answer a CONNECT")
                self._drive(0.1)
                self._raise_loss()
        except (OSError, ValueError) as error:  # ValueError: from the host
            self.abandon()
            raise trouble_from_error(error, self._endpoint) from error
        except BrokerError:
            self.abandon()
            raise

    def _drive(self, timeout_s: float, waker: Waker | None = None) -> None:
        if self._is_readable(0.0 if self._events else timeout_s, waker):
            try:
                self._read()
            except (OSError, BrokerError):
                raise
            except Exception as error:  # bytes that are no MQTT trip its reader
                kind = Trouble.LOST if self._is_accepted else Trouble.CLOSED
                hint = "mqtt.host and mqtt.port have to be those of an MQTT broker"
                raise BrokerError(kind, "what came is no MQTT", hint=hint) from error
        now_s = time.monotonic()
        if now_s >= self._next_check_s:  # keep alive: no need to look at it for every message
            self._next_check_s = now_s + _CHECK_S
            self._client.loop_misc()

    @property
    def _stream(self) -> PacketStream:
        stream = self._streams.latest
        assert stream is not None  # a connection is handed out open
        return stream

    def _next_id(self) -> int:
        while True:
            self._latest_id = self._latest_id % _LARGEST_ID + 1
            if self._latest_id not in self._unanswered:
                return self._latest_id

    def _flush(self) -> bool:
        """Return whether there was something to send."""
        if not self._stream.has_unsent or self.is_lost:
            return False
        try:
            is_all_sent = self._stream.flush()
        except OSError as error:
            self._read_last()
            lost = f"connection lost while sending: {error.strerror}"
            self._trouble = self._trouble or BrokerError(Trouble.LOST, lost)
            return False
        if is_all_sent and not self.limits.maximum_qos:
            self._events += [Acknowledged(packet_id, 0) for packet_id in sorted(self._unanswered)]
            self._unanswered.clear()
        return True

    def _is_readable(self, timeout_s: float, waker: Waker | None) -> bool:
        """Wait, and return whether there may be something to read."""
        if self._client.socket() is None:
            return False
        stream = self._stream
        if stream.has_pending:
            return True
        poller = select.poll()
        poller.register(stream, select.POLLIN | (select.POLLOUT if stream.has_unsent else 0))
        if waker is not None:
            poller.register(waker, select.POLLIN)
        ready = dict(poller.poll(timeout_s * 1000))
        if waker is not None and waker.fileno() in ready:
            waker.clear()
            time.sleep(_GATHER_S)
            return True
        return bool(ready.get(stream.fileno(), 0) & ~select.POLLOUT)

    def _read(self) -> None:
        """Take what has come: acknowledgements ourselves, all else is paho's."""
        stream, is_v5 = self._stream, self.version == V5
        stream.receive()
        while (packet := stream.next_packet()) is not None:
            told = acknowledged_from(packet, is_v5=is_v5)
            if told is None:
                stream.hand_over(packet)
                self._client.loop_read()
            elif told.packet_id in self._unanswered:
                self._unanswered.remove(told.packet_id)
                self._events.append(told)
        if stream.is_over:
            self._client.loop_read()

    def _read_last(self) -> None:
        """Take all that had come before the loss: acknowledgements, and the broker's reason."""
        for _ in range(_LAST_READS):
            if self._stream.is_over or self._client.socket() is None:
                break
            self._read()

    def _raise_loss(self) -> None:
        if self._trouble is not None:
            raise self._trouble
        if self._client.socket() is None:
            raise self._closed()

    def _closed(self) -> BrokerError:
        if self._is_accepted:
            hint = f"if this repeats, look for another client with the id {self._endpoint.client_id}"
            return BrokerError(Trouble.LOST, "the connection was closed or went silent", hint=hint)
        if isinstance(self._stream.failure, ssl.SSLError):  # with TLS 1.3 it comes behind the handshake
            return trouble_from_error(self._stream.failure, self._endpoint)
        hints = [] if self._endpoint.tls else ["if this is the broker's TLS port, remove `tls: false` (--no-tls)"]
        if self.version == V5:
            hints.append("if it knows no MQTT v5, it takes `protocol: auto`, which tries v3.1.1 too")
        elif self._will is not None and self._will.is_retained:  # v3.1.1 has no word for it: mosquitto just closes
            hints.append(
                "if it allows no retained messages, let it (mosquitto: retain_available true), or speak MQTT v5, "
                f"which can do without (`protocol: auto`){no_dots(self._will.topic)}"
            )
        return BrokerError(Trouble.CLOSED, "the broker closed the connection at CONNECT", hint="; ".join(hints) or None)

    def _make_client(self) -> Any:
        mqtt = self._paho.client
        is_v5 = self.version == V5
        client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2,
            client_id=self._endpoint.client_id,
            clean_session=None if is_v5 else True,
            protocol=mqtt.MQTTv5 if is_v5 else mqtt.MQTTv311,
            reconnect_on_failure=False,
        )
        client.connect_timeout = self._endpoint.connect_timeout_s
        client.tls_set_context(self._streams)
        if self._endpoint.credential is not None:
            client.username_pw_set(self._endpoint.credential.user, self._endpoint.credential.password)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        return client

    def _properties(self, packet: str, **values: object) -> Any:
        properties = self._paho.properties.Properties(getattr(self._paho.packettypes.PacketTypes, packet))
        for name, value in values.items():
            setattr(properties, name, value)
        return properties if self.version == V5 else None

    def _on_connect(self, _client: Any, _data: Any, _flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            is_login = self._endpoint.credential is not None
            self._trouble = trouble_from_reason(reason.value, str(reason), is_login=is_login)
            return
        self.limits = MqttLimits(
            receive_maximum=getattr(properties, "ReceiveMaximum", 65_535),
            packet_bytes=getattr(properties, "MaximumPacketSize", None),
            maximum_qos=getattr(properties, "MaximumQoS", 1),
            can_retain=bool(getattr(properties, "RetainAvailable", 1)),
        )
        self._is_accepted = True

    def _on_disconnect(self, _client: Any, _data: Any, flags: Any, reason: Any, _properties: Any) -> None:
        if self._trouble is not None:
            return
        if flags.is_disconnect_packet_from_server:
            is_about_messages = self._is_accepted and bool(self._unanswered)
            self._trouble = trouble_from_reason(reason.value, str(reason), is_about_messages=is_about_messages)
        elif reason.value == _KEEP_ALIVE:
            self._trouble = BrokerError(Trouble.SILENT, "the broker does not answer any more")

    def _on_subscribe(self, _client: Any, _data: Any, _packet_id: int, reasons: Any, _properties: Any) -> None:
        self._events.append(Subscribed(any(reason.value >= _FAILURE for reason in reasons)))

    def _on_message(self, _client: Any, _data: Any, message: Any) -> None:
        self._events.append(Received(message.topic, message.payload, message.retain))


def seek(endpoint: Endpoint) -> None:
    """Connect and say nothing; raises BrokerError where nothing listens."""
    try:
        socket.create_connection((endpoint.host, endpoint.port), endpoint.connect_timeout_s).close()
    except (OSError, ValueError) as error:  # ValueError: from the host
        raise trouble_from_error(error, endpoint) from error


def waits_for_return(endpoint: Endpoint, delay_s: float) -> Iterator[float]:
    """Yield how long to wait at a time, until `delay_s` is over, or the broker was seen gone and is there again."""
    endpoint = dataclasses.replace(endpoint, connect_timeout_s=1.0)
    until, has_gone = Deadline.after(delay_s), False
    while True:
        yield min(random.uniform(1.0, 2.0), until.left_s)
        if until.is_over:
            return
        try:
            seek(endpoint)
        except BrokerError:
            has_gone = True
        else:
            if has_gone:
                return


def _import_paho() -> Any:
    try:
        import paho.mqtt
        import paho.mqtt.client
    except ImportError as error:
        raise MissingDependencyError(
            "MQTT needs paho-mqtt 2.1 or newer, which is not installed", hint="run: pip install 'paho-mqtt>=2.1'"
        ) from error
    return paho.mqtt
