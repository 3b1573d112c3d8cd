"""Events and occupancy of followed objects as messages: numbered, converted, published in the order they are given."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from edge.protocols import Publisher
from edge.publish.frames import is_clock_synced, rfc3339_from_ns
from edge.publish.message import RunInfo
from edge.publish.messages import Clock, EventMessage, LineCounts, OccupancyMessage
from edge.track.events import Occupancy, TrackEvent
from edge.types import StreamId

__all__ = ["EventPublisher"]

_RECENT = 10


class EventPublisher:
    """Numbers the events of each stream, from 1. One thread at a time for each stream."""

    def __init__(
        self, publisher: Publisher, info: RunInfo, *, is_synced: Callable[[], bool | None] = is_clock_synced
    ) -> None:
        self._publisher = publisher
        self._info = info
        self._is_synced = is_synced
        self._last: Counter[StreamId] = Counter()
        self._recent: deque[EventMessage] = deque(maxlen=_RECENT)

    @property
    def recent(self) -> Sequence[EventMessage]:
        """The last ten events of all streams, the newest first; a copy."""
        return list(self._recent)

    def publish(self, stream: StreamId, events: Iterable[TrackEvent]) -> None:
        for event in events:
            message = self._message(stream, event)
            self._recent.appendleft(message)
            self._publisher.publish(message)

    def tell(
        self,
        stream: StreamId,
        occupancy: Occupancy,
        *,
        state: Literal["following", "interrupted", "stopped"],
        now_ns: int,
    ) -> None:
        """`now_ns` is of the system's clock."""
        self._publisher.publish(
            OccupancyMessage(
                device=self._info.device,
                stream=stream,
                epoch=self._info.epoch,
                state=state,
                since=rfc3339_from_ns(now_ns),
                objects=self._by_label(occupancy.objects),
                zones={zone: self._by_label(counts) for zone, counts in occupancy.zones.items()},
                lines={
                    line: LineCounts(forward=self._by_label(total.forward), backward=self._by_label(total.backward))
                    for line, total in occupancy.lines.items()
                },
            )
        )

    def _message(self, stream: StreamId, event: TrackEvent) -> EventMessage:
        info, sighting, header = self._info, event.sighting, event.sighting.header
        xywh = sighting.xyxy.astype(np.float64)
        xywh[2:] -= xywh[:2]
        self._last[stream] += 1
        return EventMessage(
            device=info.device,
            stream=stream,
            epoch=info.epoch,
            seq=self._last[stream],
            kind=event.kind.value,
            zone=event.zone,
            line=event.line,
            direction=None if event.direction is None else event.direction.value,
            duration_s=None if event.duration_s is None else round(event.duration_s, 3),
            reason=None if event.reason is None else event.reason.value,
            track_id=event.track_id,
            class_id=event.class_id,
            label=info.labels[event.class_id] if event.class_id < len(info.labels) else None,
            score=round(sighting.score, 3),
            frame=header.frame,
            pts_us=header.pts_ns // 1000,
            captured_at=rfc3339_from_ns(header.captured_at_ns),
            clock=Clock(source=header.clock.value, synced=self._is_synced()),
            model=info.model,
            size=[header.source_size.width, header.source_size.height],
            bbox=np.round(xywh, 1).tolist(),
        )

    def _by_label(self, counts: Mapping[int, int]) -> dict[str, int]:
        labels, by_label = self._info.labels, Counter[str]()
        for class_id, count in sorted(counts.items()):
            by_label[labels[class_id] if class_id < len(labels) else f"class {class_id}"] += count
        return dict(+by_label)
