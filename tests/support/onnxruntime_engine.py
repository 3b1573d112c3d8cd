"""An engine on ONNX Runtime with the preprocess written out in numpy: the independent reference of our own engines."""

import numpy as np
import onnx
import onnxruntime

from edge.errors import TensorMismatchError
from edge.types import CandidateRows, ColourOrder, HeadFamily


class OnnxRuntimeEngine:
    def __init__(self, spec, *, max_batch, content=None, optimize=True):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        if not optimize:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._session = onnxruntime.InferenceSession(
            str(spec.path) if content is None else content, options, providers=["CPUExecutionProvider"]
        )
        self._spec = spec
        size = spec.preprocess.size
        shape = (max_batch, size.height, size.width, 3)
        self.canvases = tuple(np.full(shape, spec.preprocess.pad_value, np.uint8) for _ in range(2))
        self.preprocess = spec.preprocess
        self.max_batch = max_batch
        self.name = f"onnxruntime {onnxruntime.__version__}"
        self._counts = {}

    def start(self, index, count):
        if not (0 <= index < 2 and 1 <= count <= self.max_batch):
            raise TensorMismatchError(f"no canvas {index} with {count} rows")
        self._counts[index] = count

    def wait(self, index):
        rows = self.canvases[index][: self._counts[index]]
        if self._spec.batch is None:
            return self._infer(rows)
        step = self._spec.batch
        return np.concatenate([self._infer(rows[first : first + step]) for first in range(0, len(rows), step)])

    def close(self):
        self._session = None

    def _infer(self, rows):
        return self._session.run([self._spec.output_name], {self._spec.input_name: self._input(rows)})[0]

    def _input(self, rows):
        settings = self._spec.preprocess
        pixels = rows[..., ::-1] if settings.colour_order is ColourOrder.BGR else rows
        values = (pixels.astype(np.float64) * settings.scale - settings.mean) / settings.std
        return values.transpose(0, 3, 1, 2).astype(np.float32)


class OnnxRuntimeCandidates(OnnxRuntimeEngine):
    """The same, giving only the cells that may hold a detection, found one by one."""

    def __init__(self, spec, *, max_batch, score_threshold, **settings):
        super().__init__(spec, max_batch=max_batch, **settings)
        self._threshold = score_threshold

    def wait(self, index):
        output = super().wait(index)
        cells = output.transpose(0, 2, 1) if self._spec.family is HeadFamily.YOLOV8 else output
        found = [
            (row, cell)
            for row in range(len(cells))
            for cell in range(cells.shape[1])
            if self._best(cells[row, cell]) > self._threshold
        ]
        row, cell = np.array(found, np.int64).reshape(-1, 2).T
        return CandidateRows(row=row, cell=cell, values=cells[row, cell], score_threshold=self._threshold)

    def _best(self, values):
        if self._spec.family is HeadFamily.YOLOV8:
            return max(values[4:])
        return values[4] if self._spec.family is HeadFamily.YOLOV10 else values[4] * max(values[5:])


class OnnxRuntimeActivations(OnnxRuntimeEngine):
    """The same, with tensors from inside given out."""

    def __init__(self, spec, names, *, largest_of=(), max_batch, content=None):
        super().__init__(spec, max_batch=max_batch)
        self._names = [*names, *largest_of, spec.output_name]
        self._largest_of = largest_of
        model = onnx.load(spec.path) if content is None else onnx.load_from_string(content)
        known = {value.name for value in model.graph.output}
        inner = [name for name in self._names if name not in known and name != spec.input_name]
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inner)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def wait(self, index):
        rows = self.canvases[index][: self._counts[index]]
        step = self._spec.batch or 1
        padded = np.concatenate([rows, rows[:1]] if len(rows) % step else [rows])
        parts = [self._infer_all(padded[first : first + step]) for first in range(0, len(rows), step)]
        whole = {name: np.concatenate([part[name] for part in parts]) for name in self._names}
        images = len(parts) * step  # attention over areas has several entries for each
        return {name: values[: len(values) // images * len(rows)] for name, values in whole.items()}

    def _infer_all(self, rows):
        values = self._input(rows)
        names = [name for name in self._names if name != self._spec.input_name]
        found = dict(zip(names, self._session.run(names, {self._spec.input_name: values}), strict=True))
        largest = {name: np.full(len(rows), np.abs(found[name]).max(), np.float32) for name in self._largest_of}
        return found | largest | {self._spec.input_name: values}
