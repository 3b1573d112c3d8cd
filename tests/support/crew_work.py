"""Work without engines, for what a crew has to hold whatever is done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edge.errors import DatasetError
from edge.quantize.stills import StillImage


@dataclass(frozen=True, slots=True, kw_only=True)
class Colours:
    """The colour of the first pixel of each image; `bad` names images that cannot be used."""

    rows: int = 1
    is_small: bool = False
    bad: tuple[str, ...] = ()

    def open(self) -> _Colours:
        return _Colours(self)


class _Colours:
    name = "eyes 1.0"

    def __init__(self, work: Colours) -> None:
        self._work = work
        self._using = threading.Lock()

    def images(self, items: Sequence[StillImage]) -> Sequence[StillImage]:
        return items

    def run(self, items: Sequence[StillImage], *, read: Callable, on_item: Callable) -> Iterator[tuple[str, list]]:
        for image in items:
            if image.path.name in self._work.bad:
                raise DatasetError(f"{image.path.name}: is bad", hint="mend it")
            if not self._work.is_small:
                assert self._using.acquire(blocking=False), "two threads at once"
            yield image.path.name, read(image.path)[0, 0].tolist()
            if not self._work.is_small:
                self._using.release()
            on_item()

    def close(self) -> None:
        """Nothing to be freed."""


def images_in(folder: Path) -> list[StillImage]:
    return [StillImage(path) for path in sorted(folder.iterdir())]
