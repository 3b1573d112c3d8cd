"""Waiting for a condition with a deadline, never for a time; and a machine that has no core left."""

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from edge.publish.mqtt.publisher import MqttPublisher
from tests.pace import Pace


def wait_until(condition: Callable[[], object], *, what: str, timeout_s: float = 60.0) -> float:
    """Return after how many seconds `condition` holds; fail with `what` after `timeout_s`, which only a fault takes."""
    begun_s = time.monotonic()
    while not condition():
        if time.monotonic() - begun_s > timeout_s:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        time.sleep(0.005)
    return time.monotonic() - begun_s


class QuietWatch:
    """Tells the seconds since it was made, as a machine without any load would have passed them."""

    def __init__(self) -> None:
        self._pace, self._begun_s = Pace(), time.time()
        self._pace.start()

    def seconds(self) -> float:
        """Return them, and stop."""
        now_s = time.time()
        self._pace.stop()
        return self._pace.between(self._begun_s, now_s)

    def pace(self) -> float:
        """Return the share of its pace at which a process got on, above 0 and at most 1, and stop."""
        begun_s, now_s = self._begun_s, time.time()
        return self.seconds() / (now_s - begun_s)


def wait_looks(condition: Callable[[], object], *, what: str, seconds: float) -> None:
    """Return once `condition` holds; fail with `what` after so many looks, a hundred in a second of a quiet machine.

    Each look costs the CPU two milliseconds: where a process gets a fifth of a CPU, all of them take longer, as what is
    waited for does.
    """
    for _ in range(round(seconds * 100)):
        if condition():
            return
        time.sleep(0.008)
        worked_s = time.thread_time()
        while time.thread_time() - worked_s < 0.002:
            pass
    raise AssertionError(f"not within {seconds:g} s of a quiet machine: {what}")


def wait_connected(publisher: MqttPublisher) -> None:
    """Return once the broker has taken the publisher in: until then `flush` has nothing to wait for."""
    wait_until(lambda: publisher.is_connected, what="the connection")


def next_try_s(publisher) -> float:
    """Return the seconds of the wait that the status tells of; 0 when it tells of none."""
    found = re.search(r" ([\d.]+) s$", publisher.status)
    return float(found[1]) if found else 0.0


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Let so many processes do nothing but count."""
    command = [sys.executable, "-c", "while True: pass"]
    counting = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for one in counting:
            one.kill()
            one.wait()
