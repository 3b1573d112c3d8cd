"""ONNX Runtime as a kind: a plan is a word and the model."""

import dataclasses
import struct
import time

import numpy as np
import onnx
from edge.engine.onnxruntime.facts import FACTS
from edge.engine.onnxruntime.options import OnnxRuntimeOptions

from edge.engine.averaging import Averaging
from edge.engine.kind import DoctorFinding, Plan, QdqForm
from edge.errors import EngineError
from edge.types import Precision
from tests.support.onnxruntime_engine import OnnxRuntimeActivations, OnnxRuntimeCandidates, OnnxRuntimeEngine

_MARK = b"ONNX Runtime plan\n"


class _OnnxRuntime:
    name = FACTS.name
    options_type = OnnxRuntimeOptions

    def build(self, model, request, *, on_progress=lambda phase, share: None):
        if request.precision is Precision.FP16:
            raise EngineError("precision fp16: ONNX Runtime computes fp32 and int8 here", hint="use fp32 or int8")
        on_progress("optimize", 0.5)
        is_int8 = request.precision is Precision.INT8
        content = model.qdq_model(QdqForm()).model if is_int8 else model.float_model()
        on_progress("optimize", 1.0)
        return Plan(data=_MARK + content, report={"route": "session", "why": "there is one way only"})

    def load(self, plan, spec, request):
        if not plan.startswith(_MARK):
            raise EngineError(f"{spec.name}: this is no plan of ONNX Runtime", hint="build it again")
        spec = dataclasses.replace(spec, is_quantized=request.precision is Precision.INT8)
        content, optimize = plan[len(_MARK) :], request.options.optimize
        try:
            return _engine(spec, request, content=content, optimize=optimize)
        except Exception as error:  # its errors have no common base but Exception
            raise EngineError(f"{spec.name}: ONNX Runtime cannot load it: {error}") from error

    def activations(self, spec, tensors, *, max_batch=1, content=None):
        return OnnxRuntimeActivations(spec, tensors, max_batch=max_batch, content=content)

    def observing(self, spec, tensors, *, largest_of=(), max_batch=1, content=None):
        return OnnxRuntimeActivations(spec, tensors, largest_of=tuple(largest_of), max_batch=max_batch, content=content)

    def averaging(self, spec, tensors, *, max_batch=1, content=None):
        return Averaging(OnnxRuntimeActivations(spec, tensors, max_batch=max_batch, content=content), tensors)

    calibrators = ("minmax",)

    def calibrator_cache(self, model, calibrator, batches):
        """Largest |x| of every tensor, as TensorRT's MinMax has it."""
        spec, names = model.spec, [model.spec.input_name, *_float_tensors(model.float_model())]
        largest = dict.fromkeys(names, 0.0)
        for batch in batches:
            engine = OnnxRuntimeActivations(spec, names, max_batch=len(batch), content=model.float_model())
            engine.canvases[0][:] = batch
            engine.start(0, len(batch))
            for name, values in engine.wait(0).items():
                largest[name] = max(largest[name], float(np.abs(values).max()))
        lines = [f"{name}: {struct.pack('>f', amax / 127).hex()}" for name, amax in largest.items()]
        header = "TRT-100300-MinMaxCalibration"
        return "\n".join([header, *lines, "(Unnamed Layer* 4) [Constant]_output: 0", ""]).encode()

    def profiler(self, spec, layers, *, content=None):
        return _Profiler(OnnxRuntimeEngine(spec, max_batch=spec.batch or 1, content=content), layers)

    def examine(self):
        yield DoctorFinding(name="onnxruntime", is_there=True, is_needed=False, detail=FACTS.versions()["onnxruntime"])


def _float_tensors(content):
    model = onnx.shape_inference.infer_shapes(onnx.load_from_string(content))
    known = {one.name: one.type.tensor_type.elem_type for one in (*model.graph.value_info, *model.graph.output)}
    made = [name for node in model.graph.node for name in node.output]
    return [name for name in made if known.get(name) == onnx.TensorProto.FLOAT]


def _engine(spec, request, **settings):
    if request.score_threshold is None:
        return OnnxRuntimeEngine(spec, max_batch=request.max_batch, **settings)
    return OnnxRuntimeCandidates(spec, max_batch=request.max_batch, score_threshold=request.score_threshold, **settings)


class _Profiler:
    """Knows only what the whole takes, so it can tell nothing of a layer unless there is one alone."""

    def __init__(self, engine, layers):
        self._engine, self._layers, self._seconds = engine, tuple(layers), []

    def warm_up(self, images):
        self._engine.canvases[0][: len(images)] = images
        self._engine.start(0, len(images))
        self._engine.wait(0)

    def run(self, images):
        began = time.perf_counter()
        self.warm_up(images)
        self._seconds.append((time.perf_counter() - began) / len(images))

    def times(self):
        return {self._layers[0]: np.array(self._seconds)} if len(self._layers) == 1 else {}

    def close(self):
        self._engine.close()


KIND = _OnnxRuntime()
