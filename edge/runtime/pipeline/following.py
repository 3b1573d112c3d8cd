"""Streams whose objects are followed: between the boxes of a frame and its message."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from edge.media.camera import StreamStatus
from edge.publish.events import EventPublisher
from edge.track.events import EndReason
from edge.track.follow import Follower
from edge.types import FrameResult, StreamId, StreamState

__all__ = ["Following"]

_TELL_EVERY_NS = 500_000_000  # counts of a busy street change with every frame


class _Stream:
    """One stream. The lock is there because a camera that goes away says so in a thread of its own."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self.lock = threading.Lock()
        self.is_down = False
        self.told_version = -1
        self.told_at_ns = 0


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
            if stream.is_down:  # frames that were on their way when the camera went; what they show is over
                publish(result)
                return
            track_id, events = stream.follower.follow(result)
            publish(replace(result, track_id=track_id))
            self._publisher.publish(result.header.stream, events)
            is_news = stream.follower.version != stream.told_version
            if is_news and self._monotonic_ns() - stream.told_at_ns >= _TELL_EVERY_NS:
                self._tell(result.header.stream, stream, "following")

    def change(self, status: StreamStatus) -> None:
        """Take note of a stream's new status, from any thread: who is down, or at its end, follows nobody."""
        stream = self._streams.get(status.stream)
        if stream is None:
            return
        with stream.lock:
            if status.state is StreamState.UP:
                stream.is_down = False
                self._tell(status.stream, stream, "following")
            elif status.state in (StreamState.DOWN, StreamState.ENDED) and not stream.is_down:
                stream.is_down = True
                if status.state is StreamState.ENDED:
                    self._end(status.stream, stream, EndReason.STOPPED, "stopped")
                else:
                    self._end(status.stream, stream, EndReason.INTERRUPTED, "interrupted")

    def replace(self, stream: StreamId, follower: Follower | None) -> None:
        """Follow a stream anew, or no more; its objects are given up."""
        before = self._streams.pop(stream, None)
        if before is not None:
            with before.lock:
                before.is_down = True  # for a frame that waits for the lock
                self._end(stream, before, EndReason.STOPPED, "stopped")
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

    def _end(
        self, name: StreamId, stream: _Stream, reason: EndReason, state: Literal["interrupted", "stopped"]
    ) -> None:
        self._publisher.publish(name, stream.follower.interrupt(reason))
        self._tell(name, stream, state)

    def _tell(self, name: StreamId, stream: _Stream, state: Literal["following", "interrupted", "stopped"]) -> None:
        stream.told_version, stream.told_at_ns = stream.follower.version, self._monotonic_ns()
        self._publisher.tell(name, stream.follower.occupancy(), state=state, now_ns=self._now_ns())
