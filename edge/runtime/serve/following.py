"""From a pipeline file to what is made of the results of its streams: objects followed, objects counted."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class Stages:
    """What is made of results, and of news of streams, which both have to hear of; `counting` None: none is wanted."""

    following: Following
    counting: Counting | None

    def take(self, results: Sequence[FrameResult], publish: Callable[[FrameResult], object]) -> None:
        """Take the results of a batch; each is given to `publish`."""
        self.following.follow(results, publish)
        if self.counting is not None:
            self.counting.see(results)

    def change(self, status: StreamStatus) -> None:
        """Take note of a stream's new status, from any thread."""
        self.following.change(status)
        if self.counting is not None:
            self.counting.change(status)

    def begin(self, stream: StreamId, follower: Follower | None, labels: Sequence[str]) -> None:
        """Begin anew with a stream, which names these labels as its classes."""
        self.following.replace(stream, follower)
        if self.counting is not None:
            self.counting.begin(stream, labels)

    def stop(self) -> None:
        """The service ends."""
        self.following.stop()
        if self.counting is not None:
            self.counting.stop()


def make_followers(pipeline: Pipeline, labels: Sequence[str]) -> dict[StreamId, Follower]:
    """Return what follows the objects of those streams that ask for it; `labels` are the model's.

    Raises:
        ConfigError: if a zone or a line names a label that the model does not have.
    """
    followers = {}
    for index, stream in enumerate(pipeline.config.streams):
        if stream.tracking is not None:
            rules = _Reader(pipeline, index, labels).rules(stream.tracking)
            tracker = ByteTracker(lost_s=rules.lost_s, sure_score=stream.tracking.start_score)
            followers[StreamId(stream.id)] = Follower(tracker, rules)
    return followers


def make_following(followers: Mapping[StreamId, Follower], publisher: Publisher, info: InfoMessage) -> Following:
    """Return the stage that runs `followers` and publishes what they find, on the epoch of the birth message."""
    events = EventPublisher(publisher, device=info.device, epoch=info.epoch, labels=info.labels, model=info.model)
    return Following(followers, events)


def make_counting(pipeline: Pipeline, publisher: Publisher, info: InfoMessage) -> Counting | None:
    """Return what counts the objects of all streams, on the epoch of the birth message; None where none is wanted."""
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
        for label in labels or ():
            if label not in self._labels:
                known = ", ".join(self._labels[:10]) + (", ..." if len(self._labels) > 10 else "")
                where = ("streams", self._stream, "tracking", kind, number, "classes")
                raise self._pipeline.error(where, f"got {label!r}, the labels of the model are {known}")
        return None if labels is None else frozenset(self._labels.index(label) for label in labels)
