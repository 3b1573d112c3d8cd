"""From frame results to published messages: selection and numbering, in the thread of the pipeline."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from edge.protocols import Publisher
from edge.publish.convert import ClockSync
from edge.publish.frame import FrameMessage
from edge.publish.message import ModelInfo
from edge.publish.numbering import Numbering
from edge.publish.selection import Selection
from edge.types import FrameResult

__all__ = ["FramePublisher"]


class FramePublisher:
    """Publishes those frame results that `selection` wants; only these are numbered. Used by one thread."""

    def __init__(
        self,
        publisher: Publisher,
        *,
        device: str,
        numbering: Numbering,
        selection: Selection,
        labels: Sequence[str],
        model: ModelInfo,
        is_synced: Callable[[], bool | None] | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._publisher = publisher
        self._device = device
        self._numbering = numbering
        self._selection = selection
        self._labels = labels
        self._model = model
        self._is_synced = is_synced or ClockSync()
        self._now_ns = now_ns

    def publish(self, result: FrameResult) -> bool:
        """Publish this result if it is wanted, and return whether it was."""
        stream = result.header.stream
        if not self._selection.wants(stream, result.detections, now_ns=self._now_ns()):
            return False
        message = FrameMessage(
            result,
            device=self._device,
            epoch=self._numbering.epoch,
            seq=self._numbering.next(stream),
            labels=self._labels,
            model=self._model,
            is_synced=self._is_synced(),
        )
        self._publisher.publish(message)
        return True
