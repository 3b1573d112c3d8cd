"""A service's parts around an engine and sources of frames that are given beforehand; and accounts of a run."""

import dataclasses
import itertools
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.errors import EndOfStream, SourceError
from edge.media.camera import StreamStatus
from edge.publish.jsonl import JsonlPublisher
from edge.runtime.pipeline.batcher import Batcher
from edge.runtime.pipeline.counters import FrameCounters, RecentTimes, RunReport, RunTimes, StreamReport
from edge.runtime.pipeline.loop import Inference
from edge.runtime.serve.service import PipelineParts
from edge.runtime.serve.streams import StreamStates
from edge.types import (
    ClockSource,
    DropReason,
    Frame,
    FrameHeader,
    ImageSize,
    Precision,
    Preprocess,
    SourceCounts,
    StreamId,
    StreamState,
)
from edge.vision.boxes import fit
from edge.vision.heads import Detector, head_of

PICTURE = np.zeros((40, 64, 3), np.uint8)


def recorded(spec, name, images, **settings):
    return RecordedSource(StreamId(name), images, preprocess=spec.preprocess, **settings)


def live(spec, name, *, fps):
    return recorded(spec, name, itertools.repeat(PICTURE), fps=fps, is_live=True)


def parts_of(spec, engine, sources, out, *, on_results=lambda found: None, score_threshold=0.5, max_wait_s=0.01):
    """The parts; `out` is the file of messages, and a source may be made of what is told of statuses."""
    counters, publisher = FrameCounters(), JsonlPublisher(str(out))
    states = StreamStates([], publisher, device="test")
    sources = [one(states.change) if callable(one) else one for one in sources]
    for source in sources:
        states.add(source.stream)
    detector = Detector(head=head_of(spec), score_threshold=score_threshold, iou_threshold=0.5, max_detections=10)
    return PipelineParts(
        name="test",
        precision=Precision.FP32,
        sources=sources,
        inference=Inference(engine=engine, detector=detector, filters={}, on_results=on_results),
        batcher=Batcher(engine.canvases, max_wait_s=max_wait_s, pad_value=114, on_drop=counters.dropped),
        counters=counters,
        publisher=publisher,
        states=states,
    )


class Kept:
    def __init__(self):
        self.messages = []

    def publish(self, message):
        self.messages.append(message)

    def of(self, kind):
        return [message for message in self.messages if isinstance(message, kind)]

    def states(self):
        """What was told of the device as a whole, and why."""
        return [(one.state, one.reason) for one in self.messages if one.topic == "state"]


UP, DOWN, CONNECTING, ENDED = StreamState.UP, StreamState.DOWN, StreamState.CONNECTING, StreamState.ENDED
FIRST, SECOND = StreamId("s0"), StreamId("s1")


def counted(stream, **counts):
    """The counts of a stream, 0 where nothing else is said."""
    nothing = {"decoded": 0, "inferred": 0, "detections": 0, "dropped": {}, "errors": 0, "fps": 0.0}
    return StreamReport(stream=stream, **{**nothing, **counts})


def account(*streams, batches=1, **values):
    """An account of streams given as (state, decoded, inferred), further counts behind that as a dict."""
    names = [StreamId(f"s{index}") for index in range(len(streams))]
    report = RunReport(
        name="test",
        engine="test",
        precision=Precision.FP32,
        times=RunTimes(elapsed_s=1, cpu_s=1, peak_memory_bytes=1),
        streams=tuple(
            counted(name, decoded=decoded, inferred=inferred, **(more[0] if more else {}))
            for name, (_, decoded, inferred, *more) in zip(names, streams, strict=True)
        ),
        statuses={
            name: StreamStatus(stream=name, state=state, reason="", reconnects=0)
            for name, (state, *_) in zip(names, streams, strict=True)
        },
        stages_ms={},
        batch_sizes={1: batches},
        published={},
        recent=RecentTimes(),
        turns=1,
        has_work=False,
        hanging=(),
        is_final=False,
    )
    return dataclasses.replace(report, **values)


