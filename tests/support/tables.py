"""Calibration tables by ONNX Runtime's activations, fake quantization in numpy to check Q/DQ models against."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import cv2
import msgspec
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from edge.calibrate.histogram import BINS, RangeTally
from edge.calibrate.table import CalibrationTable, DatasetId, ModelId, TensorRange, write_table
from edge.engine.kind import QdqForm
from edge.model.graph import graph_from_bytes, load_graph
from edge.model.inspect import inspect_model
from edge.model.qdq import QdqModel, insert_qdq, quantizable_tensors
from edge.quantize.forms import Forms
from edge.types import ColourOrder, HeadFamily, ModelSpec
from tests.support.models import Net
from tests.support.values import calibration_table, model_spec


@dataclass(frozen=True)
class Calibrated:
    """A model, images of its size, every float tensor of it on them (by ONNX Runtime), and its table."""

    spec: ModelSpec
    images: Path
    feed: dict
    tensors: dict
    table: CalibrationTable
    folder: Path

    def table_with(self, *, ranges=None, **changes) -> Path:
        """Write the table with other ranges, or other fields, and return where."""
        tensors = {**self.table.tensors, **{n: TensorRange(amax=a, method="x") for n, a in (ranges or {}).items()}}
        path = self.folder / "table.calib.json"
        write_table(path, msgspec.structs.replace(self.table, tensors=tensors, **changes))
        return path

    def amax(self, name) -> float:
        return self.table.tensors[name].amax


def calibrated(folder: Path, model: Path) -> Calibrated:
    """Return `model` with three images of soft blobs and a minmax table."""
    spec = inspect_model(model)
    size, random = spec.preprocess.size, np.random.default_rng(7)
    (folder / "images").mkdir()
    pictures = []
    for index in range(3):
        coarse = random.integers(0, 256, (12, 12, 3), np.uint8)
        picture = cv2.resize(coarse, (size.width, size.height), interpolation=cv2.INTER_CUBIC)
        cv2.imwrite(str(folder / "images" / f"{index}.png"), picture)
        pictures.append(picture if spec.preprocess.colour_order is ColourOrder.BGR else picture[..., ::-1])
    planes = np.stack(pictures).transpose(0, 3, 1, 2).astype(np.float32) * np.float32(spec.preprocess.scale)
    runs = [all_tensors(model, {spec.input_name: plane[None]}) for plane in planes]
    tensors = {name: np.concatenate([run[name] for run in runs]) for name in runs[0]}
    table = calibration_table(
        {name: float(np.abs(values).max()) for name, values in tensors.items()},
        preprocess=spec.preprocess,
        model=ModelId(name=spec.name, sha256=spec.sha256),
        dataset=DatasetId(images=3, sha256="0" * 64),
    )
    return Calibrated(
        spec=spec, images=folder / "images", feed={spec.input_name: planes}, tensors=tensors, table=table, folder=folder
    )


def table_of(model: Path, /, *, overrides=None, **changes) -> CalibrationTable:
    """A table that fits `model`, or differs from it in the fields that are given."""
    spec = inspect_model(model, overrides=overrides)
    size = spec.preprocess.size
    pixels = np.random.default_rng(3).integers(0, 256, (spec.batch or 1, 3, size.height, size.width))
    feed = {spec.input_name: (pixels * spec.preprocess.scale).astype(np.float32)}
    ranges = {name: amax for name, amax in minmax(model, feed).items() if amax > 0}
    model_id = ModelId(name=spec.name, sha256=spec.sha256)
    return calibration_table(ranges, preprocess=spec.preprocess, **{"model": model_id, **changes})


def write_table_of(path: Path, model: Path, /, **changes) -> Path:
    write_table(path, table_of(model, **changes))
    return path


def quantized_model(table: CalibrationTable, spec: ModelSpec) -> QdqModel:
    """Return the Q/DQ model that an engine is given by a table."""
    return Forms(spec, table).qdq_model(QdqForm())


QUIET = onnxruntime.SessionOptions()
QUIET.log_severity_level = 3
QUIET.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def fake_quantize(x, amax):
    """Round to the nearest of 256 steps of amax / 127 and back."""
    step = np.float32(amax / 127)
    return np.clip(np.rint(x / step), -128, 127).astype(np.float32) * step


def fake_quantize_channels(weight, axis):
    slices = [fake_quantize(part, np.abs(part).max() or 127.0) for part in np.moveaxis(weight, axis, 0)]
    return np.moveaxis(np.stack(slices), 0, axis)


def run(model, feed, names=None):
    """Return the outputs, or tensors inside by their names."""
    proto = onnx.load_model_from_string(model)
    declared = {value.name for value in proto.graph.output}
    proto.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in names or () if n not in declared)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), QUIET)
    names = list(names or [output.name for output in session.get_outputs()])
    return dict(zip(names, session.run(names, feed), strict=True))


def run_node(node, values, opset=17):
    """Return what one float node makes of arrays."""
    names = list(dict.fromkeys(name for name in node.input if name))
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(values[n].dtype), values[n].shape)
        for n in names
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
    graph = helper.make_graph([node], "one", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), QUIET)
    return session.run(None, {name: values[name] for name in names})


def all_tensors(path, feed):
    """Return every float tensor that a float model makes, and its input."""
    made = [name for node in onnx.load(path).graph.node for name in node.output]
    values = run(path.read_bytes(), feed, made)
    return {name: value for name, value in {**feed, **values}.items() if value.dtype == np.float32}


def minmax(path, feed):
    return {name: float(np.abs(value).max()) for name, value in all_tensors(path, feed).items()}


def pictures(count=1, size=96):
    return {"images": np.random.default_rng(3).random((count, 3, size, size), np.float32)}


def spec_of(path, *, size=32):
    """What insertion needs to know of a graph that is no detector."""
    return model_spec(path, side=size, batch=1, family=HeadFamily.YOLOX)


def quantized(path, feed=None, *, spec=None, **more):
    """Insert pairs by the ranges that ONNX Runtime finds on `feed`, or on a picture of the model's size."""
    spec = spec or inspect_model(path)
    ranges = minmax(path, feed or pictures(spec.batch or 1, spec.preprocess.size.width))
    needed = {name: ranges[name] for name in quantizable_tensors(load_graph(path))}
    return insert_qdq(path, spec, ranges=needed, **{"keep_float": (), **more})


