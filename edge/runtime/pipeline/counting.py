"""How many objects of each class the newest frame of each stream shows, as one retained value that needs no memory."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from edge.media.camera import StreamStatus
from edge.protocols import Publisher
from edge.publish.convert import rfc3339_from_ns
from edge.publish.messages import CountsMessage
from edge.types import FrameResult, StreamId, StreamState

__all__ = ["Counting"]

_TELL_EVERY_NS = 1_000_000_000

_State = Literal["counting", "interrupted", "stopped"]


class _Stream:
    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = dict.fromkeys(labels)  # that are counted, also where there is none of them
        self.state: _State = "counting"
        self.told: tuple[_State, Mapping[int, int]] | None = None
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
        self._streams = {stream: _Stream(of_stream) for stream, of_stream in wanted.items()}
        self._now_ns = now_ns
        self._monotonic_ns = monotonic_ns
        self._lock = threading.Lock()

    def see(self, results: Sequence[FrameResult]) -> None:
        with self._lock:
            for result in results:
                self._see(result)

    def change(self, status: StreamStatus) -> None:
        """Take note of a stream's new status: without frames the count is unknown, not zero."""
        with self._lock:
            stream = self._stream(status.stream)
            if status.state is StreamState.UP:
                stream.state = "counting"
            elif status.state in (StreamState.DOWN, StreamState.ENDED):
                self._end(status.stream, "interrupted" if status.state is StreamState.DOWN else "stopped")

    def begin(self, name: StreamId, labels: Sequence[str]) -> None:
        """Count a stream that is new, or has other classes; `labels` as for `wanted`."""
        with self._lock:
            self._streams[name] = _Stream(labels)

    def stop(self) -> None:
        with self._lock:
            for name in self._streams:
                self._end(name, "stopped")

    def _stream(self, name: StreamId) -> _Stream:
        return self._streams.setdefault(name, _Stream(()))

    def _see(self, result: FrameResult) -> None:
        stream = self._stream(result.header.stream)
        if stream.state != "counting":  # a frame that was on its way when the camera went
            return
        found = Counter(result.detections.class_id.tolist())
        stream.labels.update(dict.fromkeys(self._label(class_id) for class_id in found))
        is_due = stream.told is None or self._monotonic_ns() - stream.told_at_ns >= _TELL_EVERY_NS
        if is_due and stream.told != (stream.state, found):
            by_label = Counter({self._label(class_id): count for class_id, count in found.items()})
            self._tell(result.header.stream, {label: by_label[label] for label in stream.labels}, found)

    def _end(self, name: StreamId, state: _State) -> None:
        stream = self._stream(name)
        stream.state = state
        if stream.told is not None and stream.told[0] != state:
            self._tell(name, dict.fromkeys(stream.labels), {})
            stream.told_at_ns = 0  # the next count is published at once

    def _tell(self, name: StreamId, objects: Mapping[str, int | None], found: Mapping[int, int]) -> None:
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
