"""Still images through whatever runs canvases: while some are inferred, others are filled and read.

All that the room measures goes through here: detections, tensors from inside, a float model and its INT8 one as a pair.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from edge.engine.kind import EngineKind, EngineRequest, build_and_load
from edge.errors import DatasetError, EndOfStream, SourceError
from edge.media.images import read_image
from edge.media.stills import StillSource
from edge.protocols import Engine, FrameSource, Runner
from edge.quantize.crew import ReadImage
from edge.quantize.forms import Forms
from edge.quantize.stills import StillImage
from edge.types import Detections, Frame, FrameHeader, ImageSize, Letterbox, ModelSpec, Precision, Preprocess, StreamId
from edge.vision.heads import Detector, head_of
from edge.vision.letterbox import fill_border, paste

__all__ = [
    "Closable",
    "Detecting",
    "Placed",
    "StillsTool",
    "StillsWork",
    "canvases_of",
    "coco_detector",
    "feed",
    "outputs_of",
    "run_stills",
]

_READ_TIMEOUT_S = 60.0
Placed = tuple[FrameHeader, Letterbox]
T_co = TypeVar("T_co", covariant=True)


def run_stills(
    paths: Sequence[Path], engine: Runner[T_co], *, read: Callable[[Path], NDArray[np.uint8]] = read_image
) -> Iterator[tuple[Sequence[Placed], T_co]]:
    """Yield what comes out of each canvas of images, and which of them were on its rows; in order.

    What is yielded is valid until the next step. `read` as in `StillSource`.
    Raises `DatasetError` if an image cannot be read; EngineError if an inference failed.
    """
    source = StillSource(StreamId("images"), paths, preprocess=engine.preprocess, read=read)
    try:
        source.open()
        yield from feed(source, engine)
    except SourceError as error:  # a folder of images is data of the user's, not a stream that may come back
        raise DatasetError(error.problem, hint=error.hint or "mend or remove it") from error
    finally:
        source.close()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StillsWork:
    """Common part of works on images (`edge.quantize.crew.CrewWork`), beside `open`."""

    kind: EngineKind
    forms: Forms
    max_batch: int  # images on one canvas

    @property
    def rows(self) -> int:
        return max(self.max_batch, self.forms.spec.batch or 1)

    @property
    def is_small(self) -> bool:
        """No: an engine takes all cores."""
        return False


class Closable(Protocol):
    """Base of every engine."""

    @property
    def name(self) -> str:
        """Kind and version."""

    def close(self) -> None: ...


Opened = TypeVar("Opened", bound=Closable)


class StillsTool(Generic[Opened]):
    """Common part of the tools of images (`edge.quantize.crew.Tool`), beside `run`."""

    def __init__(self, engine: Opened) -> None:
        self._engine = engine

    @property
    def name(self) -> str:
        return self._engine.name

    def images(self, items: Sequence[StillImage]) -> Sequence[StillImage]:
        return items

    def close(self) -> None:
        self._engine.close()


# COCO's own protocol: every candidate counts, down to where it no longer changes the precision-recall curve.
SCORE_THRESHOLD = 0.001
IOU_THRESHOLD = 0.65
MAX_DETECTIONS = 300

Seen = tuple[ImageSize, Detections]


@dataclass(frozen=True, slots=True, kw_only=True)
class Detecting(StillsWork):
    """The size of each image, and what is detected on it by COCO's protocol, in `precision`."""

    precision: Precision

    def open(self) -> _Detecting:
        options = self.kind.options_type()
        request = EngineRequest(precision=self.precision, max_batch=self.max_batch, options=options)
        return _Detecting(build_and_load(self.kind, self.forms, request), coco_detector(self.forms.spec))


class _Detecting(StillsTool[Engine]):
    def __init__(self, engine: Engine, detector: Detector) -> None:
        super().__init__(engine)
        self._detector = detector

    def run(self, items: Sequence[StillImage], *, read: ReadImage, on_item: Callable[[], None]) -> Iterator[Seen]:
        for placed, output in run_stills([image.path for image in items], self._engine, read=read):
            found = self._detector.detect(output, [letterbox for _, letterbox in placed])
            for (header, _), detections in zip(placed, found, strict=True):
                yield header.source_size, detections
                on_item()


def coco_detector(spec: ModelSpec) -> Detector:
    return Detector(
        head=head_of(spec, is_multi_label=True),
        score_threshold=SCORE_THRESHOLD,
        iou_threshold=IOU_THRESHOLD,
        max_detections=MAX_DETECTIONS,
    )