class Run:
    """Two streams, whose frames per second are given second by second; it stands for their batcher, too.

    `told` is for what the watcher has to say; the engine is at work for a share of the time. Streams that are `away`
    are in no account.
    """

    def __init__(self):
        self.told, self.terms, self.live = [], {}, frozenset((FIRST, SECOND))
        self.away, self.state, self.lost_as = frozenset(), UP, DropReason.SUPERSEDED
        self._watcher, self._second, self._busy_s = None, 0, 0.0
        self._counts = {name: [0, 0] for name in ("inferred", "lost", "capped", "skipped")}

    def watched_by(self, watcher):
        """Begin, with a watcher that is given each account."""
        self._watcher = watcher
        self._tick()

    def seconds(self, count, *, inferred, busy=1.0, **more):
        for _ in range(count):
            self._second += 1
            self._busy_s += busy
            for name, new in {"inferred": inferred, **more}.items():
                self._counts[name] = [one + other for one, other in zip(self._counts[name], new, strict=True)]
            self._tick()

    def _tick(self):
        streams = []
        for inferred, lost, capped, skipped in zip(*self._counts.values(), strict=True):
            more = {"dropped": {self.lost_as: lost, DropReason.CAPPED: capped}, "skipped": skipped}
            streams.append((self.state, inferred + lost + capped, inferred, more))
        times = RunTimes(elapsed_s=float(self._second), cpu_s=1, peak_memory_bytes=1)
        report = account(*streams, times=times, engine_busy_s=self._busy_s)
        there = tuple(one for one in report.streams if one.stream not in self.away)
        self._watcher.tick(dataclasses.replace(report, streams=there))


@dataclass(frozen=True, slots=True)
class Stall:
    """In place of a frame: nothing comes for so long (for ever: `float("inf")`)."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Breakage:
    """In place of a frame: the stream breaks with this error."""

    error: SourceError


class RecordedSource:
    """Implements `edge.protocols.FrameSource` over images that are in memory or made on the way.

    Args:
        stream: its id.
        images: uint8 (H, W, 3) RGB of any size, with `Stall` and `Breakage` in between.
        preprocess: what the frames are fitted for; they are scaled by picking the nearest pixel.
        fps: times of the frames; the pace too, if live.
        is_live: frames come at their pace, and the newest one wins; otherwise they wait for their reader.
    """

    def __init__(
        self,
        stream: StreamId,
        images: Iterable[NDArray[np.uint8] | Stall | Breakage],
        *,
        preprocess: Preprocess,
        fps: float = 30.0,
        is_live: bool = False,
    ) -> None:
        self._stream = stream
        self._images: Iterator[NDArray[np.uint8] | Stall | Breakage] = iter(images)
        self._preprocess = preprocess
        self._period_s = 1 / fps
        self._is_live = is_live
        self._closing = threading.Event()
        self._decoded = self._taken = 0
        self._begun = self._due = 0.0
        self._end: SourceError | None = None

    @property
    def stream(self) -> StreamId:
        return self._stream

    @property
    def is_live(self) -> bool:
        """Whether frames come at their own pace, so that the newest one wins."""
        return self._is_live

    def open(self) -> None:
        self._begun = self._due = time.monotonic()

    def read(self, timeout_s: float) -> Frame | None:
        """Return the next frame; see `FrameSource.read`."""
        if self._closing.is_set():
            raise SourceError(f"{self._stream}: read from a closed source")
        if self._closing.wait(min(timeout_s, max(0.0, self._due - time.monotonic()))):
            return None
        newest = self._newest()
        if newest is None and self._end is not None:
            raise self._end
        if newest is None:
            return None
        self._taken += 1
        return self._frame_of(newest)

    def counts(self) -> SourceCounts:
        late = self._decoded - self._taken
        return SourceCounts(decoded=self._decoded, dropped={DropReason.LATE: late} if late else {})

    def close(self) -> None:
        """Stop; wakes a `read` that waits in another thread."""
        self._closing.set()

    def _newest(self) -> NDArray[np.uint8] | None:
        """Return the frame that is due, passing over late ones if live."""
        found: NDArray[np.uint8] | None = None
        while self._end is None and self._due <= time.monotonic() and (found is None or self._is_live):
            match next(self._images, None):
                case None:
                    self._end = EndOfStream(f"{self._stream}: end of the recording")
                case Breakage(error):
                    self._end = error
                case Stall(seconds):
                    self._due = max(self._due, time.monotonic()) + seconds
                    break
                case image:
                    found = image
                    self._decoded += 1
                    self._due += self._period_s if self._is_live else 0.0
        return found

    def _frame_of(self, image: NDArray[np.uint8]) -> Frame:
        height, width = image.shape[:2]
        where = fit(ImageSize(width=width, height=height), self._preprocess)
        header = FrameHeader(
            stream=self._stream,
            frame=self._decoded,
            pts_ns=round((self._decoded - 1) * self._period_s * 1e9),
            captured_at_ns=time.time_ns(),
            clock=ClockSource.ARRIVAL if self._is_live else ClockSource.FILE,
            source_size=where.source,
            read_at_ns=time.monotonic_ns(),
        )
        rows = np.arange(where.fitted.height) * height // where.fitted.height
        columns = np.arange(where.fitted.width) * width // where.fitted.width
        return Frame(header=header, letterbox=where, image=image[rows[:, None], columns])
