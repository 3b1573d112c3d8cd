"""A discrete-event simulation of cameras, files and an engine around the real batcher, on a clock that jumps.

Nothing is mocked in the batcher: it is asked, filled and taken from as by the threads of a service, event by event.
Cameras keep their newest frame, as `appsink` does; a file always has a next one; the engine takes `fixed_s` for a batch
and `per_row_s` more for each row, and asks for the next batch when it has given a canvas back, as the loop does.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from edge.media.rate import Cap, RateLimit
from edge.runtime.pipeline.batcher import Batcher
from edge.runtime.pipeline.rows import Batch, Turn
from edge.types import ClockSource, DropReason, Frame, FrameHeader, ImageSize, Preprocess, StreamId
from edge.vision.boxes import fit

PREPROCESS = Preprocess(size=ImageSize(width=4, height=4))
LETTERBOX = fit(ImageSize(width=4, height=4), PREPROCESS)
PICTURE = np.zeros((4, 4, 3), np.uint8)
READ_TIMEOUT_S = 0.2
NS = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Camera:
    """Frames at `fps` from `start_s` on; none within `pauses` (from, to); from `hangs_at_s` on, reading never returns.

    `jitter` moves each frame by up to so many periods, always the same way for the same `seed`.
    """

    fps: float
    start_s: float = 0.0
    jitter: float = 0.0
    pauses: tuple[tuple[float, float], ...] = ()
    hangs_at_s: float | None = None
    torn_frames: frozenset[int] = frozenset()
    seed: int = 0

    def times_ns(self, end_s: float) -> Iterator[int]:
        """When its frames are decoded."""
        random = np.random.default_rng(self.seed)
        for number in range(int((end_s - self.start_s) * self.fps) + 1):
            at_s = self.start_s + (number + self.jitter * random.random()) / self.fps
            if at_s < end_s and not any(begin <= at_s < end for begin, end in self.pauses):
                yield round(at_s * NS)


@dataclass(frozen=True, kw_only=True)
class File:
    """Frames as fast as they are taken; decoding one takes `decode_s`."""

    frames: int = 1_000_000
    decode_s: float = 0.001


@dataclass
class Told:
    """What became of the frames of one stream; times in nanoseconds of the simulation."""

    decoded: int = 0
    inferred: list[int] = field(default_factory=list)  # numbers of frames
    ages_ns: list[int] = field(default_factory=list)  # of the inferred, when their batch was closed
    closed_at_ns: list[int] = field(default_factory=list)
    dropped: Counter[DropReason] = field(default_factory=Counter)


class _Stream:
    """What a puller thread and its source do, as a state machine."""

    def __init__(self, sim: Simulation, name: str, kind: Camera | File) -> None:
        self.sim, self.name, self.kind = sim, StreamId(name), kind
        self.is_live = isinstance(kind, Camera)
        self.told = Told()
        self.newest: Frame | None = None  # in the sink, not read
        self.in_hand: Frame | None = None
        self.turn: Turn | None = None
        self.copying: Turn | None = None
        self.is_reading = True
        self.has_ended = False
        self.reads = 0
        self.order = Cap()
        self._limit: tuple[float, RateLimit] | None = None

    def start(self) -> None:
        if isinstance(self.kind, File):
            self.sim.after(self.kind.decode_s, self._decode_next)
            return
        for at_ns in self.kind.times_ns(self.sim.end_s):
            self.sim.at(at_ns, self._decode)
        self._wait_for_frame()

    def _frame(self) -> Frame:
        self.told.decoded += 1
        header = FrameHeader(
            stream=self.name,
            frame=self.told.decoded,
            pts_ns=self.sim.now_ns,
            captured_at_ns=self.sim.now_ns,
            clock=ClockSource.ARRIVAL,
            source_size=LETTERBOX.source,
            read_at_ns=self.sim.now_ns,
        )
        is_torn = isinstance(self.kind, Camera) and header.frame in self.kind.torn_frames
        return Frame(header=header, letterbox=LETTERBOX, image=PICTURE[:-1] if is_torn else PICTURE)

    def _admits(self) -> bool:
        """As the probes behind the decoder do."""
        most_fps = self.order.max_fps
        if most_fps is None:
            return True
        if self._limit is None or self._limit[0] != most_fps:
            self._limit = most_fps, RateLimit(most_fps)
        return self._limit[1].admits(self.sim.now_ns)

    def _decode(self) -> None:
        assert isinstance(self.kind, Camera)
        if not self._admits():
            self.told.decoded += 1
            self.told.dropped[DropReason.CAPPED] += 1
            return
        if self.newest is not None:
            self.told.dropped[DropReason.LATE] += 1
        self.newest = self._frame()
        if self.is_reading:
            self._read()

    def _decode_next(self) -> None:
        assert isinstance(self.kind, File)
        if self.told.decoded == self.kind.frames:
            self.sim.batcher.leave(self.name)
            return
        self.newest = self._frame()
        self._read()

    def _wait_for_frame(self) -> None:
        self.is_reading = True
        self.reads += 1
        read = self.reads
        if self.newest is not None:
            self._read()
        else:
            self.sim.after(READ_TIMEOUT_S, lambda: self._time_out(read))

    def _time_out(self, read: int) -> None:
        if self.is_reading and self.reads == read and not self._hangs():
            self.sim.batcher.leave(self.name)
            self._wait_for_frame()

    def _hangs(self) -> bool:
        return (
            isinstance(self.kind, Camera)
            and self.kind.hangs_at_s is not None
            and self.sim.now_ns >= self.kind.hangs_at_s * NS
        )

    def _read(self) -> None:
        if self._hangs() or self.has_ended:
            return
        self.is_reading = False
        self.in_hand, self.newest = self.newest, None
        self.sim.batcher.join(self.name, is_live=self.is_live)
        self.turn = self.sim.batcher.ask(self.name, is_live=self.is_live)

    def go_on(self) -> None:
        """Copy, if the turn has come."""
        if self.turn is None or not self.turn.is_over:
            return
        self.copying, self.turn = self.turn, None
        self.sim.after(self.sim.copy_s, self._finish_and_go_on)

    @property
    def has_row(self) -> bool:
        """Whether there is a row that it has to fill."""
        return self.copying is not None or (self.turn is not None and self.turn.is_over)

    def finish_copy(self) -> None:
        """Copy what was to be copied, if the row is there."""
        if not self.has_row:
            return
        turn = self.copying or self.turn
        self.copying = self.turn = None
        assert turn.ticket is not None
        assert self.in_hand is not None
        try:
            self.sim.batcher.fill(turn.ticket, self.in_hand)
        except ValueError:  # as the puller does: this stream ends, alone
            self.told.dropped[DropReason.FAILED] += 1
            self.has_ended = True
            self.sim.batcher.leave(self.name)
        self.in_hand = None

    def stop(self) -> None:
        """Count what was read or decoded and will not be inferred any more."""
        left = (self.in_hand is not None) + (self.newest is not None)
        self.told.dropped.update({DropReason.STOPPED: left})

    def _finish_and_go_on(self) -> None:
        self.finish_copy()
        if isinstance(self.kind, File):
            self.sim.after(self.kind.decode_s, self._decode_next)
        elif not self.has_ended:
            self._wait_for_frame()


class Simulation:
    """Runs streams for `end_s` seconds of its own clock.

    Args:
        streams: by name.
        rows: of each canvas.
        fixed_s: how long the engine takes for a batch, besides
        per_row_s: for each row of it.
        stalls: the engine takes the second value longer for the batch of the number that is the first.
        slowness: by what the time of a batch is multiplied; of the simulation, as it is then.
        settings: of the batcher.
    """

    def __init__(
        self,
        streams: dict[str, Camera | File],
        *,
        rows: int,
        end_s: float,
        fixed_s: float = 0.001,
        per_row_s: float = 0.001,
        max_wait_s: float = 0.02,
        copy_s: float = 0.00005,
        canvases: int = 2,
        stalls: dict[int, float] | None = None,
        slowness: Callable[[Simulation], float] = lambda sim: 1.0,
        **settings: object,
    ) -> None:
        self.end_s, self.copy_s = end_s, copy_s
        self.fixed_s, self.per_row_s, self.stalls = fixed_s, per_row_s, stalls or {}
        self.slowness = slowness
        self.busy_ns = 0
        self.now_ns = 0
        self.max_wait_ns = round(max_wait_s * NS)
        self.batcher = Batcher(
            [np.zeros((rows, 4, 4, 3), np.uint8) for _ in range(canvases)],
            max_wait_s=max_wait_s,
            pad_value=0,
            on_drop=self._drop,
            clock_ns=lambda: self.now_ns,
            **settings,  # type: ignore[arg-type]
        )
        self.batches: list[Batch] = []
        self.idle_since_ns: int | None = 0
        self.idle_at_close_ns: list[int | None] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._streams = {name: _Stream(self, name, kind) for name, kind in streams.items()}

    @property
    def told(self) -> dict[str, Told]:
        return {name: stream.told for name, stream in self._streams.items()}

    @property
    def orders(self) -> dict[str, Cap]:
        return {name: stream.order for name, stream in self._streams.items()}

    def at(self, time_ns: int, do: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (time_ns, self._count, do))

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        self.at(self.now_ns + round(seconds * NS), do)

    def run(self) -> Simulation:
        for stream in self._streams.values():
            stream.start()
        while self._events and self._events[0][0] <= self.end_s * NS:
            self.now_ns, _, do = heapq.heappop(self._events)
            do()
            self._settle()
        return self

    def drain(self) -> Simulation:
        """End as the service does: nothing new is read, and what is in the batches is inferred; return it."""
        while any(stream.has_row for stream in self._streams.values()):  # a copy that ends may give another its turn
            for stream in self._streams.values():
                stream.finish_copy()
        self.batcher.close()
        while (batch := self.batcher.take(0)) is not None:
            self._infer(batch)
            self.batcher.give_back(batch.index)
        for stream in self._streams.values():
            stream.stop()
        return self

    def _settle(self) -> None:
        self._take()
        for stream in self._streams.values():
            if stream.turn is not None:
                stream.go_on()

    def _take(self) -> None:
        if self.idle_since_ns is None:
            return
        batch = self.batcher.take(0)
        if batch is not None:
            self._infer(batch)
            took_s = self.fixed_s + self.per_row_s * len(batch.rows) + self.stalls.get(len(self.batches), 0.0)
            took_s *= self.slowness(self)
            self.busy_ns += round(took_s * NS)
            self.after(took_s, lambda: self._finish(batch.index))
            self.idle_since_ns = None
            return
        ready_at_ns = self.batcher._ready_at_ns()
        if ready_at_ns is not None and ready_at_ns > self.now_ns:
            self.at(ready_at_ns, lambda: None)

    def _finish(self, index: int) -> None:
        self.batcher.give_back(index)
        self.idle_since_ns = self.now_ns

    def _infer(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.idle_at_close_ns.append(self.idle_since_ns)
        for row in batch.rows:
            told = self._streams[row.header.stream].told
            told.inferred.append(row.header.frame)
            told.ages_ns.append(batch.closed_at_ns - row.header.read_at_ns)
            told.closed_at_ns.append(batch.closed_at_ns)

    def _drop(self, stream: StreamId, reason: DropReason) -> None:
        self._streams[stream].told.dropped[reason] += 1
