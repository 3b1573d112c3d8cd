"""An independent MQTT subscriber over plain paho: it shares no code with ours."""

import json
from collections import defaultdict

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.support.promise import Findings, findings
from tests.support.wait import wait_until


class Collector:
    """Collects everything below `#`, over reconnects, with a session that the broker keeps."""

    def __init__(self, port: int, *, host: str = "127.0.0.1") -> None:
        self.messages: list[mqtt.MQTTMessage] = []
        self._is_subscribed = False
        self._client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, client_id=f"collector-{id(self)}", protocol=mqtt.MQTTv5
        )
        self._client.on_connect = lambda client, *_: client.subscribe("#", qos=1)
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = lambda _client, _data, message: self.messages.append(message)
        self._client.reconnect_delay_set(0.05, 0.2)
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 3600
        self._client.connect(host, port, clean_start=False, properties=properties)
        self._client.loop_start()
        wait_until(lambda: self._is_subscribed, what="collector subscribed")

    def _on_subscribe(self, *_: object) -> None:
        self._is_subscribed = True

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

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
