"""The consumer's side: messages of many devices from a broker, parsed where they are ours."""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edge.config.credentials import Credential
from edge.config.schema import MqttConfig
from edge.deadline import Deadline
from edge.errors import ConfigError, PublishError
from edge.publish.message import WireMessage
from edge.publish.messages import MESSAGE_TYPES
from edge.publish.mqtt.client import Connection, Received, Subscribed, waits_for_return
from edge.publish.mqtt.endpoint import endpoint_from_config, no_dots, topic_root
from edge.publish.mqtt.trouble import BrokerBackoff, BrokerError, ProtocolChoice, Trouble

__all__ = ["Arrival", "Subscriber", "checked_device", "devices_by_site", "message_from_payload"]

_POLL_S = 0.2
_DEVICE = re.compile(r"[a-z0-9-]{1,32}|\+")

_decoders = {name: msgspec.json.Decoder(kind) for name, kind in MESSAGE_TYPES.items()}


class _Tagged(msgspec.Struct):
    schema: str


_tag_decoder = msgspec.json.Decoder(_Tagged)


@dataclass(frozen=True, slots=True)
class Arrival(Received):
    """`message` is None where it is not one of ours or damaged."""

    message: WireMessage | None


def message_from_payload(payload: bytes) -> WireMessage | None:
    """Return the message, or None for whatever else travels on the topics; unknown keys are passed over."""
    try:
        decoder = _decoders.get(_tag_decoder.decode(payload).schema)
        return None if decoder is None else decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # nested deeper than anything of ours
        return None


def checked_device(device: str) -> str:
    """Return the topic level of one device, or of all; raises ConfigError when there can be no such device."""
    if not _DEVICE.fullmatch(device):
        raise ConfigError(f'device: expected a name of a-z, 0-9 and "-" (at most 32), or "+" for all, got {device!r}')
    return device


class Subscriber:
    """Receives in the caller's thread and reconnects automatically; what is missed meanwhile shows in the numbers.

    Of `device`, or all, it asks for what is below `topics`, one after the other. With `qos` 0 a broker hands on at once
    what it has kept, with 1 it lets some thousand wait and drops the rest. `client_id` is for brokers that allow no
    other; that of the configuration is the device's own, and a broker would throw the device out for us. Raises
    `ConfigError` when the configuration cannot be used.
    """

    def __init__(
        self,
        config: MqttConfig,
        *,
        device: str = "+",
        topics: tuple[str, ...] = ("#",),
        qos: int = 1,
        client_id: str | None = None,
        credential: Credential | None = None,
        base_dir: Path | None = None,
        backoff: BrokerBackoff | None = None,
    ) -> None:
        client_id = client_id or f"edge-listen-{secrets.token_hex(4)}"
        config = msgspec.structs.replace(config, client_id=None)
        self._endpoint = endpoint_from_config(config, client_id=client_id, credential=credential, base_dir=base_dir)
        self._qos = qos
        self._filters = tuple(f"{topic_root(config)}/{checked_device(device)}/{topic}" for topic in topics)
        self._backoff = backoff or BrokerBackoff()
        self._protocol = ProtocolChoice(config.protocol)
        self._connection: Connection | None = None
        self._early: list[Received] = []

    def __str__(self) -> str:
        return f"{', '.join(self._filters)} at {self._endpoint}"

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    def open(self) -> None:
        """Raises PublishError."""
        for is_last in (False, True):
            try:
                self._connection = self._subscribe()
                return
            except BrokerError as error:
                if not self._protocol.failed(error.kind, patience=1) or is_last:
                    raise PublishError(f"{self._endpoint}: {error.problem}", hint=error.hint) from error

    def receive(self, *, on_status: Callable[[str], None] | None = None) -> Iterator[Arrival | None]:
        """Yield messages as they come, and None a few times a second while there are none, without end.

        `on_status` hears of losses, of each reason once, and of reconnects.
        """
        say = on_status or (lambda text: None)
        since_s, said = time.monotonic(), ""
        while True:
            try:
                if self._connection is None:
                    since_s = time.monotonic()
                    self._connection = self._subscribe()
                    say(f"connected to {self._endpoint}")
                    said = ""
                yield from self._poll(self._connection)
            except BrokerError as error:
                lived_s = 0.0 if self._connection is None else time.monotonic() - since_s
                self._connection = None
                is_adapted = self._protocol.failed(error.kind)
                delay_s = self._backoff.delay_s(
                    error.kind, lived_s=lived_s, now_s=time.monotonic(), is_adapted=is_adapted
                )
                if str(error) != said:
                    said = str(error)
                    say(f"not connected to {self._endpoint}: {error}; next try in {delay_s:.1f} s")
                for wait_s in waits_for_return(self._endpoint, delay_s):
                    pause = Deadline.after(wait_s)
                    while not pause.is_over:
                        time.sleep(min(_POLL_S, pause.left_s))
                        yield None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _subscribe(self) -> Connection:
        connection = Connection(self._endpoint, version=self._protocol.version)
        self._protocol.accepted()
        for topic_filter in self._filters:
            self._subscribe_to(connection, topic_filter)
        return connection

    def _subscribe_to(self, connection: Connection, topic_filter: str) -> None:
        connection.subscribe(topic_filter, qos=self._qos)
        deadline = Deadline.after(self._endpoint.connect_timeout_s)
        while not deadline.is_over:
            events = connection.poll(_POLL_S)
            # What the broker held for us, and retained messages, may come before its answer.
            self._early += [event for event in events if isinstance(event, Received)]
            answers = [event for event in events if isinstance(event, Subscribed)]
            if answers and not answers[0].is_refused:
                return
            if answers:
                connection.abandon()
                hint = "check the broker's access list" + no_dots(topic_filter)
                raise BrokerError(Trouble.REFUSED, f"may not subscribe to {topic_filter}", hint=hint)
        connection.abandon()
        raise BrokerError(Trouble.SILENT, "the broker does not answer the subscription")

    def _poll(self, connection: Connection) -> Iterator[Arrival | None]:
        early, self._early = self._early, []
        events = early or connection.poll(_POLL_S)
        if not events:
            yield None
        for event in events:
            if isinstance(event, Received):
                yield Arrival(event.topic, event.payload, event.is_retained, message_from_payload(event.payload))


def devices_by_site(
    config: MqttConfig, *, credential: Credential | None, base_dir: Path | None, within_s: float
) -> dict[str, list[str]]:
    """Return the devices under the prefix of `config`, by site, sorted; none where the broker does not say.

    Retained states come at once after a subscription, so `within_s` is for the way to the broker.
    """
    everywhere = msgspec.structs.replace(config, site="+")
    subscriber = Subscriber(everywhere, topics=("state",), credential=credential, base_dir=base_dir)
    sites: dict[str, set[str]] = {}
    with closing(subscriber), contextlib.suppress(PublishError):  # an access list, or a version: it is a hint only
        deadline = Deadline.after(within_s)
        subscriber.open()
        for arrival in subscriber.receive():
            if arrival is not None and arrival.payload:
                *_, site, device, _ = arrival.topic.split("/")
                sites.setdefault(site, set()).add(device)
            if deadline.is_over:
                break
    return {site: sorted(devices) for site, devices in sorted(sites.items())}
