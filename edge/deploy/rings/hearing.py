"""Collects reports of all devices at a broker, from retained and live messages."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from edge.config.credentials import Credential
from edge.config.schema import MqttConfig
from edge.deadline import Deadline
from edge.deploy.listen import for_people
from edge.deploy.rings.verdict import Heard
from edge.errors import PublishError
from edge.publish.mqtt.subscriber import Arrival, Subscriber
from edge.registry.login import host_of

__all__ = ["Hearing"]

_TOPICS = ("state", "deploy", "pull")
_QUIET_S = 1.5  # retained messages come in one go after a subscription; nothing marks the last of them
_CLOSING_S = 5.0
_HEAR_S = 120.0
_STEP_S = 0.2


class Hearing:
    """Listens in a thread of its own, at all sites below the prefix of `mqtt`; may be asked by another thread.

    Use it in a `with`, which raises PublishError where there is no broker that lets us listen, ConfigError for a
    configuration that cannot be used. Later losses go to `say`, in that thread, and are mended.
    """

    def __init__(
        self,
        mqtt: MqttConfig,
        *,
        credential: Credential | None,
        base_dir: Path | None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        everywhere = msgspec.structs.replace(mqtt, site="+")
        self._prefix = mqtt.prefix
        self._subscriber = Subscriber(everywhere, topics=_TOPICS, qos=0, credential=credential, base_dir=base_dir)
        self._say = say
        self._heard: dict[str, Heard] = {}
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._last_kept_s: float | None = None  # None: the connection is lost
        self._thread = threading.Thread(target=self._listen, name="hearing", daemon=True)

    def __enter__(self) -> Hearing:
        self._subscriber.open()
        self._last_kept_s = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(_CLOSING_S)
        self._subscriber.close()

    @property
    def is_complete(self) -> bool:
        """Whether it is connected and the retained messages have come; PublishError once the thread has ended."""
        if not self._thread.is_alive():
            raise PublishError("listening to the broker has ended", hint="begin again; the reason stands above")
        last_s = self._last_kept_s
        return last_s is not None and self._subscriber.is_connected and time.monotonic() - last_s > _QUIET_S

    def wait_complete(self) -> None:
        """Wait until all that the broker has kept has come; PublishError if it has not within two minutes."""
        deadline, pause = Deadline.after(_HEAR_S), threading.Event()
        while not self.is_complete:
            if deadline.is_over:
                problem = f"the broker has not told all that it keeps within {_HEAR_S:.0f} s"
                raise PublishError(problem, hint="look at the broker")
            pause.wait(_STEP_S)

    def devices(self, repository: str, channel: str) -> dict[str, Heard]:
        """Return the devices of rings that fetch the releases of `channel` from `repository`, by `site/device`."""
        wanted, heard = _same(repository), self.heard().items()
        return {name: one for name, one in heard if one.ring is not None and _repository(one, channel) == wanted}

    def heard(self) -> dict[str, Heard]:
        """Return the last words of all devices, by `site/device`."""
        with self._lock:
            return dict(sorted(self._heard.items()))

    def elsewhere(self, repository: str, channel: str) -> dict[str, int]:
        """Return how many devices fetch the releases of `channel` from each other repository."""
        places = [_repository(one, channel) for one in self.heard().values()]
        return Counter(place for place in places if place not in (None, _same(repository)))

    def _listen(self) -> None:
        for arrival in self._subscriber.receive(on_status=self._told):
            if self._is_over.is_set():
                return
            if arrival is not None:
                self._take(arrival)

    def _told(self, text: str) -> None:
        # A device that went while we were away is not told; after a reconnect, all that is still so comes once more.
        with self._lock:
            self._heard.clear()
        self._last_kept_s = time.monotonic() if self._subscriber.is_connected else None
        self._say(text)

    def _take(self, arrival: Arrival) -> None:
        if arrival.is_retained:
            self._last_kept_s = time.monotonic()
        site, device, topic = arrival.topic.removeprefix(f"{self._prefix}/").split("/", 2)
        name, message = f"{site}/{device}", for_people(arrival.message)
        if not name.isprintable():
            return
        with self._lock:
            before = self._heard.get(name, Heard())
            if not arrival.payload and topic in _TOPICS:
                self._heard[name] = before.without(topic)
            # The broker decides which login may write where; what a message says of its sender has to fit that.
            elif message is not None and (message.device, message.topic) == (device, topic):
                self._heard[name] = before.after(message)


def _repository(heard: Heard, channel: str) -> str | None:
    """Return the repository from which a device fetches the releases of `channel`; None: from none."""
    pull = heard.pull
    return None if pull is None or pull.repository is None or pull.channel != channel else _same(pull.repository)


def _same(repository: str) -> str:
    """Return `host/repository` as two that are the same are written alike."""
    host, _, path = repository.partition("/")
    return f"{host_of(host)}/{path}"
