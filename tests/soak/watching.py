"""What one subscriber received: the promise, whose picture each message is about, and when it came."""

import json
import threading
import time
from array import array
from collections import Counter, defaultdict

import paho.mqtt.client as mqtt

from tests.support.clips import signature_of
from tests.support.mosquitto import KeptSession
from tests.support.promise import Reading


class Subscriber(KeptSession):
    """Reads everything below `#` over plain paho; keeps little of each message.

    Attributes:
        cameras: by stream, the camera whose pictures it has to be about.
        arrivals: by stream, when each live message came first, by the monotonic clock.
        strangers: messages about a picture of another camera, or about none that can be read.
        states: by stream, how often each state was said.
        goodbye: the device has said that it is stopped.
    """

    def __init__(self, port: int, cameras: dict[str, int]) -> None:
        self.cameras = cameras
        self.reading = Reading()
        self.arrivals: dict[str, array[float]] = defaultdict(lambda: array("d"))
        self.strangers: list[str] = []
        self.states: dict[str, Counter[str]] = defaultdict(Counter)
        self.errors: list[str] = []
        self.goodbye = False
        self._lock = threading.Lock()
        super().__init__(port, self._on_message)

    def count(self, stream: str) -> int:
        return len(self.arrivals[stream])

    def first_after(self, stream: str, moment: float) -> float | None:
        """Return when the first message of a picture that was read after `moment` came."""
        with self._lock:
            times = self.arrivals[stream]
            i = len(times)
            while i and times[i - 1] > moment:
                i -= 1
            return times[i] if i < len(times) else None

    def _on_message(self, message: mqtt.MQTTMessage) -> None:
        try:
            self._enter(message.topic, message.payload)
        except Exception as error:  # paho would end its thread in silence
            self.errors.append(f"{message.topic}: {error!r}")

    def _enter(self, topic: str, payload: bytes) -> None:
        one = self.reading.enter(topic, payload)
        if one is not None:
            self._enter_frame(one, is_live=topic.endswith("/detections"))
        elif topic.endswith("/state") and payload:
            said = json.loads(payload)
            if "stream" in said:
                self.states[said["stream"]][said["state"]] += 1
            self.goodbye = self.goodbye or (said["state"], said["reason"]) == ("offline", "stopped")

    def _enter_frame(self, one: dict, *, is_live: bool) -> None:
        stream = one["stream"]
        signature = signature_of(one)
        if signature is None or signature[0] != self.cameras.get(stream):
            whose = "no signature" if signature is None else f"camera {signature[0]}, picture {signature[1]}"
            found = [[round(x) for x in box["bbox"]] for box in one["detections"]]
            place = f"{time.strftime('%H:%M:%S')} {stream} seq {one['seq']} frame {one['frame']} {one['size']}"
            self.strangers.append(f"{place}: {whose}: {found}")
        if is_live:
            with self._lock:
                self.arrivals[stream].append(time.monotonic())
