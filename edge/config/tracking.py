"""What cannot be in the `tracking` section of a stream, beyond what the types say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edge.config.polygon import polygon_problem
from edge.config.schema import PlaceConfig, StreamConfig
from edge.document import Location

__all__ = ["tracking_contradictions"]

_FRAMES_WITHIN = 2  # an object has to be seen so often before it is given up


def tracking_contradictions(index: int, stream: StreamConfig) -> Iterator[tuple[Location, str]]:
    """Yield where in stream `index` something cannot be so, and why."""
    tracking, here = stream.tracking, ("streams", index, "tracking")
    if tracking is None:
        return
    yield from _places((*here, "zones"), tracking.zones, stream)
    yield from _places((*here, "lines"), tracking.lines, stream)
    for number, zone in enumerate(tracking.zones):
        problem = polygon_problem([(x, y) for x, y in zone.polygon])
        if problem is not None:
            yield (*here, "zones", number, "polygon"), problem
    for number, line in enumerate(tracking.lines):
        if line.start == line.end:
            yield (*here, "lines", number, "end"), f"got {line.end}, which is its start too; a line has a length"
    if stream.max_fps is not None and stream.max_fps * tracking.lost_s < _FRAMES_WITHIN:
        least = _FRAMES_WITHIN / stream.max_fps
        problem = f"got {tracking.lost_s:g}, but max_fps {stream.max_fps:g} gives too few frames within it to follow"
        yield (*here, "lost_s"), f"{problem} anything; give at least {least:g}, or raise max_fps"


def _places(here: Location, places: Sequence[PlaceConfig], stream: StreamConfig) -> Iterator[tuple[Location, str]]:
    seen: dict[str, int] = {}
    for number, place in enumerate(places):
        if place.id in seen:
            yield (*here, number, "id"), f"{place.id!r} is already {here[-1]}[{seen[place.id]}]; give each its own id"
        seen[place.id] = number
        for label in place.classes or ():
            if stream.classes is not None and label not in stream.classes:
                problem = f"got {label!r}, but the stream reports only {', '.join(stream.classes)}"
                yield (*here, number, "classes"), f"{problem}; add it to the stream's classes, or remove it here"
