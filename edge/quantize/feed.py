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
from edge.errors import DatasetError, EndOfStream, SourceError
from edge.media.images import StillSource, read_image
from edge.protocols import Engine, FrameSource, Runner
from edge.quantize.crew import ReadImage
from edge.quantize.forms import Forms
from edge.quantize.stills import StillImage
from edge.types import Detections, Frame, FrameHeader, ImageSize, Letterbox, ModelSpec, Precision, Preprocess, StreamId
from edge.vision.boxes import fill_border, paste
from edge.vision.heads import Detector, head_of

__all__ = [
    "Detecting",
    "Placed",
    "StillsTool",
    "StillsWork",
    "canvases_of",
    "coco_detector",
    "feed",
    "outputs_of",
    "run_stills",
    "still_source",
]

_READ_TIMEOUT_S = 60.0
Placed = tuple[FrameHeader, Letterbox]
T_co = TypeVar("T_co", covariant=True)


def run_stills(
    paths: Sequence[Path], engine: Runner[T_co], *, read: ReadImage = read_image
) -> Iterator[tuple[Sequence[Placed], T_co]]:
    """Yield what comes out of each canvas of images, and which of them were on its rows; in order.

    What is yielded is valid until the next step. `read` as in `StillSource`.
    Raises `DatasetError` if an image cannot be read; EngineError if an inference failed.
    """
    try:
        with contextlib.closing(still_source(paths, engine.preprocess, read=read)) as source:
            yield from feed(source, engine)
    except SourceError as error:  # a folder of images is data of the user's, not a stream that may come back
        raise DatasetError(error.problem, hint=error.hint or "mend or remove it") from error


def still_source(paths: Sequence[Path], preprocess: Preprocess, *, read: ReadImage = read_image) -> StillSource:
    """Return an opened source of images, in their order; `read` as in `StillSource`."""
    source = StillSource(StreamId("images"), paths, preprocess=preprocess, read=read)
    source.open()
    return source


def outputs_of(canvases: Iterable[NDArray[np.uint8]], engine: Runner[T_co]) -> Iterator[T_co]:
    """Yield what comes out of each canvas, uint8 (H, W, 3) RGB, run alone; valid until the next step.
    Raises `EngineError` if an inference failed.
    """
    for canvas in canvases:
        engine.canvases[0][0] = canvas
        engine.start(0, 1)
        yield engine.wait(0)


def feed(source: FrameSource, engine: Runner[T_co]) -> Iterator[tuple[Sequence[Placed], T_co]]:
    """Yield what comes out of each canvas, and which frames were on its rows; in order, until the source ends.

    What is yielded is valid until the next step; the other canvases are inferred meanwhile.
    Raises the EdgeError of source and engine; `EndOfStream` is the end of the iteration.
    """
    free, running = list(range(len(engine.canvases))), deque[tuple[int, list[Placed]]]()
    has_more = True
    while has_more or running:
        while has_more and free:
            filled = _fill(source, engine, free[0])
            has_more = len(filled) == engine.max_batch
            if filled:
                engine.start(free[0], len(filled))
                running.append((free.pop(0), filled))
        if running:
            index, filled = running.popleft()
            yield filled, engine.wait(index)
            free.append(index)


def canvases_of(source: FrameSource, preprocess: Preprocess) -> Iterator[NDArray[np.uint8]]:
    """Yield a canvas of its own, uint8 (H, W, 3) RGB, for each frame of a finite, opened source.
    Raises `SourceError` if a frame cannot be read.
    """
    size = preprocess.size
    with contextlib.suppress(EndOfStream):
        while True:
            frame = _read(source)
            row = np.empty((size.height, size.width, 3), np.uint8)
            _place(frame, row, preprocess)
            yield row


def _fill(source: FrameSource, engine: Runner[T_co], index: int) -> list[Placed]:
    canvas = engine.canvases[index]
    placed: list[Placed] = []
    while len(placed) < engine.max_batch:
        try:
            frame = _read(source)
        except EndOfStream:
            break
        _place(frame, canvas[len(placed)], engine.preprocess)
        placed.append((frame.header, frame.letterbox))
    return placed


def _read(source: FrameSource) -> Frame:
    frame = source.read(_READ_TIMEOUT_S)
    if frame is None:
        raise SourceError(f"{source.stream}: no frame within {_READ_TIMEOUT_S:.0f} s")
    return frame


def _place(frame: Frame, row: NDArray[np.uint8], preprocess: Preprocess) -> None:
    fill_border(row, frame.letterbox, pad_value=preprocess.pad_value)
    paste(frame.image, row, frame.letterbox)


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
            found = detector.detect(output, [letterbox for _, letterbox in placed])
            for (header, _), detections in zip(placed, found, strict=True):
                yield header.source_size, detections
                on_item()


def coco_detector(spec: ModelSpec) -> Detector:
    return Detector(
        head=head_of(spec, is_multi_label=True),
        score_threshold=SCORE_THRESHOLD,
        iou_threshold=IOU_THRESHOLD,
        max_detections=MAX_DETECTIONS,
        refuses_nan_of=spec.name,
    )
