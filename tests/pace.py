"""How long something would have taken on a machine of its own: a clock that slows down while processes wait for a core.

Of five processes that want two cores, each gets on at two fifths of its pace, and so does this clock. A second of
computing is a second of it under any load; a second of sleeping is less of it where the machine is loaded.
"""

import os
import re
import threading
import time
from bisect import bisect_right
from pathlib import Path

_LOOK_S = 0.05


class Pace:
    """Looks at the machine twenty times a second until `stop`; `seen` gives it other times and paces."""

    def __init__(self, *seen: tuple[float, float]) -> None:
        self._times_s, self._own_s, self._pace = [time.time()], [0.0], 1.0
        if seen:
            self._times_s = [seen[0][0]]
            for now_s, pace in seen[1:]:
                self._add(now_s, pace)
        self._is_over = threading.Event()
        self._watching = threading.Thread(target=self._watch, name="pace", daemon=True)

    def start(self) -> None:
        self._watching.start()

    def stop(self) -> None:
        self._is_over.set()
        self._watching.join()

    def between(self, start_s: float, stop_s: float) -> float:
        """Return the seconds of this clock between two times of `time.time`."""
        return self._at(stop_s) - self._at(start_s)

    def _at(self, moment_s: float) -> float:
        later = max(1, bisect_right(self._times_s, moment_s))
        if later == len(self._times_s):
            return self._own_s[-1] + (moment_s - self._times_s[-1]) * self._pace
        begin_s, end_s = self._times_s[later - 1 : later + 1]
        share = (moment_s - begin_s) / (end_s - begin_s)
        return self._own_s[later - 1] + share * (self._own_s[later] - self._own_s[later - 1])

    def _watch(self) -> None:
        before = Path("/proc/stat").read_text()
        while not self._is_over.wait(_LOOK_S):
            now = Path("/proc/stat").read_text()
            self._add(time.time(), pace_of(before, now, cores=len(os.sched_getaffinity(0))))
            before = now

    def _add(self, now_s: float, pace: float) -> None:
        self._own_s.append(self._own_s[-1] + max(0.0, now_s - self._times_s[-1]) * pace)
        self._times_s.append(max(now_s, self._times_s[-1]))
        self._pace = pace


def pace_of(before: str, now: str, *, cores: int) -> float:
    """Return the part of its pace at which a process got on between two readings of /proc/stat.

    The one that reads is among those that run. What the hypervisor took for others is no time of this machine.
    """
    running = int(re.findall(r"^procs_running (\d+)", now, re.M)[0]) - 1
    user, nice, system, _, _, irq, softirq, stolen = (
        end - begin for begin, end in zip(*map(_ticks, (before, now)), strict=True)
    )
    had = user + nice + system + irq + softirq
    return min(1.0, cores / max(1, running)) * (had / (had + stolen) if stolen > 0 else 1.0)


def _ticks(stat: str) -> list[int]:
    return [int(word) for word in stat.split(maxsplit=9)[1:9]]
