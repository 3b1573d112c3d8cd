"""One connection to a broker, over paho-mqtt: the only module that knows paho.

paho's own queue, reconnecting and resending are not used: they exceed Receive Maximum, duplicate and grow (paho-mqtt
2.2, issue #492). A `Connection` lives from one CONNECT to its loss, is driven by the one thread that owns it, and
reports what happened as values: paho's callbacks only append to a list.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from typing import Any

from edge.deadline import Deadline
from edge.errors import MissingDependencyError
from edge.publish.mqtt.connection import (
    Acknowledged,
    Event,
    Limits,
    PackedProperties,
    Received,
    Subscribed,
    Waker,
    Will,
)
from edge.publish.mqtt.endpoint import Endpoint
from edge.publish.mqtt.trouble import BrokerError, Trouble, trouble_from_error, trouble_from_reason
from edge.publish.mqtt.window import LARGEST

__all__ = ["Connection", "connect"]

# A peer that vanished without a word is noticed when sent data stays unacknowledged for so long.
_TCP_USER_TIMEOUT_MS = 15_000
# The broker keeps our session so long after a loss; without it, it would not delay the Will either.
_SESSION_EXPIRY_S = 15
_FAILURE = 0x80
_KEEP_ALIVE = 0x8D
_PACKET_TOO_LARGE = 0x95
_CHECK_S = 0.25


class _TlsWrapper:
    """An SSL context that remembers the socket it made: paho leaves it open when the handshake fails."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self.check_hostname = context.check_hostname
        self.wrapped: ssl.SSLSocket | None = None

    def wrap_socket(self, plain: socket.socket, **options: Any) -> ssl.SSLSocket:
        self.wrapped = self._context.wrap_socket(plain, **options)
        return self.wrapped


