"""What is done to a fresh export: onnxslim folds constants, shares equal work and takes out what does nothing."""

from collections import Counter

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

_LARGEST = 100_000


def slimmed(model):
    while True:
        before = len(model.graph.node)
        model = _straightened(_shared(_folded(_with_shapes(model))))
        if len(model.graph.node) == before:
            return model


def _with_shapes(model):
    del model.graph.value_info[:]
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def _folded(model):
    known = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    shapes = {value.name: _shape(value) for value in (*model.graph.value_info, *model.graph.input, *model.graph.output)}
    makers = {name: node for node in model.graph.node for name in node.output}
    kept, same = [], {}
    for node in model.graph.node:
        node.input[:] = [same.get(name, name) for name in node.input]
        _with_the_rest(makers, shapes, known, node)
        is_known = all(name in known or not name for name in node.input)
        if node.op_type == "Shape" and None not in shapes.get(node.input[0], [None]):
            known[node.output[0]] = np.array(shapes[node.input[0]], np.int64)
        elif is_known:
            known.update(_evaluated(model, node, known))
        elif (size := _known_size(makers, shapes, known, node)) is not None:
            known[node.output[0]] = size
        elif _is_idle(node, shapes, known):
            same[node.output[0]] = node.input[0]
        else:
            kept.append(node)
    return _with_nodes(model, kept, known)


def _evaluated(model, node, known):
    inputs = [helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(node.input) if name]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
    graph = helper.make_graph([node], "one", inputs, outputs)
    one = helper.make_model(graph, opset_imports=list(model.opset_import))
    values = ReferenceEvaluator(one).run(None, {name: known[name] for name in node.input if name})
    return dict(zip(node.output, map(np.asarray, values), strict=True))


def _known_size(makers, shapes, known, node):
    """Return the size that is picked out of a shape, where that one is known though others are not."""
    maker = makers.get(node.input[0]) if node.op_type == "Gather" else None
    if maker is None or maker.op_type != "Shape" or node.input[1] not in known:
        return None
    place, shape = known[node.input[1]], shapes.get(maker.input[0], [])
    sizes = [shape[int(i)] if -len(shape) <= i < len(shape) else None for i in place.reshape(-1)]
    return None if None in sizes else np.array(sizes, np.int64).reshape(place.shape)


def _with_the_rest(makers, shapes, known, node):
    """Let a Reshape to a list of numbers and one size that is asked for work that size out itself."""
    parts = makers.get(node.input[1]) if node.op_type == "Reshape" else None
    if parts is None or parts.op_type != "Concat":
        return
    asked = [name for name in parts.input if name not in known]
    maker = makers.get(asked[0]) if len(asked) == 1 else None
    if maker is None or maker.op_type != "Shape" or len(shapes.get(maker.input[0], [])) != 1:
        return
    values = [known.get(name, np.array([-1], np.int64)) for name in parts.input]
    if sum(int((value == -1).sum()) for value in values) == 1:
        node.input[1] = f"{node.output[0]}_shape"
        known[node.input[1]] = np.concatenate(values)


def _is_idle(node, shapes, known):
    """Sizes are int64 already, and a row needs no making into a row."""
    if node.op_type == "Cast":
        return node.attribute[0].i == onnx.TensorProto.INT64
    is_row = node.op_type == "Reshape" and len(shapes.get(node.input[0], [0, 0])) == 1
    return is_row and known.get(node.input[1], np.zeros(0)).tolist() == [-1]


def _shape(value):
    dims = value.type.tensor_type.shape.dim if value.type.tensor_type.HasField("shape") else ()
    return [dim.dim_value if dim.HasField("dim_value") else None for dim in dims] or [None]


def _shared(model):
    """Let what is computed twice be computed once."""
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    first, same, kept = {}, {}, []
    results = {value.name for value in model.graph.output}
    for node in model.graph.node:
        node.input[:] = [same.get(name, name) for name in node.input]
        inputs = tuple(_value_key(stored, name) for name in node.input)
        key = (node.op_type, inputs, tuple(sorted(a.SerializeToString() for a in node.attribute)))
        if key in first and not results.intersection(node.output):
            same.update(zip(node.output, first[key].output, strict=True))
        else:
            first[key] = node
            kept.append(node)
    return _with_nodes(model, kept, stored)


def _straightened(model):
    """Let a Reshape that only another Reshape reads go, and turn rows that are turned back at once into one Reshape."""
    model = _with_shapes(model)
    readers = Counter(name for node in model.graph.node for name in node.input)
    makers = {name: node for node in model.graph.node for name in node.output}
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    shapes = {value.name: _shape(value) for value in model.graph.value_info}

    def before(node, kind):
        made = makers.get(node.input[0])
        return made if made is not None and made.op_type == kind and readers[made.output[0]] == 1 else None

    for node in model.graph.node:
        if node.op_type == "Transpose" and list(node.attribute[0].ints) == [0, 2, 3, 1]:
            reshape = before(node, "Reshape")
            turned = reshape and before(reshape, "Transpose")
            rows, cells = shapes[reshape.input[0]] if turned else None, shapes.get(node.output[0])
            if turned and None not in rows + cells and rows[:2] == [cells[0], cells[3]]:
                node.CopyFrom(_reshape(node.output[0], turned.input[0], stored, np.array(cells, np.int64), reshape))
        if node.op_type == "Reshape" and (first := before(node, "Reshape")) is not None:
            node.input[0] = first.input[0]
    return _with_nodes(model, list(model.graph.node), stored)


def _reshape(made, source, stored, target, like):
    stored[f"{made}_shape"] = target
    node = helper.make_node("Reshape", [source, f"{made}_shape"], [made], name=like.name)
    node.attribute.extend(like.attribute)
    return node


def _value_key(stored, name):
    if name not in stored or stored[name].size > 64:
        return name
    return stored[name].dtype.str, stored[name].shape, stored[name].tobytes()


def _with_nodes(model, nodes, known):
    """Return the model with these nodes, less those that nobody reads, and with the constants that they read."""
    needed = {value.name for value in model.graph.output}
    kept = []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(node.input)
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.node[:], made.graph.initializer[:]
    made.graph.node.extend(reversed(kept))
    made.graph.initializer.extend(
        numpy_helper.from_array(known[name], name) for name in sorted(needed) if name in known
    )
    return made
