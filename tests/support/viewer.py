"""Looks at one camera as the runtime does, and keeps what it has seen."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from edge.config.schema import StreamConfig
from edge.media.camera import StreamStatus
from edge.media.select import make_source
from edge.types import StreamState
from tests.support.clips import CANVAS, number_of
from tests.support.wait import wait_until


class Viewer:
    """Reads one stream in a thread of its own, as the runtime does."""

    def __init__(self, uri: str, *, credential: tuple[str, str] | None = None, read_credential=None, **more) -> None:
        self.statuses: list[StreamStatus] = []
        config = StreamConfig(id="east", uri=uri, **{"latency_ms": 50, **more})
        self.source = make_source(
            config,
            preprocess=CANVAS,
            base_dir=Path("/"),
            credential=read_credential or (lambda: credential),
            on_status=self.statuses.append,
        )
        self.headers: list = []
        self.arrivals: list[float] = []
        self.codes: list[int] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._begun = time.monotonic()

    def _run(self) -> None:
        while not self._stop.is_set():
            frame = self.source.read(0.2)
            if frame is not None:
                self.arrivals.append(time.monotonic())
                self.headers.append(frame.header)
                self.codes.append(number_of(frame.image))

    def __enter__(self) -> Viewer:
        self.source.open()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.source.close()

    @property
    def states(self) -> list[StreamState]:
        return [status.state for status in self.statuses]

    @property
    def reason(self) -> str:
        return self.statuses[-1].reason if self.statuses else ""

    def await_frames(self, count: int) -> float:
        goal = len(self.arrivals) + count
        return wait_until(lambda: len(self.arrivals) >= goal, what=f"{count} frames")

    def await_unbroken(self, count: int, length: int) -> None:
        """Wait until the last `count` frames are consecutive; a loaded machine may skip (and count) some before."""

        def consecutive() -> bool:
            last = self.codes[-count:]
            return last == [(last[0] + i) % length for i in range(count)]

        wait_until(consecutive, what=f"{count} consecutive frames")

    def await_state(self, state: StreamState) -> float:
        return wait_until(lambda: self.states[-1:] == [state], what=f"state {state}")

    def wrong_codes(self, length: int) -> list[tuple[int, int]]:
        """Return the pairs of pictures whose numbers do not go up: a smeared one shows another number than its own."""
        pairs = zip(self.codes, self.codes[1:], strict=False)
        return [(before, code) for before, code in pairs if not 0 < (code - before) % length < length // 2]


def assert_balances(viewer: Viewer) -> None:
    """Fail unless all frames are accounted for, and their numbers and times go up."""
    counts = viewer.source.counts()
    assert counts.decoded == len(viewer.headers) + sum(counts.dropped.values()), counts
    numbers, times = [header.frame for header in viewer.headers], [header.pts_ns for header in viewer.headers]
    assert (numbers, times) == (sorted(set(numbers)), sorted(set(times)))
