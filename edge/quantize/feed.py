"""Still images through whatever runs canvases: while some are inferred, others are filled and read.

All that the room measures goes through here: detections, tensors from inside, a float model and its INT8 one as a pair.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from edge.engine.kind import EngineKind, EngineRequest, build_and_load
from edge.errors import EndOfStream, SourceError
from edge.media.images import read_image, resize
from edge.protocols import Engine, FrameSource, Runner
from edge.quantize.crew import ReadImage
from edge.quantize.forms import Forms
from edge.quantize.stills import StillImage
from edge.types import Detections, ImageSize, Letterbox, ModelSpec, Precision, Preprocess
from edge.vision.boxes import fill_border, fit, paste
from edge.vision.heads import Detector, head_of

__all__ = [
    "Detecting",
    "StillsTool",
    "StillsWork",
    "canvases_of",
    "coco_detector",
    "outputs_of",
    "run_stills",
    "still_canvases",
]

_READ_TIMEOUT_S = 60.0
T_co = TypeVar("T_co", covariant=True)


def run_stills(
    paths: Sequence[Path], engine: Runner[T_co], *, read: ReadImage = read_image
) -> Iterator[tuple[Sequence[Letterbox], T_co]]:
    """Yield what comes out of each canvas of images, and how they lie on its rows; in order.

    What is yielded is valid until the next step; the other canvases are inferred meanwhile. `read`: gives the image of
    a file, uint8 (H, W, 3) RGB, for those who do not have it at its path.
    Raises `DatasetError` if an image cannot be read; EngineError if an inference failed.
    """
    images = map(read, paths)
    free, running = list(range(len(engine.canvases))), deque[tuple[int, list[Letterbox]]]()
    has_more = True
    while has_more or running:
        while has_more and free:
            rows = zip(engine.canvases[free[0]], images, strict=False)  # rows first: no image is read for none
            placed = [_placed(image, row, engine.preprocess) for row, image in rows]
            has_more = len(placed) == engine.max_batch
            if placed:
                engine.start(free[0], len(placed))
                running.append((free.pop(0), placed))
        if running:
            index, placed = running.popleft()
            yield placed, engine.wait(index)
            free.append(index)


def still_canvases(
    paths: Iterable[Path], preprocess: Preprocess, *, read: ReadImage = read_image
) -> Iterator[NDArray[np.uint8]]:
    """Yield a canvas of its own, uint8 (H, W, 3) RGB, for each image; `read` as above.
    Raises `DatasetError` if an image cannot be read.
    """
    for path in paths:
        row = np.empty((preprocess.size.height, preprocess.size.width, 3), np.uint8)
        _placed(read(path), row, preprocess)
        yield row


def outputs_of(canvases: Iterable[NDArray[np.uint8]], engine: Runner[T_co]) -> Iterator[T_co]:
    """Yield what comes out of each canvas, uint8 (H, W, 3) RGB, run alone; valid until the next step.
    Raises `EngineError` if an inference failed.
    """
    for canvas in canvases:
        engine.canvases[0][0] = canvas
        engine.start(0, 1)
        yield engine.wait(0)


def canvases_of(source: FrameSource, preprocess: Preprocess) -> Iterator[NDArray[np.uint8]]:
    """Yield a canvas of its own, uint8 (H, W, 3) RGB, for each frame of a finite, opened source.
    Raises `SourceError` if a frame cannot be read.
    """
    with contextlib.suppress(EndOfStream):
        while True:
            frame = source.read(_READ_TIMEOUT_S)
            if frame is None:
                raise SourceError(f"{source.stream}: no frame within {_READ_TIMEOUT_S:.0f} s")
            row = np.empty((preprocess.size.height, preprocess.size.width, 3), np.uint8)
            fill_border(row, frame.letterbox, pad_value=preprocess.pad_value)
            paste(frame.image, row, frame.letterbox)
            yield row


def _placed(image: NDArray[np.uint8], row: NDArray[np.uint8], preprocess: Preprocess) -> Letterbox:
    where = fit(ImageSize(width=image.shape[1], height=image.shape[0]), preprocess)
    fill_border(row, where, pad_value=preprocess.pad_value)
    paste(resize(image, where.fitted), row, where)
    return where


Opened = TypeVar("Opened", bound=Runner[Any])
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class StillsWork(ABC, Generic[Opened, Found]):
    """Common part of works on images (`edge.quantize.crew.CrewWork`): what runs them, and what is found with it."""

    kind: EngineKind
    forms: Forms
    max_batch: int  # images on one canvas
    is_small = False  # an engine takes all cores

    @property
    def rows(self) -> int:
        return max(self.max_batch, self.forms.spec.batch or 1)

    def open(self) -> StillsTool[Opened, Found]:
        return StillsTool(self.engine(), self)

    @abstractmethod
    def engine(self) -> Opened:
        """Return what runs the images. Raises `EngineError` if it cannot be made."""

    @abstractmethod
    def run(
        self, engine: Opened, items: Sequence[StillImage], *, read: ReadImage, on_item: Callable[[], None]
    ) -> Iterator[Found]:
        """Yield as `edge.quantize.crew.Tool.run`."""


class StillsTool(Generic[Opened, Found]):
    """`edge.quantize.crew.Tool` of a work on images."""

    def __init__(self, engine: Opened, work: StillsWork[Opened, Found]) -> None:
        self.name = engine.name
        self._engine = engine
        self._work = work

    def images(self, items: Sequence[StillImage]) -> Sequence[StillImage]:
        return items

    def run(self, items: Sequence[StillImage], *, read: ReadImage, on_item: Callable[[], None]) -> Iterator[Found]:
        return self._work.run(self._engine, items, read=read, on_item=on_item)

    def close(self) -> None:
        self._engine.close()


# COCO's own protocol: every candidate counts, down to where it no longer changes the precision-recall curve.
SCORE_THRESHOLD = 0.001
IOU_THRESHOLD = 0.65
MAX_DETECTIONS = 300

Seen = tuple[ImageSize, Detections]


@dataclass(frozen=True, slots=True, kw_only=True)
class Detecting(StillsWork[Engine, Seen]):
    """The size of each image, and what is detected on it by COCO's protocol, in `precision`."""

    precision: Precision

    def engine(self) -> Engine:
        options = self.kind.options_type()
        request = EngineRequest(precision=self.precision, max_batch=self.max_batch, options=options)
        return build_and_load(self.kind, self.forms, request)

    def run(
        self, engine: Engine, items: Sequence[StillImage], *, read: ReadImage, on_item: Callable[[], None]
    ) -> Iterator[Seen]:
        detector = coco_detector(self.forms.spec)
        for placed, output in run_stills([image.path for image in items], engine, read=read):
            found = detector.detect(output, placed)
            for where, detections in zip(placed, found, strict=True):
                yield where.source, detections
                on_item()


def coco_detector(spec: ModelSpec) -> Detector:
    return Detector(
        head=head_of(spec, is_multi_label=True),
        score_threshold=SCORE_THRESHOLD,
        iou_threshold=IOU_THRESHOLD,
        max_detections=MAX_DETECTIONS,
        refuses_nan_of=spec.name,
    )