def pairs(model):
    """Return the scale of every quantized activation, casts left out: {(reader, input index): (tensor, scale)}."""
    graph = graph_from_bytes(model, "test")
    found = {}
    for node in (node for node in graph.nodes if node.op_type != "Cast"):
        for index, name in enumerate(node.inputs):
            maker = graph.producer(before_cast(graph, name))
            if maker is not None and maker.op_type == "DequantizeLinear" and graph.is_varying(name):
                quantize = graph.producer(maker.inputs[0])
                tensor = before_cast(graph, quantize.inputs[0])
                found[node.name, index] = (tensor, float(graph.constant(maker.inputs[1])))
    return found


def before_cast(graph, name):
    """Return what a Cast that makes `name` reads, or `name` itself."""
    maker = graph.producer(name)
    return maker.inputs[0] if maker is not None and maker.op_type == "Cast" else name


def csp(path):
    """A detector's neck in small; returns the names of its tensors.

    stem -> Split (a, b); b -> cv1 -> cv2, Add with b; Concat (a, b, add) -> cv3 -> SPPF (two MaxPool, Concat) -> cv4
    -> Resize, Concat with the lateral branch -> head.
    """
    net = Net(32, batch=1, seed=5)
    t = {}
    t["stem"] = net.silu(net.conv(net.image, 3, 16, kernel=3, stride=2))
    t["a"], t["b"] = net.ops("Split", t["stem"], net.ints(8, 8), count=2, axis=1)
    t["cv1"] = net.silu(net.conv(t["b"], 8, 8, kernel=3))
    t["cv2"] = net.silu(net.conv(t["cv1"], 8, 8, kernel=3))
    t["add"] = net.op("Add", t["b"], t["cv2"])
    t["joined"] = net.op("Concat", t["a"], t["b"], t["add"], axis=1)
    t["cv3"] = net.silu(net.conv(t["joined"], 24, 8, kernel=3, stride=2))
    pool = {"kernel_shape": [5, 5], "pads": [2] * 4, "strides": [1, 1]}
    t["pool1"] = net.op("MaxPool", t["cv3"], **pool)
    t["pool2"] = net.op("MaxPool", t["pool1"], **pool)
    t["sppf"] = net.op("Concat", t["cv3"], t["pool1"], t["pool2"], axis=1)
    t["cv4"] = net.silu(net.conv(t["sppf"], 24, 8))
    t["up"] = net.op("Resize", t["cv4"], "", net.const([1, 1, 2, 2]), mode="nearest")
    t["lateral"] = net.silu(net.conv(t["stem"], 16, 8, kernel=3))
    t["neck"] = net.op("Concat", t["up"], t["lateral"], axis=1)
    t["head"] = net.conv(t["neck"], 16, 4, kernel=3)
    net.op("Relu", t["head"], name="output0")
    net.save(path, {"output0": (4, 16, 16)})
    return t


