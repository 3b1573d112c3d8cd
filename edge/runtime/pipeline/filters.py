"""Which detections of a stream are kept: of which classes, and where on the picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.track.geometry import Zones, anchors
from edge.types import Detections, ImageSize, Polygon

__all__ = ["IgnoredArea", "StreamFilter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredArea:
    """A polygon, and the class ids that it is about; None: all."""

    polygon: Polygon
    class_ids: frozenset[int] | None = None


class StreamFilter:
    """Args:
    class_ids: int32 (N,), what the stream reports; None: every class.
    ignored: where detections are left out.
    classes: how many the model has.
    """

    def __init__(
        self, class_ids: NDArray[np.int32] | None = None, ignored: Sequence[IgnoredArea] = (), *, classes: int = 0
    ) -> None:
        self.class_ids = class_ids
        self._areas = Zones([[(x, y) for x, y in area.polygon] for area in ignored]) if ignored else None
        about = [[area.class_ids is None or k in area.class_ids for area in ignored] for k in range(classes)]
        self._is_about = np.array(about, np.bool_)  # (classes, areas)

    def keep(self, found: Detections, size: ImageSize) -> Detections:
        """Return the detections of a frame of this size whose centre lies in no ignored area, in order."""
        if self._areas is None or not len(found):
            return found
        centres = anchors(found.xyxy, "centre", width=size.width, height=size.height)
        is_kept = ~(self._areas.inside(centres) & self._is_about[found.class_id]).any(axis=1)
        return Detections(xyxy=found.xyxy[is_kept], score=found.score[is_kept], class_id=found.class_id[is_kept])
