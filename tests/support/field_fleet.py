"""Devices that are nothing but their retained messages at a broker."""

from collections.abc import Iterable

from paho.mqtt import publish

from edge.publish.message import WireMessage
from edge.publish.messages import DeployMessage, PullMessage, StateMessage

AT = "2026-11-23T12:00:00Z"


class FieldFleet:
    """Speaks for devices of a site; `repository` and `channel` are where they say that they fetch from."""

    def __init__(self, port: int, repository: str, *, site: str = "north", channel: str = "stable") -> None:
        self._port, self._repository, self._channel = port, repository, channel
        self._root = f"edge/v1/{site}"
        self._sessions: dict[str, int] = {}

    def there(self, *devices: str, ring: str) -> None:
        words: list[WireMessage] = []
        for device in devices:
            words += [self._state(device, "online"), self._pull(device, ring)]
        self.say(words)

    def away(self, *devices: str) -> None:
        self.say(self._state(device, "offline") for device in devices)

    def back(self, *devices: str) -> None:
        self.say(self._state(device, "online") for device in devices)

    def switched(self, *devices: str, release: str, result: str = "committed", reason: str | None = None) -> None:
        self.say(
            DeployMessage(device=device, release=release, from_=None, result=result, reason=reason, at=AT)
            for device in devices
        )

    def looked(self, device: str, *, ring: str, **told: str | None) -> None:
        self.say([self._pull(device, ring, at=AT, **told)])

    def forgotten(self, *devices: str) -> None:
        names = ("state", "deploy", "pull")
        self._send((f"{self._root}/{device}/{name}", b"") for device in devices for name in names)

    def say(self, words: Iterable[WireMessage]) -> None:
        self._send((f"{self._root}/{one.device}/{one.topic}", one.encode()) for one in words)

    def _send(self, words: Iterable[tuple[str, bytes]]) -> None:
        messages = [(topic, payload, 1, True) for topic, payload in words]
        publish.multiple(messages, hostname="127.0.0.1", port=self._port)

    def _state(self, device: str, state: str) -> StateMessage:
        if state == "online":
            self._sessions[device] = self._sessions.get(device, 0) + 1
        return StateMessage(device=device, state=state, epoch=1, session=self._sessions.get(device, 1), since=None)

    def _pull(self, device: str, ring: str, **told: str | None) -> PullMessage:
        return PullMessage(device=device, repository=self._repository, channel=self._channel, ring=ring, **told)
