"""Frame rate limits of streams while the machine cannot keep up; ordered by one thread, obeyed by another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["EVERYTHING", "Orders", "Shedding", "SheddingOrder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shedding:
    """Frames above `max_fps` are let go behind the decoder; None: no limit.
    Raises `ValueError` if the limit is not positive.
    """

    max_fps: float | None = None

    def __post_init__(self) -> None:
        if self.max_fps is not None and self.max_fps <= 0:
            raise ValueError(f"max_fps is positive, got {self.max_fps}")


EVERYTHING = Shedding()
"""Nothing is left out."""


@dataclass(slots=True)
class SheddingOrder:
    """The order for one stream, over all its connections. Replaced as a whole, so that readers need no lock."""

    now: Shedding = EVERYTHING


@dataclass(slots=True)
class Orders:
    """Those of all streams, made when first asked for."""

    _all: dict[str, SheddingOrder] = field(default_factory=dict)

    def of(self, stream: str) -> SheddingOrder:
        return self._all.setdefault(stream, SheddingOrder())

    def in_force(self) -> Mapping[str, Shedding]:
        """Return the orders of streams that leave something out."""
        return {stream: order.now for stream, order in list(self._all.items()) if order.now != EVERYTHING}
