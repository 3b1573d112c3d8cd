"""The real builder, without a GPU: TensorRT for RTX builds every model we have through our build code.

What it says while it builds, and the names of the kernels in its plan, tell what became of a Q/DQ pair.
"""

import json
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edge.calibrate.table import read_table, write_table
from edge.engine.kind import QdqForm
from edge.engine.tensorrt.profiling import Origins
from edge.model.graph import load_graph
from edge.model.inspect import inspect_model
from edge.model.qdq import qdq_faults
from edge.quantize.forms import Forms
from tests.support import models
from tests.support.few_layers import KINDS, attention
from tests.support.tables import set_axis, square_weight, store, table_of
from tests.support.tensorrt import ROOT, RTX, folder_of, run_python

pytestmark = pytest.mark.slow_but(
    "test_the_demo_detector_is_built_with_every_convolution_of_the_table_fused",
    "test_every_family_is_built_in_every_precision_without_a_warning",
    reason="further builds",
)

FAMILIES = ["yolov5", "yolov8", "yolov10", "yolox"]
DEMO = ROOT / "edge/demo/model/traffic.onnx"
DEMO_TABLE = ROOT / "calib_cache/traffic.calib.json"
LAYERS = ("Conv", "MaxPool", "Resize")


def built(*jobs):
    return run_python("tests.support.tensorrt.rtx_build", list(jobs), path=[folder_of(RTX)])


def job(model, table, precision, *, max_batch=2, **more):
    return {
        "model": str(model),
        "table": None if table is None else str(table),
        "precision": precision,
        "max_batch": max_batch,
        **more,
    }


def convolutions(model, table):
    """Return how many convolutions the table puts in INT8."""
    made = Forms(inspect_model(model), read_table(table)).qdq_model(QdqForm(float_type="float16"))
    nodes = onnx.load_from_string(made.model).graph.node
    names = set(made.quantized_nodes)
    return sum(node.op_type in ("Conv", "ConvTranspose") and node.name in names for node in nodes)


