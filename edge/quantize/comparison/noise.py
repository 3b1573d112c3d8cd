"""What is lost in each layer, image by image: who does the work, and what is kept of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from edge.calibrate.histogram import Histogram
from edge.calibrate.observer import Observer, merge_all
from edge.evaluate.layers import ComparedLayer, LayerError, LayerErrors, LayerTimes
from edge.quantize.comparison.both import Both, Tensors
from edge.quantize.comparison.layers import watched_tensors
from edge.quantize.crew import ReadImage
from edge.quantize.feed import run_stills
from edge.quantize.stills import StillImage
from edge.quantize.stills_tool import StillsTool, StillsWork

__all__ = ["Comparing", "Noise", "Part"]

Inputs = Mapping[str, Histogram]
Part = LayerErrors | Inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparing(StillsWork):
    """The errors of the layers on each canvas, and behind the last one the histograms of what they read.

    Attributes:
        layers: to be compared.
        with_copies: the model in INT8 with its layers in float beside them.
    """

    layers: tuple[ComparedLayer, ...]
    with_copies: bytes

    def open(self) -> _Comparer:
        """Return both models."""
        copies = tuple(layer.float_copy for layer in self.layers if layer.float_copy is not None)
        both = Both(self.kind, self.forms, self.with_copies, watched_tensors(self.layers), inside=copies)
        return _Comparer(both, self.layers)


class _Comparer(StillsTool[Both]):
    def __init__(self, both: Both, layers: Sequence[ComparedLayer]) -> None:
        super().__init__(both)
        self._layers = layers
        self._read = tuple(dict.fromkeys(layer.input_ for layer in layers))

    def run(self, items: Sequence[StillImage], *, read: ReadImage, on_item: Callable[[], None]) -> Iterator[Part]:
        observer = Observer()
        for placed, (exact, rounded) in run_stills([image.path for image in items], self._engine, read=read):
            for name in self._read:
                observer.observe(name, exact[name])
            yield self._errors(exact, rounded)
            for _ in placed:
                on_item()
        yield observer.histograms

    def _errors(self, exact: Tensors, rounded: Tensors) -> LayerErrors:
        errors = _none_yet(self._layers)
        for name, values in exact.items():
            errors.add(name, values, rounded[name])
        for layer in self._layers:
            if layer.float_copy is not None:
                errors.add(layer.float_copy, rounded[layer.float_copy], rounded[layer.output])
        return errors


class Noise:
    """What was seen of layers in both models.

    Attributes:
        inputs: |x| of each activation that a layer reads, in float.
    """

    def __init__(self, layers: Sequence[ComparedLayer]) -> None:
        self._layers = layers
        self.errors = _none_yet(layers)
        self.inputs: Inputs = {}

    def join(self, part: Part) -> None:
        """Add what was found, in the order of the images."""
        if isinstance(part, LayerErrors):
            self.errors.join(part)
        else:
            self.inputs = merge_all(self.inputs, part)

    def of_layers(self, times: Mapping[str, LayerTimes]) -> tuple[LayerError, ...]:
        """Return what INT8 does to each layer."""
        macs = sum(layer.macs for layer in self._layers)
        return tuple(self.errors.result(one, all_macs=macs, times=times.get(one.name)) for one in self._layers)


def _none_yet(layers: Sequence[ComparedLayer]) -> LayerErrors:
    return LayerErrors({one.input_: one.quantization for one in layers if one.quantization is not None})
