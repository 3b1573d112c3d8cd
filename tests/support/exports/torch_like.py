"""Writes a graph as PyTorch's exporter does: names by scope, a Constant node for each number, shapes asked for at run
time where the batch is left open. `slimmed` then does what onnxslim does: folds, shares, takes out what does nothing.
"""

import contextlib
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

INPUT, OUTPUT = "images", "output0"


@dataclass(frozen=True)
class Map:
    """A tensor of (B, channels, height, width), or of (B, channels, cells) where `width` is None."""

    name: str
    channels: int
    height: int
    width: int | None = None


@dataclass
class Writer:
    """Collects nodes within named scopes; `rows` is None where the batch is left open."""

    height: int
    width: int
    rows: int | None = 1
    opset: int = 18
    nodes: list = field(default_factory=list)
    stored: dict = field(default_factory=dict)
    _scope: tuple = ()
    _splits: dict = field(default_factory=dict)
    _counts: Counter = field(default_factory=Counter)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))

    @property
    def picture(self):
        return Map(INPUT, 3, self.height, self.width)

    @property
    def is_open(self):
        return self.rows is None

    @contextlib.contextmanager
    def within(self, *names):
        before = self._scope
        self._scope = (*before, *names)
        yield
        self._scope = before

    @contextlib.contextmanager
    def outside(self):
        """Leave all scopes: what is wrapped around a model stands beside it."""
        before, self._scope = self._scope, ()
        yield
        self._scope = before

    def fresh(self, kind):
        """Return the name of the next node of `kind` in this scope."""
        place = "/".join(("", *self._scope, kind))
        self._counts[place] += 1
        return place if self._counts[place] == 1 else f"{place}_{self._counts[place] - 1}"

    def ops(self, kind, *inputs, count=1, name=None, **attributes):
        called = self.fresh(kind)
        outputs = [name] if name else [f"{called}_output_{number}" for number in range(count)]
        self.nodes.append(helper.make_node(kind, list(inputs), outputs, name=called, **attributes))
        return outputs

    def op(self, kind, *inputs, **attributes):
        return self.ops(kind, *inputs, **attributes)[0]

    def const(self, value, dtype=np.int64):
        tensor = numpy_helper.from_array(np.asarray(value, dtype))
        return self.op("Constant", value=tensor)

    def number(self, value):
        return self.const(value, np.float32)

    @staticmethod
    def tensor(value):
        return numpy_helper.from_array(np.asarray(value, np.float32))

    def store(self, name, value, dtype=np.float32):
        self.stored[name] = np.asarray(value, dtype)
        return name

    def convolve(self, x, out, kernel=1, *, stride=1, group=1, pad=None, gain=1.7, start=None):
        """A convolution with bias and nothing else; all of the bias is `start` where that is given."""
        into, path = x.channels // group, ".".join(part for part in self._scope)
        weight = self.random.normal(0, gain / np.sqrt(into * kernel * kernel), (out, into, kernel, kernel))
        bias = self.random.normal(0, 0.2, out) if start is None else np.full(out, start)
        pad = kernel // 2 if pad is None else pad
        made = self.op(
            "Conv", x.name, self.store(f"{path}.weight", weight), self.store(f"{path}.bias", bias),
            dilations=[1, 1], group=group, kernel_shape=[kernel] * 2, pads=[pad] * 4, strides=[stride] * 2,
        )  # fmt: skip
        return Map(made, out, (x.height + 2 * pad - kernel) // stride + 1, (x.width + 2 * pad - kernel) // stride + 1)

    def conv(self, x, out, kernel=1, *, scope, stride=1, group=1, act="Sigmoid", pad=None, gain=1.7):
        """A convolution and SiLU, as all of them write it."""
        with self.within(*(scope.split("/") if scope else ())):
            with self.within("conv"):
                made = self.convolve(x, out, kernel, stride=stride, group=group, pad=pad, gain=gain)
            if act is None:
                return made
            with self.within("act"):
                return self.silu(made)

    def silu(self, x):
        return self.like(x, self.op("Mul", x.name, self.op("Sigmoid", x.name)))

    @staticmethod
    def like(x, name):
        return Map(name, x.channels, x.height, x.width)

    def add(self, x, y):
        return self.like(x, self.op("Add", x.name, y.name))

    def join(self, *maps):
        made = self.op("Concat", *(one.name for one in maps), axis=1)
        return Map(made, sum(one.channels for one in maps), maps[0].height, maps[0].width)

    def split(self, x, *sizes, axis=1):
        """Split along an axis: by a list that all equal ones share, or by an attribute in opset 12."""
        if self.opset < 13:
            return self.ops("Split", x, count=len(sizes), axis=axis, split=sizes)
        if sizes not in self._splits:
            self._splits[sizes] = self.aside("Split", sizes)
        return self.ops("Split", x, self._splits[sizes], count=len(sizes), axis=axis)

    def aside(self, reader, value):
        """Return a constant that stands outside all scopes, named after what reads it."""
        number = len(self.nodes)
        tensor = numpy_helper.from_array(np.asarray(value, np.int64))
        node = helper.make_node("Constant", [], [f"onnx::{reader}_{number}"], name=f"Constant_{number}", value=tensor)
        self.nodes.append(node)
        return node.output[0]

    def chunk(self, x):
        """Two halves of the second axis, worked out from its size."""
        axis = self.const([1])
        rows = self.op("Gather", self.op("Shape", x), axis, axis=0)
        start = self.const([0])
        step = self.op("Div", self.op("Add", rows, self.const([1])), self.const([2]))
        middle = self.op("Mul", step, self.const([1]))
        first = self.op("Slice", x, start, middle, axis)
        return first, self.op("Slice", x, middle, self.op("Mul", step, self.const([2])), axis)

    def halves(self, x, *sizes):
        return [
            Map(name, size, x.height, x.width) for name, size in zip(self.split(x.name, *sizes), sizes, strict=True)
        ]

    def pool(self, x, kernel, *, stride=1, pad=None):
        pad = kernel // 2 if pad is None else pad
        made = self.op("MaxPool", x.name, ceil_mode=0, kernel_shape=[kernel] * 2, pads=[pad] * 4, strides=[stride] * 2)
        return Map(
            made, x.channels, (x.height + 2 * pad - kernel) // stride + 1, (x.width + 2 * pad - kernel) // stride + 1
        )

    def doubled(self, x):
        factors = self.number([1, 1, 2, 2])
        regions = self.number([]) if self.opset < 13 else ""
        made = self.op(
            "Resize", x.name, regions, factors, coordinate_transformation_mode="asymmetric", cubic_coeff_a=-0.75,
            mode="nearest", nearest_mode="floor",
        )  # fmt: skip
        return Map(made, x.channels, 2 * x.height, 2 * x.width)

    def sizes_of(self, x, *axes):
        """Return the sizes of some axes, each asked for by itself as a trace does."""
        return [self.op("Gather", self.op("Shape", x), self.const(axis), axis=0) for axis in axes]

    def unsqueeze(self, x, axis, *, is_aside=False):
        if self.opset < 13:
            return self.op("Unsqueeze", x, axes=[axis])
        axes = self.aside("Unsqueeze", [axis]) if is_aside else self.const([axis])
        return self.op("Unsqueeze", x, axes)

    def together(self, *dims):
        """Return a list of sizes: of numbers, and of names that were asked for."""
        parts = [self.unsqueeze(one, 0, is_aside=True) if isinstance(one, str) else self.const([one]) for one in dims]
        return self.op("Concat", *parts, axis=0)

    def shaped(self, x, *dims):
        """Reshape to numbers and sizes that were asked for."""
        target = self.const(dims) if all(isinstance(one, int) for one in dims) else self.together(*dims)
        return self.reshape(x, target)

    def shaped_alike(self, pair, *dims, then=lambda name: name):
        """Reshape two tensors to the same sizes, which are put together for each before either is reshaped."""
        targets = [self.const(dims) if self.rows else self.together(*dims) for _ in pair]
        return [then(self.reshape(one, target)) for one, target in zip(pair, targets, strict=True)]

    def times(self, size, factor):
        return size * factor if isinstance(size, int) else self.op("Mul", size, self.const(factor))

    def divided(self, size, factor):
        """Floor division, which a trace casts twice."""
        if isinstance(size, int):
            return size // factor
        return self.op("Cast", self.op("Cast", self.op("Div", size, self.const(factor)), to=7), to=7)

    def largest(self, x):
        """The largest of the last axis, which opset 18 and later take as an input."""
        if self.opset < 18:
            return self.op("ReduceMax", x, axes=[-1], keepdims=0)
        return self.op("ReduceMax", x, self.const([-1]), keepdims=0)

    def expanded(self, x, *dims):
        """Expand, where -1 keeps a size: worked out by comparing."""
        wanted = self.const(dims)
        ones = self.op(
            "ConstantOfShape", self.const([len(dims)]), value=numpy_helper.from_array(np.array([1], np.int64))
        )
        keeps = self.op("Equal", wanted, self.op("Mul", ones, self.const(-1)))
        return self.op("Expand", x, self.op("Where", keeps, ones, wanted))

    def reshape(self, x, target):
        return self.op("Reshape", x, target, **({"allowzero": 0} if self.opset >= 14 else {}))

    def batch_of(self, x):
        return self.sizes_of(x, 0)[0] if self.is_open else self.rows

    def model(self, outputs, metadata):
        """Return the model; `outputs` are names and shapes behind the batch."""
        rows = "batch" if self.is_open else self.rows
        sides = ("height", "width") if self.is_open else (self.height, self.width)
        picture = helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, (rows, 3, *sides))
        infos = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, (rows, *dims)) for name, dims in outputs.items()
        ]
        stored = [numpy_helper.from_array(value, name) for name, value in self.stored.items()]
        graph = helper.make_graph(self.nodes, "main_graph", [picture], infos, stored)
        opset = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, opset_imports=opset, producer_name="pytorch", producer_version="2.14.1")
        model.ir_version = 7 if self.opset < 15 else 8 if self.opset < 19 else 9
        helper.set_model_props(model, metadata)
        onnx.checker.check_model(model, full_check=True)
        return model
