"""The client: a broker's messages of one device or of all of a site, in order, as an iterator or to a function."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from edge.client.order import Ordered, Resequencer
from edge.config.convert import given_as
from edge.config.credentials import Credential
from edge.config.schema import MqttConfig
from edge.errors import ConfigError
from edge.publish.ledger import NumberedMessage
from edge.publish.messages import (
    CountsMessage,
    DeployMessage,
    InfoMessage,
    OccupancyMessage,
    PullMessage,
    StateMessage,
    StreamStateMessage,
)
from edge.publish.mqtt.subscriber import Arrival, Subscriber

__all__ = ["Client", "Item"]

_State: TypeAlias = CountsMessage | OccupancyMessage | StreamStateMessage | StateMessage
Item: TypeAlias = Ordered | _State | PullMessage | InfoMessage | DeployMessage

_log = logging.getLogger(__name__)
_MOST_WAIT_S = 86_400.0
# The longest that one look at the connection takes; what is beyond it was no waiting for messages.
_LONGEST_LOOK_S = 0.5


class Client:
    """Receives in the caller's thread, and reconnects automatically; `with` closes it. Not thread-safe.

    Detections and events come in order of (epoch, seq), each once, those of the topic `replay` among them; the epoch
    that came online last is the newest. Numbers that are lost come as `Missing` in their place. A number that is not
    declared lost is waited for `wait_s` seconds of being connected, from when it was missed, or from when another
    missing one came; 0 waits for nothing, and what is late is `Late`. States, occupancy, births and deployments come
    at once; an `offline` that a later connection has overtaken does not come.

    Args:
        port: by default 8883, without TLS 1883.
        prefix: the topic levels above it.
        device: one device, or `+` for all of the site.
        tls: True, False for plain text, or a file of the authorities that the broker's certificate is checked by.
        certificate: a file with our own certificate, where the broker wants one.
        key: of the certificate, where that file does not hold it.
        user: who we are there, also `vhost:user`.
        password: of the user.
        client_id: where the broker allows no other; one for each program, or the broker throws the other one out.
        protocol: `auto` is MQTT v5, then v3.1.1.
        wait_s: how long a number is waited for.
        most_held: how many messages of a stream may wait for one; with more, it is given up.
        on_status: hears of lost connections and of new ones.

    Raises `ConfigError` when one of these cannot be used; `PublishError` when the broker cannot be reached at first.
    """

    def __init__(
        self,
        host: str,
        *,
        port: int | None = None,
        site: str = "default",
        prefix: str = "edge/v1",
        device: str = "+",
        tls: bool | str | Path = True,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
        user: str | None = None,
        password: str = "",
        client_id: str | None = None,
        protocol: str = "auto",
        wait_s: float = 10.0,
        most_held: int = 10_000,
        on_status: Callable[[str], None] | None = None,
    ) -> None:
        if not 0 <= wait_s <= _MOST_WAIT_S:
            raise ConfigError(f"wait_s: expected seconds, 0 to {_MOST_WAIT_S:g}, got {wait_s:g}")
        if most_held < 1:
            raise ConfigError(f"most_held: expected 1 or more messages, got {most_held}")
        broker = {"host": host, "port": port, "site": site, "prefix": prefix, "protocol": protocol}
        own = {"ca": None if isinstance(tls, bool) else tls, "certificate": certificate, "key": key}
        files = {name: str(file) for name, file in own.items() if file is not None}
        if files and tls is False:
            raise ConfigError("certificate: is of no use without TLS", hint="leave tls=False out")
        config = given_as(broker | {"tls": files or tls}, MqttConfig, spelled="broker: ")
        credential = None if user is None else Credential(user=user, password=password)
        self._say = on_status
        self._order = Resequencer(wait_s=wait_s, most_held=most_held)
        self._root = f"{prefix}/{site}"
        self._sessions: dict[str, int | None] = {}  # of the last that came online, since we are connected
        self._listened_s, self._has_strays = 0.0, False
        self._subscriber = Subscriber(config, device=device, client_id=client_id, credential=credential)
        self._subscriber.open()

    def __str__(self) -> str:
        return str(self._subscriber)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Item]:
        """Yield all that comes, without end."""
        return (item for item in self.receive() if item is not None)

    def receive(self) -> Iterator[Item | None]:
        """Yield all that comes, and None a few times a second while nothing does, without end.

        The time that the caller takes with an item does not count as waiting for a missing number.
        """
        arrivals = self._subscriber.receive(on_status=self._told)
        while True:
            began_s = time.monotonic()
            arrival = next(arrivals)
            if self._subscriber.is_connected:
                self._listened_s += min(time.monotonic() - began_s, _LONGEST_LOOK_S)
            if arrival is not None:
                yield from self._taken(arrival)
            else:
                yield from self._order.expire(self._listened_s)
                yield None

    def run(self, handle: Callable[[Item], object], *, until: Callable[[], bool] = lambda: False) -> None:
        """Call `handle` with all that comes, in this thread, until `until()`, asked a few times a second, is true."""
        for item in self.receive():
            if item is not None:
                handle(item)
            if until():
                return

    def close(self) -> None:
        self._subscriber.close()

    def _taken(self, arrival: Arrival) -> Iterator[Item]:
        message = arrival.message
        # The broker decides which login may write where; what a message says of its sender has to fit that.
        if message is None:
            return
        if arrival.topic != f"{self._root}/{message.device}/{message.topic}":
            if not self._has_strays:
                _log.warning("message of another device topic=%s device=%s: passed over", arrival.topic, message.device)
            self._has_strays = True
            return
        if isinstance(message, NumberedMessage):
            yield from self._order.enter(message, self._listened_s)
        elif isinstance(message, Item) and not self._is_overtaken(message):
            yield message

    def _told(self, text: str) -> None:
        self._sessions.clear()  # some may have changed while we were away
        if self._say is not None:
            self._say(text)

    def _is_overtaken(self, message: Item) -> bool:
        """Whether it is the late Will of a connection that was replaced."""
        if not isinstance(message, StateMessage):
            return False
        if message.state == "offline":
            return self._sessions.get(message.device, message.session) != message.session
        self._sessions[message.device] = message.session
        if message.epoch is not None:
            self._order.online(message.device, message.epoch)
        return False
