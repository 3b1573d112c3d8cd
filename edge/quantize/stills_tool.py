"""Work on images, each of which goes through one engine once, and the tools for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from edge.engine.kind import EngineKind
from edge.quantize.forms import Forms
from edge.quantize.stills import StillImage

__all__ = ["Closable", "StillsTool", "StillsWork"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StillsWork:
    """What works on images share (`edge.quantize.crew.CrewWork`), beside `open`.

    Attributes:
        kind: of the engine.
        forms: of the model.
        max_batch: images on one canvas.
    """

    kind: EngineKind
    forms: Forms
    max_batch: int

    @property
    def rows(self) -> int:
        """Images on one canvas."""
        return max(self.max_batch, self.forms.spec.batch or 1)

    @property
    def is_small(self) -> bool:
        """No: an engine takes all cores."""
        return False

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of engine."""
        return (self.kind.name,)


class Closable(Protocol):
    """What every engine is."""

    @property
    def name(self) -> str:
        """Kind and version."""
        ...

    def close(self) -> None:
        """Free it."""
        ...


Engine = TypeVar("Engine", bound=Closable)


class StillsTool(Generic[Engine]):
    """What the tools of images share (`edge.quantize.crew.Tool`), beside `run`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def name(self) -> str:
        """Of the engine."""
        return self._engine.name

    def images(self, items: Sequence[StillImage]) -> Sequence[StillImage]:
        """Return what `run` would read: the items."""
        return items

    def close(self) -> None:
        """Free the engine."""
        self._engine.close()
