"""TensorRT's own profile of the layers on the GPU, under the names of the ONNX file.

TensorRT's layer is the unit: what it fused is timed as one, and never shared out among the nodes that went into it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edge.engine.cuda.binding import cuda_driver, cuda_errors
from edge.engine.cuda.gpu import HostArray
from edge.engine.kind import QdqForm, nodes_of_lone_layers
from edge.engine.tensorrt.binding import TensorRtLibrary
from edge.engine.tensorrt.build.account import inspector_text, layers_of
from edge.engine.tensorrt.inside import StepRunner
from edge.engine.tensorrt.plan import PlanHeader
from edge.errors import CalibrationError, EngineError
from edge.model.qdq.insert import QdqModel
from edge.types import ModelSpec

if TYPE_CHECKING:
    from edge.engine.tensorrt.binding import IProfiler

__all__ = ["GivenModel", "Origins", "TimedLayers", "nodes_of_layer"]


class GivenModel:
    """`edge.engine.kind.ModelForms` of which there is one form.

    Args:
        spec: what the model is; quantized where the file carries Q/DQ pairs.
        content: the file.
    """

    ranges: Mapping[str, float] | None = None
    keep_float: tuple[str, ...] = ()
    has_centres = False
    beyond_ranges: tuple[str, ...] = ()

    def __init__(self, spec: ModelSpec, content: bytes) -> None:
        self.spec = spec
        self._content = content

    def float_model(self, *, is_float16: bool = False) -> bytes:
        """Return the file; only in the precision that it has is it asked for."""
        assert not is_float16, "a model that is given as it is has no other type"
        return self._content

    def qdq_model(self, form: QdqForm) -> QdqModel:
        """Return the file, in whichever form its pairs are: what a TensorRT does not take, it refuses by name."""
        return QdqModel(model=self._content, quantized_nodes=(), float_nodes=(), mac_share_int8=0.0, ranges={})

    def calibration_cache(self, *, version: int, calibrator: str) -> bytes:
        raise CalibrationError(f"{self.spec.name}: there is no table to write a calibration cache of")


# TensorRT fuses, and splits: the unit that it times is a layer of its own. Since 8.6 its parser writes into each layer
# which node it came from, and the builder keeps that through its fusions: `[ONNX Layer: a]`, joined by the characters
# 0x1E and 0x1F. Where there is no such entry the layer's name is taken apart. What neither tells is not guessed.
_BEGIN, _END = "[ONNX Layer: ", "]"
_SEPARATORS = re.compile("[\x1e\x1f]")
# "a + b": one behind the other; "a || b": convolutions of one input, made one; "PWN(a, b)": what is pointwise.
_JOINED = re.compile(r" \+ | \|\| |, |PWN\(")
_UNNAMED = "node_of_"  # what the parser puts before an output, for a node without a name
_ADDED = ("Reformatting CopyNode",)  # named after the layer that it is for
_REGION = "{ForeignNode["  # of Myelin, or a DLA core: from its first node to its last, those between are not told


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOrigin:
    """A layer of an engine."""

    kind: str  # what it is there, with its tactic where that is known: `CaskConvolution sm80_xmma_fprop...`
    nodes: frozenset[str]  # of the ONNX file, of those that were asked for


class Origins:
    """The layers of an engine, as its inspector tells them.

    Args:
        text: what the inspector tells as JSON. TensorRT 8 to 11 differ, and an engine that was not built to be looked
            into has names only.
        names: of nodes of the ONNX file; those without a name are called after their first output.
    """

    def __init__(self, text: str, names: Collection[str]) -> None:
        self._names = frozenset(names)
        self._known: dict[str, LayerOrigin] = {}
        for name, kind, metadata in _told(text):
            before = self._known[name].nodes if name in self._known else frozenset()
            self._known[name] = LayerOrigin(kind=kind, nodes=before | self._nodes(name, metadata))

    def of(self, layer: str) -> LayerOrigin:
        """Return what a layer is, of several with its name together; by its name alone where the inspector has none."""
        return self._known.get(layer) or LayerOrigin(kind="layer", nodes=self._nodes(layer, ""))

    def _nodes(self, layer: str, metadata: str) -> frozenset[str]:
        told = nodes_of_layer(layer, metadata)
        return self._names.intersection(told) | self._names.intersection(one.removeprefix(_UNNAMED) for one in told)


def nodes_of_layer(name: str, metadata: str) -> list[str]:
    """Return the nodes that a layer came from, as its entry tells, else its name; none where neither tells them all."""
    if name.startswith(_ADDED):
        return []
    if metadata:
        parts = _SEPARATORS.split(metadata)
        return [one[len(_BEGIN) : -len(_END)] for one in parts if one.startswith(_BEGIN) and one.endswith(_END)]
    if _REGION in name:
        return []
    return [part.strip().rstrip(")") for part in _JOINED.split(name) if part]


def _told(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, kind and metadata of each layer."""
    for layer in layers_of(text):
        if isinstance(layer, str):
            yield layer, "layer", ""
        elif isinstance(layer, Mapping):
            kind = " ".join(str(layer[key]) for key in ("LayerType", "TacticName") if layer.get(key))
            yield str(layer.get("Name", "?")), kind or "layer", str(layer.get("Metadata", ""))


