"""The table's scales on their implicit way into TensorRT: as a calibration cache, or as ranges of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edge.engine.tensorrt.binding import TensorRtLibrary
from edge.engine.tensorrt.build.network import network_tensors
from edge.errors import EngineError

if TYPE_CHECKING:
    from edge.engine.tensorrt.binding import IBuilderConfig, INetworkDefinition

__all__ = ["CacheAnswer", "give_cache", "set_ranges"]

CALIBRATOR = "EntropyCalibration2"  # the one whose scales a DLA core takes, too


class CacheAnswer:
    """What the calibrator that only hands over a cache was asked for; it has to outlive the build."""

    def __init__(self, calibrator: Any) -> None:
        self.calibrator = calibrator

    def require_taken(self, name: str) -> None:
        """Refuse a build for which TensorRT wanted to calibrate itself: its scales are then not the table's.

        Raises:
            EngineError: then, or if it never asked for the cache.
        """
        if self.calibrator.batches_asked_for:
            raise EngineError(
                f"{name}: TensorRT did not take the calibration cache, and asked for images instead",
                hint="use engine.route: implicit-ranges, or qdq-weak",
            )
        if not self.calibrator.reads:
            raise EngineError(
                f"{name}: TensorRT did not ask for the calibration cache", hint="use engine.route: qdq-weak"
            )


def give_cache(library: TensorRtLibrary, config: IBuilderConfig, cache: bytes) -> CacheAnswer:
    """Give `cache`, with the header of this library, to a build."""
    config.int8_calibrator = calibrator = _calibrator(library, cache)
    return CacheAnswer(calibrator)


def _calibrator(library: TensorRtLibrary, cache: bytes) -> Any:
    base: Any = library.trt.IInt8EntropyCalibrator2

    class _Calibrator(base):  # type: ignore[misc]  # its base is known when the library is
        """Hands over the cache; has no images, and remembers having been asked for some."""

        def __init__(self) -> None:
            base.__init__(self)
            self.reads = 0
            self.batches_asked_for = 0

        def get_batch_size(self) -> int:
            return 1

        def get_batch(self, names: list[str]) -> None:
            self.batches_asked_for += 1

        def read_calibration_cache(self) -> bytes:
            self.reads += 1
            return cache

        def write_calibration_cache(self, content: Any) -> None:
            """Keep nothing: the table is where scales come from."""

    return _Calibrator()


def set_ranges(network: INetworkDefinition, ranges: Mapping[str, float], name: str) -> None:
    """Set the range of each tensor that the table knows, `ranges` being the largest absolute values.

    Raises:
        EngineError: naming the tensor whose range TensorRT refuses.
    """
    for tensor in network_tensors(network):
        if tensor.name in ranges and not tensor.set_dynamic_range(-ranges[tensor.name], ranges[tensor.name]):
            raise EngineError(f'{name}: TensorRT refuses the range {ranges[tensor.name]:g} of "{tensor.name}"')
