"""From a pipeline file to what is made of the results of its streams: objects followed, objects counted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from edge.config.pipeline import Pipeline
from edge.config.schema import TrackingConfig
from edge.media.camera import StreamStatus
from edge.protocols import Publisher
from edge.publish.events import EventPublisher
from edge.publish.messages import InfoMessage
from edge.runtime.pipeline.counting import Counting
from edge.runtime.pipeline.following import Following
from edge.track.bytetrack import ByteTracker
from edge.track.follow import Follower, WatchRules
from edge.track.geometry import Line, Zone
from edge.types import FrameResult, StreamId

__all__ = ["Stages", "make_counting", "make_followers", "make_following"]

_log = logging.getLogger(__name__)


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

    def stop(self) -> None:
        self.following.stop()
        if self.counting is not None:
            self.counting.stop()


def make_followers(pipeline: Pipeline, labels: Sequence[str]) -> dict[StreamId, Follower]:
    """`labels` are the model's. Raises `ConfigError` if a zone or a line names a label that the model does not have."""
    followers = {}
    for index, stream in enumerate(pipeline.config.streams):
        if stream.tracking is not None:
            rules = _Reader(pipeline, index, labels).rules(stream.tracking)
            tracker = ByteTracker(lost_s=rules.lost_s, sure_score=stream.tracking.start_score)
            follower = followers[StreamId(stream.id)] = Follower(tracker, rules)
            lack = None if stream.max_fps is None else follower.lack_at(stream.max_fps)
            if lack is not None:
                _log.warning(
                    "max_fps is low for tracking stream=%s max_fps=%g reason=%s", stream.id, stream.max_fps, lack
                )
    return followers


def make_following(followers: Mapping[StreamId, Follower], publisher: Publisher, info: InfoMessage) -> Following:
    """Number events on the epoch of the birth message."""
    return Following(followers, EventPublisher(publisher, info.run_info))


def make_counting(pipeline: Pipeline, publisher: Publisher, info: InfoMessage) -> Counting | None:
    """Use the epoch of the birth message; return None where no counts are wanted."""
    if not pipeline.config.publish.counts:
        return None
    wanted = {StreamId(stream.id): tuple(stream.classes or ()) for stream in pipeline.config.streams}
    return Counting(publisher, device=info.device, epoch=info.epoch, labels=info.labels, wanted=wanted)


class _Reader:
    """The section of one stream."""

    def __init__(self, pipeline: Pipeline, stream: int, labels: Sequence[str]) -> None:
        self._pipeline = pipeline
        self._stream = stream
        self._labels = labels

    def rules(self, tracking: TrackingConfig) -> WatchRules:
        return WatchRules(
            zones=list(self._zones(tracking)),
            lines=list(self._lines(tracking)),
            anchor=tracking.anchor,
            settle_s=tracking.settle_s,
            lost_s=tracking.lost_s,
            classes=len(self._labels),
        )

    def _zones(self, tracking: TrackingConfig) -> Iterator[Zone]:
        for number, zone in enumerate(tracking.zones):
            yield Zone(
                id=zone.id,
                polygon=tuple((x, y) for x, y in zone.polygon),
                class_ids=self._class_ids("zones", number, zone.classes),
                dwell_s=zone.dwell_s,
            )

    def _lines(self, tracking: TrackingConfig) -> Iterator[Line]:
        for number, line in enumerate(tracking.lines):
            yield Line(
                id=line.id,
                start=(line.start[0], line.start[1]),
                end=(line.end[0], line.end[1]),
                class_ids=self._class_ids("lines", number, line.classes),
            )

    def _class_ids(self, kind: str, number: int, labels: Sequence[str] | None) -> frozenset[int] | None:
        where = ("streams", self._stream, "tracking", kind, number, "classes")
        return None if labels is None else frozenset(self._pipeline.class_ids(where, labels, self._labels))