class Connection:
    """A live connection; made by `connect`, and of no use after the first `BrokerError`."""

    def __init__(self, endpoint: Endpoint, *, version: int, will: Will | None) -> None:
        self.version = version
        self.limits = Limits()
        self._endpoint = endpoint
        self._events: list[Event] = []
        self._trouble: BrokerError | None = None
        self._is_accepted = False
        self._next_check_s = 0.0
        self._tls = None if endpoint.tls is None else _TlsWrapper(endpoint.tls)
        self._paho = _import_paho()
        self._client = self._make_client()
        if will is not None:
            self._client.will_set(
                will.topic, will.payload, will.qos, will.is_retained, properties=self._will_properties(will)
            )

    def poll(self, timeout_s: float, waker: Waker | None = None) -> list[Event]:
        """Drive the connection and return what has happened; waits until something has, or the waker was called.

        Raises:
            BrokerError: when the connection is lost.
        """
        if self._is_readable(timeout_s, waker):
            self._client.loop_read()
        if self._client.want_write():
            self._client.loop_write()
        now_s = time.monotonic()
        if now_s >= self._next_check_s:  # keep alive: no need to look at it for every message
            self._next_check_s = now_s + _CHECK_S
            self._client.loop_misc()
        return self._take_events()

    def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        is_retained: bool,
        expiry_s: int | None = None,
        user_properties: tuple[tuple[str, str], ...] = (),
    ) -> int:
        """Send with QoS 1 (0 where the broker has no other) and return the packet id; properties need MQTT v5.

        Raises:
            BrokerError: when the connection is lost.
        """
        packed = PackedProperties(expiry_s, user_properties) if self.version == 5 else None
        sent = self._client.publish(
            topic,
            payload,
            qos=min(1, self.limits.maximum_qos),
            retain=is_retained and self.limits.can_retain,
            properties=packed,
        )
        if sent.rc != 0:
            raise self._trouble or BrokerError(Trouble.LOST, "connection lost while sending")
        return int(sent.mid)

    def subscribe(self, topic_filters: tuple[str, ...]) -> None:
        """Ask for the messages of these filters, QoS 1; `Subscribed` tells how it went."""
        self._client.subscribe([(topic_filter, 1) for topic_filter in topic_filters])

    def close(self) -> None:
        """Say goodbye, so that the Will is not sent."""
        self._client.disconnect()
        self.abandon()

    def abandon(self) -> None:
        """Close the socket without a word."""
        held = self._client.socket() or (None if self._tls is None else self._tls.wrapped)
        if held is not None:
            held.close()

    def open(self) -> None:
        """Connect and wait for the broker's answer.

        Raises:
            BrokerError: when there is none, or it is a refusal.
        """
        deadline = Deadline.after(self._endpoint.connect_timeout_s)
        try:
            self._open_socket()
        except (OSError, ValueError) as error:  # ValueError: from the host, which is all that we give it here
            self.abandon()
            raise trouble_from_error(error, self._endpoint) from error
        try:
            while not self._is_accepted:
                if deadline.is_over:
                    raise BrokerError(Trouble.UNANSWERED, "the broker does not answer a CONNECT")
                self.poll(0.1)
        except OSError as error:
            self.abandon()
            raise trouble_from_error(error, self._endpoint) from error
        except BrokerError:
            self.abandon()
            raise

    def _open_socket(self) -> None:
        options: dict[str, Any] = {"keepalive": self._endpoint.keepalive_s}
        if self.version == 5:
            properties = self._properties("CONNECT")
            properties.SessionExpiryInterval = _SESSION_EXPIRY_S
            options |= {"clean_start": False, "properties": properties}
        self._client.connect(self._endpoint.host, self._endpoint.port, **options)

    def _is_readable(self, timeout_s: float, waker: Waker | None) -> bool:
        """Wait, and return whether there may be something to read."""
        held = self._client.socket()
        if held is None:
            return False
        if self._tls is not None and held.pending() > 0:
            return True
        poller = select.poll()
        poller.register(held, select.POLLIN | (select.POLLOUT if self._client.want_write() else 0))
        if waker is not None:
            poller.register(waker, select.POLLIN)
        ready = dict(poller.poll(timeout_s * 1000))
        if waker is not None and waker.fileno() in ready:
            waker.clear()
        return bool(ready.get(held.fileno(), 0) & ~select.POLLOUT)

    def _take_events(self) -> list[Event]:
        if self._trouble is not None:
            raise self._trouble
        if self._client.socket() is None:
            raise self._closed()
        events, self._events = self._events, []
        return events

    def _closed(self) -> BrokerError:
        if self._is_accepted:
            hint = f"if this repeats, look for another client with the id {self._endpoint.client_id}"
            return BrokerError(Trouble.LOST, "the connection was closed or went silent", hint=hint)
        tls_hint = None if self._endpoint.tls else "if this is the broker's TLS port, remove `tls: false`"
        return BrokerError(Trouble.CLOSED, "the broker closed the connection at CONNECT", hint=tls_hint)

    def _make_client(self) -> Any:
        mqtt = self._paho.client
        is_v5 = self.version == 5
        client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2,
            client_id=self._endpoint.client_id,
            clean_session=None if is_v5 else True,
            protocol=mqtt.MQTTv5 if is_v5 else mqtt.MQTTv311,
            reconnect_on_failure=False,
        )
        client.connect_timeout = self._endpoint.connect_timeout_s
        client.max_inflight_messages_set(2 * LARGEST)
        client.max_queued_messages_set(2 * LARGEST)  # a tripwire: our own window is at most half of it
        if self._tls is not None:
            client.tls_set_context(self._tls)
        if self._endpoint.credential is not None:
            client.username_pw_set(self._endpoint.credential.user, self._endpoint.credential.password)
        client.on_socket_open = _bound_silence
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_publish = self._on_publish
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        return client

    def _properties(self, packet: str) -> Any:
        return self._paho.properties.Properties(getattr(self._paho.packettypes.PacketTypes, packet))

    def _will_properties(self, will: Will) -> Any:
        if self.version != 5:
            return None
        properties = self._properties("WILLMESSAGE")
        properties.WillDelayInterval = will.delay_s
        properties.ContentType = "application/json"
        properties.PayloadFormatIndicator = 1
        return properties

    def _on_connect(self, _client: Any, _data: Any, _flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            is_login = self._endpoint.credential is not None
            self._trouble = trouble_from_reason(reason.value, str(reason), is_login=is_login)
            return
        self.limits = Limits(
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
            self._trouble = trouble_from_reason(reason.value, str(reason))
        elif reason.value == _KEEP_ALIVE:
            self._trouble = BrokerError(Trouble.SILENT, "the broker does not answer any more")

    def _on_publish(self, _client: Any, _data: Any, packet_id: int, reason: Any, _properties: Any) -> None:
        self._events.append(Acknowledged(packet_id, reason.value))

    def _on_subscribe(self, _client: Any, _data: Any, _packet_id: int, reasons: Any, _properties: Any) -> None:
        self._events.append(Subscribed(any(reason.value >= _FAILURE for reason in reasons)))

    def _on_message(self, _client: Any, _data: Any, message: Any) -> None:
        self._events.append(Received(message.topic, message.payload, message.retain))


def connect(endpoint: Endpoint, *, version: int, will: Will | None = None) -> Connection:
    """Connect with MQTT `version` 5 or 4 (3.1.1) and return once the broker has accepted us.

    Raises:
        BrokerError: with what is wrong and what to do.
    """
    connection = Connection(endpoint, version=version, will=will)
    connection.open()
    return connection


def _bound_silence(_client: Any, _data: Any, opened: socket.socket) -> None:
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _TCP_USER_TIMEOUT_MS)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _import_paho() -> Any:
    try:
        import paho.mqtt
        import paho.mqtt.client
    except ImportError as error:
        raise MissingDependencyError(
            "MQTT needs paho-mqtt 2.1 or newer, which is not installed", hint="run: pip install 'paho-mqtt>=2.1'"
        ) from error
    _take_unlisted_reasons(paho.mqtt)
    return paho.mqtt


def _take_unlisted_reasons(paho: Any) -> None:
    """Let a PUBACK say 0x95, packet too large: mosquitto does (`message_size_limit`), and MQTT 5.0 does not list it.

    paho would take it for a broken packet and end the connection, again and again.
    """
    known = dict(paho.reasoncodes.ReasonCode.names)
    known[_PACKET_TOO_LARGE] = {
        name: [*packets, paho.packettypes.PacketTypes.PUBACK] for name, packets in known[_PACKET_TOO_LARGE].items()
    }
    paho.reasoncodes.ReasonCode.names = known
