"""What is made of the results of streams, between the boxes of a frame and its message, and after it.

Objects are followed where a pipeline file has zones or lines to watch. How many of each class the newest frame shows is
counted, as one retained value that needs no memory.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from edge.config.pipeline import Pipeline
from edge.config.schema import TrackingConfig
from edge.media.camera import StreamStatus
from edge.protocols import Publisher
from edge.publish.events import EventPublisher
from edge.publish.frames import rfc3339_from_ns
from edge.publish.messages import CountsMessage, EventMessage, InfoMessage
from edge.runtime.serve.streams import class_ids_at
from edge.track.bytetrack import ByteTracker
from edge.track.events import EndReason
from edge.track.follow import Follower, WatchRules
from edge.track.geometry import Line, Zone
from edge.types import FrameResult, StreamId, StreamState

__all__ = ["Counting", "Following", "Stages", "make_counting", "make_followers"]

_log = logging.getLogger(__name__)
_WINDOW_NS = 10_000_000_000  # over so long the rate of frames is taken
_STEADY = 0.95  # cameras are not exact, nor is the first frame of a window
_TELL_EVERY_NS = 500_000_000  # counts of a busy street change with every frame
_COUNTS_EVERY_NS = 1_000_000_000
_Followed = Literal["following", "interrupted", "stopped"]


class _Stream:
    """One stream, followed from when it is up: what comes before that is of the opening that a reload ends.

    The lock is there because a camera that goes away says so in a thread of its own.
    """

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self.lock = threading.Lock()
        self.state: _Followed | None = None  # as was told
        self.told_version = -1
        self.told_at_ns = 0
        self.is_sparse = False
        self.frames, self.since_ns = 0, 0  # of the window in which frames are counted

    def rate_of(self, pts_ns: int) -> float | None:
        """Count a frame; return frames per second at the end of a window."""
        if not 0 <= pts_ns - self.since_ns < 2 * _WINDOW_NS or not self.frames:
            self.frames, self.since_ns = 0, pts_ns
        self.frames += 1
        elapsed_ns = pts_ns - self.since_ns
        if elapsed_ns < _WINDOW_NS:
            return None
        frames, self.frames, self.since_ns = self.frames - 1, 1, pts_ns
        return frames / elapsed_ns * 1e9


class Following:
    """Numbers the objects of those streams that have a follower, and publishes their events."""

    def __init__(
        self,
        followers: Mapping[StreamId, Follower],
        publisher: EventPublisher,
        *,
        now_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._streams = {stream: _Stream(follower) for stream, follower in followers.items()}
        self._past: dict[StreamId, Follower] = {}  # for their numbers, should a stream be followed again
        self._publisher = publisher
        self._now_ns = now_ns
        self._monotonic_ns = monotonic_ns

    @property
    def recent_events(self) -> Sequence[EventMessage]:
        return self._publisher.recent

    def follow(self, results: Sequence[FrameResult], publish: Callable[[FrameResult], object]) -> None:
        """Give each result to `publish`, with the numbers of its objects if they are followed, then tell its events."""
        for result in results:
            self._follow(result, publish)

    def _follow(self, result: FrameResult, publish: Callable[[FrameResult], object]) -> None:
        stream = self._streams.get(result.header.stream)
        if stream is None:
            publish(result)
            return
        with stream.lock:
            if stream.state != "following":  # frames on their way when the camera went; what they show is over
                publish(result)
                return
            self._look_at_rate(result.header.stream, stream, result.header.pts_ns)
            track_id, events = stream.follower.follow(result)
            publish(replace(result, track_id=track_id))
            self._publisher.publish(result.header.stream, events)
            is_news = stream.follower.version != stream.told_version
            if is_news and self._monotonic_ns() - stream.told_at_ns >= _TELL_EVERY_NS:
                self._tell(result.header.stream, stream, "following")

    def change(self, status: StreamStatus) -> None:
        """Record a stream's new status, from any thread: one that is down or at its end follows nothing."""
        stream = self._streams.get(status.stream)
        if stream is None:
            return
        with stream.lock:
            if status.state is StreamState.UP:
                stream.frames = 0
                self._tell(status.stream, stream, "following")
            elif status.state in (StreamState.DOWN, StreamState.ENDED) and stream.state in (None, "following"):
                if status.state is StreamState.ENDED:
                    self._end(status.stream, stream, EndReason.STOPPED, "stopped")
                else:
                    self._end(status.stream, stream, EndReason.INTERRUPTED, "interrupted")

    def replace(self, stream: StreamId, follower: Follower | None) -> None:
        """Follow a stream anew, or no more; its objects are given up."""
        before = self._streams.pop(stream, None)
        if before is not None:
            with before.lock:
                self._end(stream, before, EndReason.STOPPED, "stopped")  # also for a frame that waits for the lock
            self._past[stream] = before.follower
        if follower is not None:
            if stream in self._past:
                follower.succeed(self._past[stream])
            self._streams[stream] = _Stream(follower)

    def stop(self) -> None:
        """Give up all objects: the service ends."""
        for name, stream in self._streams.items():
            with stream.lock:
                self._end(name, stream, EndReason.STOPPED, "stopped")

    def _look_at_rate(self, name: StreamId, stream: _Stream, pts_ns: int) -> None:
        """Say once that frames are too few, whether the camera, `max_fps` or an overload is the cause."""
        fps = stream.rate_of(pts_ns)
        if fps is None:
            return
        lack = stream.follower.lack_at(fps / _STEADY)
        if lack is not None and not stream.is_sparse:
            _log.warning("too few frames to follow objects stream=%s fps=%.1f reason=%s", name, fps, lack)
        elif lack is None and stream.is_sparse:
            _log.info("enough frames to follow objects stream=%s fps=%.1f", name, fps)
        stream.is_sparse = lack is not None

    def _end(self, name: StreamId, stream: _Stream, reason: EndReason, state: _Followed) -> None:
        self._publisher.publish(name, stream.follower.interrupt(reason))
        self._tell(name, stream, state)

    def _tell(self, name: StreamId, stream: _Stream, state: _Followed) -> None:
        stream.state = state
        stream.told_version, stream.told_at_ns = stream.follower.version, self._monotonic_ns()
        self._publisher.tell(name, stream.follower.occupancy(), state=state, now_ns=self._now_ns())


