"""The interfaces at which rooms meet; all but `GraphingEngine` have two implementations and a contract test."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from edge.types import Detections, EngineOutput, Frame, Observed, Preprocess, SourceCounts, StreamId, Tracks

__all__ = [
    "ActivationEngine",
    "AveragingEngine",
    "Engine",
    "FrameSource",
    "GraphingEngine",
    "ObservingEngine",
    "Publisher",
    "Runner",
    "TopicMessage",
    "Tracker",
]


T_co = TypeVar("T_co", covariant=True)


class Runner(Protocol[T_co]):
    """Turns the first `count` rows of one of its own canvases into what `wait` returns, asynchronously.

    It owns normalisation and layout. `canvases` are uint8 (max_batch, H, W, 3) RGB in memory that is read directly; the
    caller fills rows, calls `start(index, count)`, may fill another canvas meanwhile, and calls `wait(index)`. The
    canvas may be filled again once `wait` has returned; what it returned stays valid until the next
    `start(index, ...)`. One thread at a time.
    """

    @property
    def name(self) -> str:
        """Kind and version, as `KIND 2026.4.1`."""

    @property
    def preprocess(self) -> Preprocess:
        """The preprocess that is built in."""

    @property
    def max_batch(self) -> int:
        """Rows of each canvas."""

    @property
    def canvases(self) -> tuple[NDArray[np.uint8], ...]:
        """Two or more canvases, border value everywhere at first."""

    def start(self, index: int, count: int) -> None:
        """Begin inference of rows 0..count-1 of canvas `index`.
        Raises `TensorMismatchError` if there is no such canvas, or no such rows.
        """

    def wait(self, index: int) -> T_co:
        """Return what came of the last `start(index, count)`. Raises `EngineError` if the inference failed."""

    def close(self) -> None:
        """Free memory and threads; further calls are errors."""


class Engine(Runner[EngineOutput], Protocol):
    """Runs a model; `wait` returns its raw output, float32 (count, ...), or the candidates of it.

    Which of the two may change from batch to batch, and `edge.vision` reads the same detections out of both. Only an
    engine that was made with a score threshold (`edge.engine.kind.EngineRequest`) gives candidates.
    """


@runtime_checkable
class GraphingEngine(Protocol):
    """Gives work to its unit as a graph, where it can."""

    def singly(self) -> AbstractContextManager[None]:
        """Give it singly meanwhile."""
        ...


class ActivationEngine(Runner[Mapping[str, NDArray[np.float32]]], Protocol):
    """Runs a model and gives out tensors from inside the graph beside the output.

    `wait` returns them by their names in the ONNX file, float32 (count, ...), or (entries x count, ...) where attention
    folds areas of each image into the batch. The values of a row depend on its pixels alone: not on the rows beside it,
    and not on how many there are.
    """


class ObservingEngine(Runner[Mapping[str, Observed]], Protocol):
    """Runs a model and gives what a calibration looks at, of tensors that were named when the engine was made.

    `wait` returns by their names in the ONNX file: of those to be counted the values, as an `ActivationEngine` would,
    or the counts of them, where the engine counts on its device; of those whose largest |x| alone was asked for, that:
    float32 (count,), NaN or infinite where the tensor is. Other names are let be.
    """


class AveragingEngine(Runner[Mapping[str, NDArray[np.float64]]], Protocol):
    """Runs a model and gives the mean of each channel of tensors that were named when the engine was made.

    `wait` returns them by their names in the ONNX file, float64 (count, C) of tensors (count, C, ...), and no
    others; of several entries of a row it is the mean of all. They depend on the pixels of a row alone, and are the
    same bits every time.
    """


class FrameSource(Protocol):
    """Gives the frames of one stream in order, scaled to fit the model, holding only a few of them.

    A live source that is read too slowly lets the older frames go and counts them; another one waits for its reader.
    After `EndOfStream` or another `SourceError` it can only be closed. `close` may be called from another thread, and
    twice.
    """

    @property
    def stream(self) -> StreamId: ...

    @property
    def is_live(self) -> bool:
        """Whether frames come at their own pace, so that the newest one wins."""

    def open(self) -> None:
        """Start reading. Raises `SourceError` when that is known to be impossible at once."""

    def read(self, timeout_s: float) -> Frame | None:
        """Return the next frame, or None when none came in time. The frame's image is valid until the next call.
        Raises `EndOfStream` after the last frame of a finite source; `SourceError` when the stream broke.
        """

    def counts(self) -> SourceCounts:
        """Return what was decoded and dropped so far; final once closed."""

    def close(self) -> None:
        """Stop and free everything."""


class Tracker(Protocol):
    """Says of each detection which object of the stream it shows; no number is ever used for two objects.

    An object gets its number in the second frame that shows it. Frames are given in order, each once; one thread at a
    time.
    """

    def update(self, detections: Detections, *, time_ns: int) -> Tracks:
        """Take in the detections of the next frame; `time_ns` is of the stream and grows from frame to frame."""

    def reset(self) -> tuple[int, ...]:
        """Give up all objects and return their numbers: what comes next has nothing to do with what was."""

    @property
    def highest(self) -> int:
        """The highest number that was given so far, or is not to be given."""

    def skip(self, highest: int) -> None:
        """Give no number up to `highest`: another tracker of the stream has used them. Before the first `update`."""


@runtime_checkable
class TopicMessage(Protocol):
    """A wire message that knows where it belongs."""

    @property
    def topic(self) -> str:
        """Topic below the device's own level, e.g. `streams/east/detections`."""

    @property
    def is_retained(self) -> bool:
        """Whether the broker keeps it for later subscribers."""

    @property
    def expiry_s(self) -> int | None:
        """After how long it is of no use to anybody; None: never."""

    def encode(self) -> bytes:
        """Return the JSON text."""


class Publisher(Protocol):
    """Takes messages without ever blocking the caller, keeps their order, and accounts for each of them."""

    @property
    def is_broken(self) -> bool:
        """Whether nothing will ever be delivered again."""

    @property
    def alarm(self) -> str | None:
        """The fault that makes the device degraded: a disk, a broker that stays away; None: there is none."""

    def publish(self, message: TopicMessage) -> None:
        """Accept a message, or let an older one go and count it."""

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything accepted is delivered; return whether it is."""

    def by_output(self) -> Mapping[str, Mapping[str, int]]:
        """Return by the name of each way out, e.g. `mqtt`, `jsonl`, what it counts.

        `accepted`, `delivered`, `waiting`, `dropped` balance: accepted = delivered + waiting + dropped.
        """

    def close(self) -> None:
        """Say goodbye where the protocol has one, and free everything."""
