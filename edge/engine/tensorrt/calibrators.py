"""TensorRT's own calibrators, on a workstation: they look at batches of images and write a calibration cache.

Entropy and Legacy can calibrate after layers are fused, which loses names of the ONNX file: that is switched off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.engine.averaging import model_input
from edge.engine.cuda.gpu import HostArray
from edge.engine.kind import ModelForms
from edge.engine.tensorrt.binding import MessageLog, TensorRtLibrary, make_logger
from edge.engine.tensorrt.build.config import make_config
from edge.engine.tensorrt.build.network import parsed_network, set_shapes
from edge.engine.tensorrt.options import Options
from edge.engine.tensorrt.plan import TensorrtDevice
from edge.engine.tensorrt.routes import Route
from edge.errors import DatasetError, EngineError
from edge.reading import available_bytes
from edge.types import Precision, Preprocess

__all__ = ["CALIBRATORS", "written_cache"]

CALIBRATORS = {
    "entropy2": "IInt8EntropyCalibrator2",
    "minmax": "IInt8MinMaxCalibrator",
    "entropy": "IInt8EntropyCalibrator",
    "legacy": "IInt8LegacyCalibrator",
}
"""TensorRT's classes, by their names on the command line."""

_AFTER_FUSION = ("entropy", "legacy")
_QUANTILE, _CUTOFF = 0.9999, 1.0  # of `legacy`: its usual ones
_FAST = 0  # the engine is thrown away


@dataclass(slots=True)
class _Feed:
    """State shared with TensorRT's callbacks: an exception cannot travel through TensorRT, so it is kept."""

    batches: Iterator[NDArray[np.uint8]]
    memory: HostArray  # float32 (B, 3, H, W)
    preprocess: Preprocess
    failure: BaseException | None = None
    written: list[bytes] = field(default_factory=list)

    def next_address(self) -> list[int] | None:
        try:
            batch = next(self.batches, None)
            if batch is None:
                return None
            if batch.shape[0] != self.memory.array.shape[0]:
                raise DatasetError(f"a batch has {batch.shape[0]} images, the first one {self.memory.array.shape[0]}")
            self.memory.array[:] = model_input(batch, self.preprocess)
        except BaseException as error:
            self.failure = error
            return None
        return [self.memory.address]


def written_cache(
    library: TensorRtLibrary,
    device: TensorrtDevice,
    model: ModelForms,
    calibrator: str,
    batches: Iterator[NDArray[np.uint8]],
    make_memory: Callable[[tuple[int, ...]], HostArray],
) -> bytes:
    """Return the cache that a calibrator writes of the float model.

    Args:
        model: its float form is looked at.
        calibrator: one of `CALIBRATORS`.
        batches: uint8 (B, H, W, 3) RGB canvases, one B for all.
        make_memory: makes the memory of one batch, given its shape (B, 3, H, W).

    Raises `EngineError` if the library has no calibrators, cannot read the model, or wrote no cache; `DatasetError` if
    there is no batch, or they differ in size.
    """
    _require_calibrators(library)
    first = next(batches, None)
    if first is None:
        raise DatasetError("there are no images to calibrate on", hint="name a folder that holds some")
    spec, size = model.spec, model.spec.preprocess.size
    if spec.batch not in (None, first.shape[0]):
        raise DatasetError(f"{spec.name} takes batches of {spec.batch}, got {first.shape[0]} images")
    memory = make_memory((first.shape[0], 3, size.height, size.width))
    feed = _Feed(chain([first], batches), memory, spec.preprocess)
    try:
        log = _run(library, device, model, calibrator, feed)
    finally:
        memory.close()
    if feed.failure is not None:
        raise feed.failure
    if not feed.written:
        raise EngineError(f"{spec.name}: TensorRT's calibrator {calibrator} wrote no cache: {log.reason()}")
    return feed.written[-1]


def _require_calibrators(library: TensorRtLibrary) -> None:
    if not library.abilities.has_calibrators:
        raise EngineError(
            f"{library.name} {library.version} has no calibrators; they ended with TensorRT 10",
            hint="calibrate by --method, which observes on every engine, or install tensorrt-cu12<11",
        )


def _run(
    library: TensorRtLibrary, device: TensorrtDevice, model: ModelForms, calibrator: str, feed: _Feed
) -> MessageLog:
    log, trt = MessageLog(), library.trt
    logger = make_logger(library, log)
    free_bytes = available_bytes()
    builder = trt.Builder(logger)
    name, batch = model.spec.name, int(feed.memory.array.shape[0])
    content = model.float_model()
    network = parsed_network(library, builder, logger, content, name=name, is_strongly_typed=False)
    options = Options(optimization_level=_FAST)
    route, precision = Route.IMPLICIT_CACHE, Precision.INT8
    config = make_config(library, builder, device, options, route=route, precision=precision, free_bytes=free_bytes)
    if calibrator in _AFTER_FUSION:
        config.set_quantization_flag(trt.QuantizationFlag.CALIBRATE_BEFORE_FUSION)
    set_shapes(builder, config, network, model.spec, max_batch=batch)
    config.int8_calibrator = made = _calibrator(library, calibrator, feed, batch)
    builder.build_serialized_network(network, config)
    del made  # TensorRT holds no reference: it had to live until here
    return log


def _calibrator(library: TensorRtLibrary, name: str, feed: _Feed, batch: int) -> Any:
    base: Any = getattr(library.trt, CALIBRATORS[name])

    class _Calibrator(base):  # type: ignore[misc]  # its base is known when the library is
        def __init__(self) -> None:
            base.__init__(self)

        def get_batch_size(self) -> int:
            return batch

        def get_batch(self, names: list[str]) -> list[int] | None:
            return feed.next_address()

        def read_calibration_cache(self) -> None:
            """Give none: it is to look at the images."""

        def write_calibration_cache(self, content: Any) -> None:
            feed.written.append(bytes(content))

        def get_quantile(self) -> float:
            return _QUANTILE

        def get_regression_cutoff(self) -> float:
            return _CUTOFF

        def read_histogram_cache(self, length: int) -> None:
            """Give none, as above."""

        def write_histogram_cache(self, content: Any, length: int) -> None:
            """Keep none: a run calibrates once."""

    return _Calibrator()