class TimedLayers(StepRunner):
    """`edge.engine.kind.LayerProfiler`: runs a plan with one batch at a time, and holds the GPU until `close`.

    `layers`: names of nodes in the ONNX file.

    Raises `EngineError` if there is no driver, TensorRT does not take the plan, or memory runs out.
    """

    def __init__(
        self, library: TensorRtLibrary, header: PlanHeader, plan: bytes, spec: ModelSpec, layers: Collection[str]
    ) -> None:
        self._layers = tuple(layers)
        self._taken_s: dict[str, float] = {}
        self._profiler: IProfiler | None = None
        self._runs: list[dict[str, float]] = []
        super().__init__(library, header, plan, spec, max_batch=spec.batch or 1, canvases=1)

    def warm_up(self, images: NDArray[np.uint8]) -> None:
        self._layer_seconds(images)

    def run(self, images: NDArray[np.uint8]) -> None:
        """Raises `EngineError` if the inference failed, or TensorRT reports nothing of it."""
        self._runs.append(self._layer_seconds(images))

    def times(self) -> dict[str, NDArray[np.float64]]:
        """Return seconds for one frame in each run, float64 (runs,), by layer.

        A layer that TensorRT cut into several is their sum. It is left out where one of them is another one of the
        layers, too, and where no layer of TensorRT's is known to be it.
        """
        names = dict.fromkeys(name for run in self._runs for name in run)
        lone = nodes_of_lone_layers({name: self._origins.of(name).nodes for name in names})
        return {
            layer: np.array([sum(run.get(name, 0.0) for name in lone[layer]) for run in self._runs]) / self.max_batch
            for layer in self._layers
            if layer in lone
        }

    def _layer_seconds(self, images: NDArray[np.uint8]) -> dict[str, float]:
        """Infer once with TensorRT's profiler, and return what it reports by layer, of equal names the sum.

        `images`: uint8 (rows, H, W, 3) RGB.
        """
        self._require_open()
        self._canvases[0].array[:] = images
        with self._at_work(), cuda_errors("profiling an inference"):
            if self._profiler is None:
                self._profiler = _make_profiler(self._library, self._taken_s)
                self._execution.report_to(self._profiler)
            self._taken_s.clear()
            self._bring(0, self._rows)
            output = self._outputs[0]
            address = self._infer(0)[output.name]
            cuda_driver().memcpy_dtoh_async(self._host.array, address, self._order.raw)
            self._order.synchronize()
            self._execution.report()
            if not self._taken_s:
                raise EngineError("TensorRT's profiler reported no layer")
            return dict(self._taken_s)

    def _open(self, header: PlanHeader, plan: bytes, canvases: int) -> None:
        super()._open(header, plan, canvases)
        self._origins = Origins(inspector_text(self._library, self._loaded.engine), self._layers)
        output = self._outputs[0]
        self._host = self._owner.keep(HostArray((self._rows, *output.row_shape), output.dtype, is_mapped=False))


def _make_profiler(library: TensorRtLibrary, taken_s: dict[str, float]) -> Any:
    """Return what TensorRT tells its layers' times, which adds them to `taken_s`."""
    base: Any = library.trt.IProfiler

    class _Profiler(base):  # type: ignore[misc]  # its base is known when the library is
        def __init__(self) -> None:
            base.__init__(self)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            taken_s[layer_name] = taken_s.get(layer_name, 0.0) + 1e-3 * ms

    return _Profiler()