_State = Literal["counting", "interrupted", "stopped"]


class _CountedStream:
    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = dict.fromkeys(labels)  # that are counted, also where there is none of them
        self.state: _State = "interrupted"  # until it is up: what comes before is of the opening that a reload ends
        self.told: tuple[_State, Mapping[str, int]] | None = None
        self.told_at_ns = 0


class Counting:
    """Tells the counts of each stream when they change, at most once a second. Thread-safe.

    Args:
        device, epoch, labels: of the birth message.
        wanted: the labels of streams that name their classes; of the others those that were seen.
    """

    def __init__(
        self,
        publisher: Publisher,
        *,
        device: str,
        epoch: int,
        labels: Sequence[str],
        wanted: Mapping[StreamId, Sequence[str]],
        now_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._publisher = publisher
        self._device, self._epoch, self._labels = device, epoch, labels
        self._streams = {stream: _CountedStream(of_stream) for stream, of_stream in wanted.items()}
        self._now_ns = now_ns
        self._monotonic_ns = monotonic_ns
        self._lock = threading.Lock()

    def see(self, results: Sequence[FrameResult]) -> None:
        with self._lock:
            for result in results:
                self._see(result)

    def change(self, status: StreamStatus) -> None:
        """Record a stream's new status: without frames the count is unknown, not zero."""
        with self._lock:
            stream = self._streams.get(status.stream)
            if stream is None:
                return
            if status.state is StreamState.UP:
                stream.state = "counting"
            elif status.state in (StreamState.DOWN, StreamState.ENDED):
                self._end(status.stream, stream, "interrupted" if status.state is StreamState.DOWN else "stopped")

    def begin(self, name: StreamId, labels: Sequence[str]) -> None:
        """Count a stream that is new, or has other classes; `labels` as for `wanted`."""
        with self._lock:
            self._streams[name] = _CountedStream(labels)

    def forget(self, name: StreamId) -> None:
        """Tell no more of a stream that is gone, also of its frames that are on their way."""
        with self._lock:
            self._streams.pop(name, None)

    def stop(self) -> None:
        with self._lock:
            for name, stream in self._streams.items():
                self._end(name, stream, "stopped")

    def _see(self, result: FrameResult) -> None:
        stream = self._streams.get(result.header.stream)
        if stream is None or stream.state != "counting":  # a frame that was on its way when the camera went
            return
        found = Counter[str]()
        for class_id, count in Counter(result.detections.class_id.tolist()).items():
            found[self._label(class_id)] += count
        stream.labels.update(dict.fromkeys(found))
        is_due = stream.told is None or self._monotonic_ns() - stream.told_at_ns >= _COUNTS_EVERY_NS
        if is_due and stream.told != (stream.state, found):
            self._tell(result.header.stream, {label: found[label] for label in stream.labels}, found)

    def _end(self, name: StreamId, stream: _CountedStream, state: _State) -> None:
        stream.state = state
        if stream.told is not None and stream.told[0] != state:
            self._tell(name, dict.fromkeys(stream.labels), {})
            stream.told_at_ns = 0  # the next count is published at once

    def _tell(self, name: StreamId, objects: Mapping[str, int | None], found: Mapping[str, int]) -> None:
        stream = self._streams[name]
        stream.told, stream.told_at_ns = (stream.state, found), self._monotonic_ns()
        self._publisher.publish(
            CountsMessage(
                device=self._device,
                stream=name,
                epoch=self._epoch,
                state=stream.state,
                since=rfc3339_from_ns(self._now_ns()),
                total=sum(found.values()) if stream.state == "counting" else None,
                objects=dict(objects),
            )
        )

    def _label(self, class_id: int) -> str:
        return self._labels[class_id] if class_id < len(self._labels) else f"class {class_id}"


@dataclass(frozen=True, slots=True)
class Stages:
    """Stages behind inference, which hear of results and of changes of streams; `counting` None: none is wanted."""

    following: Following
    counting: Counting | None

    def take(self, results: Sequence[FrameResult], publish: Callable[[FrameResult], object]) -> None:
        self.following.follow(results, publish)
        if self.counting is not None:
            self.counting.see(results)

    def change(self, status: StreamStatus) -> None:
        """Call from any thread."""
        self.following.change(status)
        if self.counting is not None:
            self.counting.change(status)

    def begin(self, stream: StreamId, follower: Follower | None, labels: Sequence[str]) -> None:
        """`labels` are the classes that the stream names."""
        self.following.replace(stream, follower)
        if self.counting is not None:
            self.counting.begin(stream, labels)

    def end(self, stream: StreamId) -> None:
        """The stream is gone."""
        self.following.replace(stream, None)
        if self.counting is not None:
            self.counting.forget(stream)

    def stop(self) -> None:
        self.following.stop()
        if self.counting is not None:
            self.counting.stop()


def make_followers(pipeline: Pipeline, labels: Sequence[str]) -> dict[StreamId, Follower]:
    """`labels` are the model's. Raises `ConfigError` if a zone or a line names a label that the model does not have."""
    followers = {}
    for index, stream in enumerate(pipeline.config.streams):
        if stream.tracking is not None:
            rules = _rules(pipeline, index, stream.tracking, labels)
            tracker = ByteTracker(lost_s=rules.lost_s, sure_score=stream.tracking.start_score)
            follower = followers[StreamId(stream.id)] = Follower(tracker, rules)
            lack = None if stream.max_fps is None else follower.lack_at(stream.max_fps)
            if lack is not None:
                _log.warning(
                    "max_fps is low for tracking stream=%s max_fps=%g reason=%s", stream.id, stream.max_fps, lack
                )
    return followers


def make_counting(pipeline: Pipeline, publisher: Publisher, info: InfoMessage) -> Counting | None:
    """Use the epoch of the birth message; return None where no counts are wanted."""
    if not pipeline.config.publish.counts:
        return None
    wanted = {StreamId(stream.id): tuple(stream.classes or ()) for stream in pipeline.config.streams}
    return Counting(publisher, device=info.device, epoch=info.epoch, labels=info.labels, wanted=wanted)


def _rules(pipeline: Pipeline, stream: int, tracking: TrackingConfig, labels: Sequence[str]) -> WatchRules:
    where = ("streams", stream, "tracking")
    zones = [
        Zone(
            id=zone.id,
            polygon=tuple((x, y) for x, y in zone.polygon),
            class_ids=class_ids_at(pipeline, (*where, "zones", number, "classes"), zone.classes, labels),
            dwell_s=zone.dwell_s,
        )
        for number, zone in enumerate(tracking.zones)
    ]
    lines = [
        Line(
            id=line.id,
            start=(line.start[0], line.start[1]),
            end=(line.end[0], line.end[1]),
            class_ids=class_ids_at(pipeline, (*where, "lines", number, "classes"), line.classes, labels),
        )
        for number, line in enumerate(tracking.lines)
    ]
    return WatchRules(
        zones=zones,
        lines=lines,
        anchor=tracking.anchor,
        settle_s=tracking.settle_s,
        lost_s=tracking.lost_s,
        classes=len(labels),
    )
