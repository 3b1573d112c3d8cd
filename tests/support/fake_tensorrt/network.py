"""Networks of the fake: layers and tensors as NVIDIA's parser makes them of an ONNX file, and its errors."""

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

LAYER_OF = {
    "QuantizeLinear": "QUANTIZE",
    "DequantizeLinear": "DEQUANTIZE",
    "Conv": "CONVOLUTION",
    "ConvTranspose": "DECONVOLUTION",
    "Concat": "CONCATENATION",
    "MaxPool": "POOLING",
    "Softmax": "SOFTMAX",
    "Sigmoid": "ACTIVATION",
    "MatMul": "MATRIX_MULTIPLY",
    "Resize": "RESIZE",
    "TopK": "TOPK",
}
DTYPE_OF = {
    TensorProto.FLOAT: "FLOAT",
    TensorProto.FLOAT16: "HALF",
    TensorProto.INT8: "INT8",
    TensorProto.UINT8: "UINT8",
    TensorProto.INT32: "INT32",
    TensorProto.INT64: "INT64",
    TensorProto.BOOL: "BOOL",
}


class ITensor:
    def __init__(self, fake, name, dtype, shape, network):
        self._fake, self._name, self._dtype, self._shape, self._network = fake, name, dtype, tuple(shape), network
        self._range = None

    @property
    def name(self):
        return self._name

    @property
    def dtype(self):
        # TensorRT 8 has no INT64: its parser makes INT32 of them.
        kinds = self._fake.module.DataType
        return getattr(kinds, self._dtype, kinds.INT32)

    @property
    def shape(self):
        return self._shape

    @shape.setter
    def shape(self, value):
        self._shape = tuple(value)

    def set_dynamic_range(self, min, max):
        if not (np.isfinite(min) and np.isfinite(max)) or min >= max:
            return False
        self._range = (float(min), float(max))
        return True


class _Ends:
    """What a layer and a whole network have of tensors."""

    @property
    def num_inputs(self):
        return len(self._inputs)

    def get_input(self, index):
        return self._inputs[index]

    @property
    def num_outputs(self):
        return len(self._outputs)

    def get_output(self, index):
        return self._outputs[index]


class ILayer(_Ends):
    def __init__(self, fake, node, inputs, outputs):
        self._fake, self._node, self._inputs, self._outputs, self._precision = fake, node, inputs, outputs, None

    @property
    def name(self):
        return self._node.name or self._node.output[0]

    @property
    def type(self):
        return self._fake.module.LayerType[LAYER_OF.get(self._node.op_type, "ELEMENTWISE")]

    @property
    def precision(self):
        return self._precision

    @precision.setter
    def precision(self, value):
        self._precision = self._fake.module.DataType(value)


class INetworkDefinition(_Ends):
    def __init__(self, fake, flags):
        kinds = fake.module.NetworkDefinitionCreationFlag
        has_explicit = hasattr(kinds, "EXPLICIT_BATCH") and not hasattr(fake.module, "int64")
        if has_explicit and not flags & (1 << int(kinds.EXPLICIT_BATCH)):
            raise AssertionError("TensorRT 8: the ONNX parser takes networks of explicit batch only")
        strong = hasattr(kinds, "STRONGLY_TYPED") and bool(flags & (1 << int(kinds.STRONGLY_TYPED)))
        self._fake = fake
        self._is_strong = strong or not hasattr(fake.module.BuilderFlag, "FP16")
        self._inputs, self._outputs, self._layers, self._content = [], [], [], None

    @property
    def num_layers(self):
        return len(self._layers)

    def get_layer(self, index):
        return self._layers[index]

    def mark_output(self, tensor):
        self._outputs.append(tensor)


class ParserError:
    def __init__(self, index, node, text):
        self._index, self._node, self._text = index, node, text

    def desc(self):
        return self._text

    def node(self):
        return self._index

    def node_name(self):
        return self._node.name

    def node_operator(self):
        return self._node.op_type


class OnnxParser:
    def __init__(self, network, logger):
        self._network, self._logger, self._errors = network, logger, []
        self._fake = network._fake

    def parse(self, model, path=None):
        model = onnx.load_from_string(bytes(model))
        problems = list(self._fake.faults.parser_errors(model)) or list(_problems(self._fake, model))
        self._errors = [self._fake.new("ParserError", index, node, text) for index, node, text in problems]
        if problems:
            return False
        _fill(self._fake, self._network, model)
        return True

    @property
    def num_errors(self):
        return len(self._errors)

    def get_error(self, index):
        return self._errors[index]


def _problems(fake, model):
    """Yield what NVIDIA's open parser refuses (onnx-tensorrt, `QuantDequantLinearHelper`)."""
    stored = {one.name: one for one in model.graph.initializer}
    for index, node in enumerate(model.graph.node):
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            continue
        scale, zero = stored.get(node.input[1]), stored.get(node.input[2]) if len(node.input) > 2 else None
        if zero is not None and zero.data_type == TensorProto.UINT8:
            yield index, node, "TensorRT supports only symmetric quantization, got UINT8"
        elif zero is not None and numpy_helper.to_array(zero).any():
            yield index, node, "TensorRT only supports symmetric quantization. The zero point must be zero"
        elif scale is not None and not (numpy_helper.to_array(scale) > 0).all():
            yield index, node, "Scale coefficients must all be positive"
        elif scale is not None and scale.data_type == TensorProto.FLOAT16 and not hasattr(fake.module, "int64"):
            yield index, node, "Scale coefficients must all be positive"  # 8.x reads float16 scales as float32


def _fill(fake, network, model):
    graph = model.graph
    stored = {one.name for one in graph.initializer}
    shapes = {one.name: one for one in (*graph.input, *graph.output)}
    known = onnx.shape_inference.infer_shapes(model).graph.value_info
    shapes |= {one.name: one for one in known}
    tensors = {}

    def tensor(name):
        if name not in tensors:
            dtype, shape = _described(shapes.get(name))
            tensors[name] = fake.new("ITensor", fake, name, dtype, shape, network)
        return tensors[name]

    network._content = model.SerializeToString()
    network._inputs = [tensor(one.name) for one in graph.input if one.name not in stored]
    network._layers = [
        fake.new("ILayer", fake, node, [tensor(one) for one in node.input if one], [tensor(one) for one in node.output])
        for node in graph.node
    ]
    network._outputs = [tensor(one.name) for one in graph.output]


def _described(value):
    if value is None:
        return "FLOAT", ()
    kind = value.type.tensor_type
    dims = [side.dim_value if side.HasField("dim_value") else -1 for side in kind.shape.dim]
    return DTYPE_OF.get(kind.elem_type, "FLOAT"), dims