@pytest.mark.parametrize("batch", [None, 2], ids=["dynamic", "fixed"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_built_in_every_precision_without_a_warning(tmp_path, family, batch):
    model = getattr(models, family)(tmp_path / "model.onnx", batch=batch)
    table = tmp_path / "table.calib.json"
    write_table(table, table_of(model))

    for made in built(job(model, None, "fp32"), job(model, None, "fp16"), job(model, table, "int8")):
        assert made["error"] is None
        assert made["warnings"] == []
        assert made["batch"] == batch
        assert made["inputs"][0][1][0] == (batch or -1)
        assert made["inputs"][0][2] == made["outputs"][0][2] == "float32"
        assert made["phases"][-1] == ["build", 1.0]
    # One kernel computes the tail of all levels, and its name is cut off.
    assert 10 <= made["int8_convolutions"] <= convolutions(model, table)
    assert made["int8_convolutions"] == convolutions(model, table) or any(
        name.endswith("Etc") for name in made["launches"]
    )


@pytest.mark.slow(reason="the builder takes seconds for each of two models")
@pytest.mark.parametrize("kind", KINDS)
def test_attention_is_built_in_int8_without_a_warning_and_softmax_rounds_in_its_own_kernel(tmp_path, kind):
    model, table = attention(tmp_path / "model.onnx", kind), tmp_path / "table.calib.json"
    write_table(table, table_of(model))
    products = tuple(node.name for node in onnx.load(model).graph.node if node.op_type == "MatMul")
    in_float = tmp_path / "float.calib.json"
    write_table(in_float, msgspec.structs.replace(table_of(model), keep_float=products))

    int8, partly = built(job(model, table, "int8"), job(model, in_float, "int8"))

    assert int8["error"] is partly["error"] is None
    assert int8["warnings"] == partly["warnings"] == []
    softmax = [sum(count for name, count in made["launches"].items() if "ExpSumDivCastMulMinMax" in name)
               for made in (int8, partly)]  # fmt: skip
    assert softmax == [len(products) // 2, 0]
    assert sum(int8["launches"].values()) <= sum(partly["launches"].values())


def test_the_demo_detector_is_built_with_every_convolution_of_the_table_fused():
    float32, int8 = built(job(DEMO, None, "fp32", max_batch=4), job(DEMO, DEMO_TABLE, "int8", max_batch=4))

    assert float32["error"] is int8["error"] is None
    assert float32["warnings"] == int8["warnings"] == []
    assert int8["int8_convolutions"] == convolutions(DEMO, DEMO_TABLE) == 51
    # Dequantizing, bias, SiLU and the next quantizing are one kernel.
    fused = {name: count for name, count in int8["launches"].items() if "Silu" in name and "Roun" in name}
    assert sum(fused.values()) >= 40, int8["launches"]
    assert int8["report"]["scales"]["consumed"] == 77
    assert int8["report"]["route"] == "qdq-strong"


def test_centres_and_padding_by_them_are_steps_inside_the_kernels_that_there_are(tmp_path):
    tables = {}
    for name, words in {"symmetric": {}, "padded": {"centred": True, "padded": True}}.items():
        tables[name] = tmp_path / f"{name}.calib.json"
        plain = msgspec.structs.replace(read_table(DEMO_TABLE), centred=False, padded=False)
        write_table(tables[name], msgspec.structs.replace(plain, **words))

    symmetric, padded = built(*(job(DEMO, table, "int8") for table in tables.values()))

    assert (padded["error"], padded["warnings"]) == (None, [])
    assert padded["int8_convolutions"] == convolutions(DEMO, tables["padded"])
    # Nearly all of them: a Sub and a Pad for each of fifty convolutions would be a hundred more.
    assert sum(padded["launches"].values()) <= sum(symmetric["launches"].values()) + 3, padded["launches"]


@pytest.fixture(scope="module")
def quantized(tmp_path_factory):
    """The demo detector with Q/DQ pairs, computing in float32 beside them."""
    made = Forms(inspect_model(DEMO), read_table(DEMO_TABLE)).qdq_model(QdqForm())
    path = tmp_path_factory.mktemp("quantized") / "qdq.onnx"
    path.write_bytes(made.model)
    return path


def with_uint8(model):
    for constant in model.graph.initializer:
        if constant.name.endswith("zero_point") and constant.dims == []:
            constant.CopyFrom(numpy_helper.from_array(np.array(128, np.uint8), constant.name))


def with_zero_point(model):
    constant = next(one for one in model.graph.initializer if one.name == "images/zero_point")
    constant.CopyFrom(numpy_helper.from_array(np.array(3, np.int8), constant.name))


def with_negative_scale(model):
    constant = next(one for one in model.graph.initializer if one.name == "images/scale")
    constant.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(constant), constant.name))


def without_one_dequantize(model):
    """What it fed reads the levels themselves."""
    node = next(one for one in model.graph.node if one.output[0] == "images/dequantized")
    for other in model.graph.node:
        other.input[:] = [node.input[0] if name == node.output[0] else name for name in other.input]
    model.graph.node.remove(node)


def without_one_pair(model):
    """Of one convolution inside the network: it computes in float."""
    pairs = [one for one in model.graph.node if one.op_type == "DequantizeLinear" and "cv1" in one.output[0]]
    end = next(one for one in pairs if one.output[0].endswith("Mul_output_0/dequantized"))
    start = next(one for one in model.graph.node if one.output[0] == end.input[0])
    for other in model.graph.node:
        other.input[:] = [start.input[0] if name == end.output[0] else name for name in other.input]


def with_unequal_concat_scales(model, *, factor=1.5):
    """What a Concat joins is quantized before it, each part with a scale of its own."""
    read_by = {name: node for node in model.graph.node for name in node.input}
    stored = {one.name: one for one in model.graph.initializer}
    for position, joined in reversed(list(enumerate(model.graph.node))):
        quantize = read_by.get(joined.output[0])
        if joined.op_type != "Concat" or quantize is None or quantize.op_type != "QuantizeLinear":
            continue
        for number, name in enumerate(joined.input):
            label, zero = f"{joined.name}/part{number}", quantize.input[2]
            scale = numpy_helper.to_array(stored[quantize.input[1]]) * np.float32(factor**number)
            model.graph.initializer.append(numpy_helper.from_array(scale, f"{label}/scale"))
            pair = [
                helper.make_node("QuantizeLinear", [name, f"{label}/scale", zero], [f"{label}/q"], f"{label}/Q"),
                helper.make_node("DequantizeLinear", [f"{label}/q", f"{label}/scale", zero], [f"{label}/dq"]),
            ]
            joined.input[number] = f"{label}/dq"
            for node in reversed(pair):
                model.graph.node.insert(position, node)


def with_equal_concat_scales(model):
    """The same pairs, all with the scale of what the Concat makes."""
    with_unequal_concat_scales(model, factor=1.0)


def changed(quantized, change):
    model = onnx.load(quantized)
    change(model)
    path = quantized.with_name(f"{change.__name__}.onnx")
    onnx.save(model, path)
    return job(DEMO, None, "int8", qdq=str(path))


def test_pairs_that_tensorrt_does_not_take_are_refused_with_the_name_of_their_node(quantized):
    wrong = [with_uint8, with_zero_point, with_negative_scale, without_one_dequantize]

    found = dict(zip(wrong, built(*(changed(quantized, change) for change in wrong)), strict=True))

    for change, made in found.items():
        assert made["error"] is not None, change.__name__
        assert "cannot read it" in made["error"] or "built nothing" in made["error"], made["error"]
    assert 'QuantizeLinear "' in found[with_uint8]["error"]
    assert '"images/QuantizeLinear"' in found[with_zero_point]["error"]


def test_a_missing_pair_and_unequal_scales_show_in_the_plan(quantized):
    right, lacking, equal, unequal = built(
        job(DEMO, None, "int8", qdq=str(quantized)),
        changed(quantized, without_one_pair),
        changed(quantized, with_equal_concat_scales),
        changed(quantized, with_unequal_concat_scales),
    )
    assert right["int8_convolutions"] == equal["int8_convolutions"] == 51
    assert lacking["int8_convolutions"] < 51
    assert equal["launches"] == right["launches"]
    # Levels that do not fit are rounded again, inside kernels that do that only.
    assert roundings(unequal) > roundings(right), unequal["launches"]


def roundings(made):
    return sum(count * name.count("Roun") for name, count in made["launches"].items())


def test_what_the_builder_writes_of_its_layers_origins_is_read(tmp_path):
    """Its inspector needs a GPU; what that would tell of each kernel stands in the plan."""
    model = onnx.load(DEMO)
    unnamed = [node for node in model.graph.node if node.op_type == "Conv"][:2]
    for node in unnamed:
        node.name = ""
    onnx.save(model, tmp_path / "m.onnx")
    wanted = {node.name or node.output[0] for node in model.graph.node if node.op_type in LAYERS}
    as_it_is = {node.name for node in onnx.load(DEMO).graph.node if node.op_type in LAYERS}

    in_float, in_int8 = built(job(tmp_path / "m.onnx", None, "fp32"), job(DEMO, DEMO_TABLE, "int8"))

    for made, names in ((in_float, wanted), (in_int8, as_it_is)):
        layers = [{"Name": str(number), "Metadata": entry} for number, entry in enumerate(made["entries"])]
        origins = Origins(json.dumps({"Layers": layers}), names)
        found = [origins.of(layer["Name"]).nodes for layer in layers]
        assert set().union(*found) == names
        assert sum(len(nodes) == 1 for nodes in found) > 40  # kernels; one entry may be of the whole region


def with_uint8_weight(model):
    node, weight = square_weight(model)
    store(model, node.input[0], (weight.astype(int) + 128).astype(np.uint8))
    store(model, node.input[2], np.full(len(weight), 128, np.uint8))


def with_weight_offset(model):
    node, weight = square_weight(model)
    store(model, node.input[2], np.ones(len(weight), np.int8))


def with_scale_0(model):
    store(model, "images/scale", np.float32(0))


def with_other_axis(model):
    set_axis(square_weight(model)[0], 1)


def with_axis_from_the_end(model):
    set_axis(square_weight(model)[0], -4)


def with_scales_in_nodes(model):
    for name in ("images/scale", "images/zero_point"):
        tensor = next(one for one in model.graph.initializer if one.name == name)
        model.graph.node.insert(0, helper.make_node("Constant", [], [name], value=tensor))
        model.graph.initializer.remove(tensor)


def with_opset_21(model):
    model.opset_import[0].version = 21


REFUSED = [
    with_uint8,
    with_zero_point,
    with_negative_scale,
    with_scale_0,
    with_uint8_weight,
    with_weight_offset,
    without_one_dequantize,
]
TAKEN = [with_axis_from_the_end, with_scales_in_nodes, with_opset_21, with_equal_concat_scales]


@pytest.mark.slow(reason="builds eleven engines")
def test_what_the_builder_refuses_is_what_is_named_and_what_it_takes_is_not(quantized):
    jobs = [changed(quantized, change) for change in (*REFUSED, *TAKEN)]

    for change, job, made in zip((*REFUSED, *TAKEN), jobs, built(*jobs), strict=True):
        is_named = bool(qdq_faults(load_graph(Path(job["qdq"]))))
        assert (made["error"] is not None) == is_named == (change in REFUSED), change.__name__


def test_a_brought_model_is_refused_with_every_node_that_tensorrt_does_not_take(quantized):
    wrong = [Path(changed(quantized, change)["qdq"]) for change in (with_uint8, with_other_axis)]

    uint8, axis, right = built(*(job(path, None, "int8") for path in (*wrong, quantized)))

    assert right["error"] is None
    assert 'QuantizeLinear "images/QuantizeLinear"' in uint8["error"]
    assert "45 more: it has uint8, TensorRT takes int8" in uint8["error"]
    assert "its scales lie on axis 1, the output channels of Conv on axis 0" in axis["error"]
