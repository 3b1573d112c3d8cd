"""What is broken, one after the other, with when it was and when the other side was whole again."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from tests.soak.scene import STALL_S, Scene

REST_S = 2.0  # between two faults


@dataclass(slots=True)
class Outage:
    """One fault; times by the monotonic clock.

    Attributes:
        kind: what was done.
        stream: of the camera; None: it was the broker, which all streams share.
        begun: when.
        up: when camera and broker were there again.
        is_gap: whether pictures have to stop and come again, so that the time until the first one is a recovery.
    """

    kind: str
    stream: str | None
    begun: float
    up: float = 0.0
    is_gap: bool = True


class Faults:
    """Everything that can be done to a scene; each method takes as long as the fault does."""

    def __init__(self, scene: Scene, *, seed: int) -> None:
        self._scene = scene
        self._rng = random.Random(seed)
        self._passwords = 0

    def all_kinds(self) -> Iterator[Callable[[], Outage]]:
        """Yield each kind again and again, in an order of its own each time."""
        kinds = [
            self.camera_killed,
            self.camera_frozen,
            self.camera_restarted,
            self.camera_slowed,
            self.camera_resized,
            self.camera_growing,
            self.camera_recoded,
            self.camera_has_another_password,
            self.broker_frozen,
            self.broker_restarted,
            self.broker_killed,
            self.broker_away_while_a_camera_dies,
            self.stream_removed_and_added,
        ]
        while True:
            self._rng.shuffle(kinds)
            yield from kinds

    def cameras_dying(self, every_s: float) -> Iterator[Callable[[], Outage]]:
        """Yield one camera after the other, killed for a second or frozen until it is given up."""
        while True:
            for is_freeze in (False, True):
                for name in self._scene.names:
                    yield self._dying(name, every_s, is_freeze=is_freeze)

    def camera_killed(self) -> Outage:
        return self._camera("killed", self._any(), away_s=self._rng.uniform(1, 6))

    def camera_restarted(self) -> Outage:
        return self._camera("restarted", self._any())

    def camera_resized(self) -> Outage:
        return self._camera("restarted with another size", self._any(), content="large")

    def camera_growing(self) -> Outage:
        """From then on its size changes every six seconds, in mid-stream."""
        return self._camera("restarted, changing its size in mid-stream", self._any(), content="growing")

    def camera_recoded(self) -> Outage:
        return self._camera("restarted with another codec", self._any(), content=self._rng.choice(["h265", "h264"]))

    def camera_frozen(self) -> Outage:
        return self._frozen(self._any(), self._rng.uniform(STALL_S + 1, STALL_S + 5))

    def camera_slowed(self) -> Outage:
        """It gets a quarter of the time, in pieces: pictures come late and in bursts."""
        outage = Outage("slowed", self._any(), time.monotonic(), is_gap=False)
        server = self._scene.servers[outage.stream]
        for _ in range(10):
            server.freeze()
            time.sleep(0.45)
            server.thaw()
            time.sleep(0.15)
        outage.up = time.monotonic()
        return outage

    def camera_has_another_password(self) -> Outage:
        """The camera has it first; the service is told some seconds later."""
        self._passwords += 1
        name = self._any()
        outage = self._camera("with another password", name, password=f"password-{self._passwords}")
        time.sleep(self._rng.uniform(1, 5))
        self._scene.tell_password(name)
        outage.up = time.monotonic()
        return outage

    def broker_restarted(self) -> Outage:
        away_s = self._rng.uniform(0.5, 4)
        return _away("broker restarted", None, self._scene.stop_broker, away_s, self._scene.start_broker)

    def broker_killed(self) -> Outage:
        """It takes along what it has acknowledged and a subscriber does not have yet; the scene's record knows what."""
        stop, start = partial(self._scene.stop_broker, is_kill=True), partial(self._scene.start_broker, was_killed=True)
        return _away("broker killed", None, stop, self._rng.uniform(0.5, 4), start)

    def broker_frozen(self) -> Outage:
        broker, for_s = self._scene.broker, self._rng.choice([3.0, 8.0, 20.0])
        return _away("broker frozen", None, broker.freeze, for_s, broker.thaw)

    def broker_away_while_a_camera_dies(self) -> Outage:
        outage = Outage("broker away while a camera dies", None, time.monotonic())
        self._scene.stop_broker()
        self._camera("killed", self._any(), away_s=2.0)
        self._scene.start_broker()
        outage.up = time.monotonic()
        return outage

    def stream_removed_and_added(self) -> Outage:
        name, away_s = self._any(), self._rng.uniform(1, 4)
        remove = partial(self._scene.reload, without=name)
        return _away("removed and added by reloads", name, remove, away_s, self._scene.reload)

    def _any(self) -> str:
        return self._rng.choice(self._scene.names)

    def _dying(self, name: str, every_s: float, *, is_freeze: bool) -> Callable[[], Outage]:
        def act() -> Outage:
            begun = time.monotonic()
            outage = self._frozen(name, STALL_S + 1) if is_freeze else self._camera("killed", name, away_s=1.0)
            time.sleep(max(0.0, begun + every_s - time.monotonic()))
            return outage

        return act

    def _camera(
        self, how: str, name: str, *, away_s: float = 0.0, content: str | None = None, password: str | None = None
    ) -> Outage:
        serve = partial(self._scene.serve, name, content=content, password=password)
        return _away(f"camera {how}", name, self._scene.servers[name].kill, away_s, serve)

    def _frozen(self, name: str, for_s: float) -> Outage:
        server = self._scene.servers[name]
        return _away("camera frozen", name, server.freeze, for_s, server.thaw)


def _away(
    kind: str, stream: str | None, end: Callable[[], object], for_s: float, begin: Callable[[], object]
) -> Outage:
    outage = Outage(kind, stream, time.monotonic())
    end()
    time.sleep(for_s)
    begin()
    outage.up = time.monotonic()
    return outage
