"""Where a calibration, an evaluation or a comparison is computed: in this process, or in others.

A `CrewWork` says what is done with each of many items and is a value that travels; a `Tool` is what does it, once made;
a `Crew` decides where, and hands back what was found in the order of the items. The caller cannot tell crews apart.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from edge.media.images import read_image
from edge.quantize.stills import StillImage

__all__ = ["Crew", "CrewJob", "CrewWork", "Here", "ReadImage", "Tool"]

Item = TypeVar("Item")
Item_contra = TypeVar("Item_contra", contravariant=True)
Found_co = TypeVar("Found_co", covariant=True)
Found = TypeVar("Found")
ReadImage = Callable[[Path], NDArray[np.uint8]]


class Tool(Protocol[Item_contra, Found_co]):
    """Engines, and whatever else the work needs once. One thread at a time, unless its work says else."""

    @property
    def name(self) -> str:
        """Of the engine."""

    def images(self, items: Sequence[Item_contra]) -> Sequence[StillImage]:
        """Return the images that `run` would read for `items`."""

    def run(self, items: Sequence[Item_contra], *, read: ReadImage, on_item: Callable[[], None]) -> Iterator[Found_co]:
        """Yield what is found, in order; what is yielded stays valid.

        `read`: gives an image, uint8 (H, W, 3) RGB. `on_item`: called after each item.
        Raises `EdgeError` if an item cannot be used.
        """

    def close(self) -> None: ...


class CrewWork(Protocol[Item_contra, Found_co]):
    """Work on items: a value that can be pickled.

    What comes out depends on the items alone: neither on how they are split, at multiples of `rows`, nor on how many
    cores there are.
    """

    @property
    def rows(self) -> int:
        """Items that are looked at together."""

    @property
    def is_small(self) -> bool:
        """Whether an item takes about one core for about a second, so that a tool may have many at once."""

    def open(self) -> Tool[Item_contra, Found_co]:
        """Return what does it. Raises `EngineError` if an engine cannot be made."""


class CrewJob(Protocol[Item_contra, Found_co]):
    """Work that a crew has taken on."""

    @property
    def engine(self) -> str:
        """The name of the engine that did it; known when something was found."""

    def each(self, items: Sequence[Item_contra], *, on_item: Callable[[], None]) -> Iterator[Found_co]:
        """Yield what is found, in the order of the items; `on_item` is called for each item, in any order.
        Raises the EdgeError that the tool raises of the first item that cannot be used.
        """


class Crew(Protocol):
    """Does work."""

    def take_on(self, work: CrewWork[Item, Found]) -> AbstractContextManager[CrewJob[Item, Found]]:
        """Return a job, which ends with the context. Raises `EngineError` if an engine cannot be made."""


class Here:
    """`Crew` of this process: one tool gets all items at once."""

    @contextlib.contextmanager
    def take_on(self, work: CrewWork[Item, Found]) -> Iterator[CrewJob[Item, Found]]:
        with contextlib.closing(work.open()) as tool:
            yield _Job(tool)


class _Job(CrewJob[Item, Found]):
    engine = ""

    def __init__(self, tool: Tool[Item, Found]) -> None:
        self._tool = tool
        self.engine = tool.name

    def each(self, items: Sequence[Item], *, on_item: Callable[[], None]) -> Iterator[Found]:
        yield from self._tool.run(items, read=read_image, on_item=on_item)