def one_operator(path, kind, *, weight=None, shape=(1, 4, 6, 6), opset=17, stored_type=np.float32, **attributes):
    """images -> `kind` with a stored weight (or with the input itself) -> Sigmoid."""
    net = Net(6, batch=1)
    right = net.image if weight is None else net.const(weight, stored_type)
    net.op("Sigmoid", net.op(kind, net.image, right, name="product", **attributes), name="output0")
    graph = helper.make_graph(
        net.nodes, "one",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("output0", TensorProto.FLOAT, [f"axis{i}" for i in range(len(shape))])],
        net.stored,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def stored(model):
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def store(model, name, value):
    """Put `value` in the place of what a model stores under `name`, or beside the rest."""
    found = next((one for one in model.graph.initializer if one.name == name), None) or model.graph.initializer.add()
    found.CopyFrom(numpy_helper.from_array(np.asarray(value), name))


def pair_of(model, tensor):
    """Return the two nodes of the pair on an activation."""
    quantize = next(n for n in model.graph.node if n.op_type == "QuantizeLinear" and n.input[0] == tensor)
    return quantize, next(n for n in model.graph.node if n.input and n.input[0] == quantize.output[0])


def square_weight(model):
    """Return the DequantizeLinear of a weight with as many input as output channels, and what it restores."""
    values = stored(model)
    for node in model.graph.node:
        shape = np.shape(values.get(node.input[0])) if node.op_type == "DequantizeLinear" else ()
        if len(shape) == 4 and shape[0] == shape[1]:
            return node, values[node.input[0]]
    raise AssertionError("no square weight")


def set_axis(node, axis):
    del node.attribute[:]
    node.attribute.append(helper.make_attribute("axis", axis))


def with_joint_scale(model, *, level=5.0):
    """Quantize the output, boxes and scores, by one scale, as quantizers do that know nothing of detectors."""
    (output,) = (value.name for value in model.graph.output)
    last = next(node for node in model.graph.node if output in node.output)
    last.output[list(last.output).index(output)] = "joined"
    store(model, "joint_scale", np.float32(level))
    store(model, "joint_zero", np.int8(0))
    operands = ["joint_scale", "joint_zero"]
    model.graph.node.extend(
        [
            helper.make_node("QuantizeLinear", ["joined", *operands], ["joint_levels"], "joint_quantize"),
            helper.make_node("DequantizeLinear", ["joint_levels", *operands], [output], "joint_dequantize"),
        ]
    )


def with_activation_scales(model, factor):
    """Multiply the scales of all activations."""
    graph, values = graph_from_bytes(model.SerializeToString(), "test"), stored(model)
    kinds = ("QuantizeLinear", "DequantizeLinear")
    for name in {n.inputs[1] for n in graph.nodes if n.op_type in kinds and graph.is_varying(n.inputs[0])}:
        store(model, name, values[name] * np.float32(factor))


def count(values, *, bins=BINS):
    """Return the histogram of |x| of an array of any shape, with neighbours joined where fewer bins are asked for."""
    tally = RangeTally()
    tally.add(values)
    whole = tally.histogram()
    return dataclasses.replace(whole, counts=whole.counts.reshape(bins, -1).sum(axis=1))
