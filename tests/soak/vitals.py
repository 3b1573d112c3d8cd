"""Memory, threads and descriptors of the service over time, and the rule by which they are flat."""

import os
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

EVERY_S = 0.5
SETTLED_S = 1.0  # after a fault: what was torn down is gone then
_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass(frozen=True, slots=True)
class Sample:
    """One look: seconds since the begin, MiB resident, numbers."""

    at_s: float
    resident_mib: float
    threads: int
    descriptors: int


@dataclass
class Flat:
    """One figure over a run: its medians in the second and in the last third, and what it may grow by."""

    name: str
    before: float
    after: float
    allowed: float

    @property
    def is_flat(self) -> bool:
        return self.after - self.before <= self.allowed


@dataclass
class Vitals:
    """Looks at a process twice a second until it is stopped."""

    pid: int
    samples: list[Sample] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._begun = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def look(self) -> Sample:
        proc = Path(f"/proc/{self.pid}")
        return Sample(
            at_s=time.monotonic() - self._begun,
            resident_mib=int((proc / "statm").read_text(encoding="ascii").split()[1]) * _PAGE_MIB,
            threads=len(os.listdir(proc / "task")),
            descriptors=len(os.listdir(proc / "fd")),
        )

    def judged(self, broken: Sequence[tuple[float, float]]) -> list[Flat]:
        """Return the figures by the rule: the first third is warm-up; the last may be above the second by little.

        Memory by a twentieth, and 6 MiB at least; threads and descriptors by two, while nothing is broken: a camera
        that is away has none. One that each fault leaves behind would be twenty in five minutes.

        Args:
            broken: from when until when something was broken, by the monotonic clock.
        """
        whole_s = self.samples[-1].at_s
        second = [one for one in self.samples if whole_s / 3 <= one.at_s < whole_s * 2 / 3]
        last = [one for one in self.samples if one.at_s >= whole_s * 2 / 3]
        found = []
        before, after = (statistics.median(one.resident_mib for one in part) for part in (second, last))
        found.append(Flat("memory, MiB", before, after, max(6.0, before / 20)))
        spans = [(begun - self._begun, back - self._begun + SETTLED_S) for begun, back in broken]
        # Where there was no such moment in a third, all of it counts.
        calm = [
            [one for one in part if not any(a <= one.at_s <= b for a, b in spans)] or part for part in (second, last)
        ]
        for name in ("threads", "descriptors"):
            before, after = (statistics.median(getattr(one, name) for one in part) for part in calm)
            found.append(Flat(name, before, after, 2))
        return found

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            try:
                self.samples.append(self.look())
            except OSError:  # it has ended
                return
            self.loads.append(os.getloadavg()[0])
