"""What inspectors of different TensorRTs write of layers: the nodes that a layer came from, and its precision.

Entries are as real builders write them.
"""

import json

import pytest

from edge.engine.tensorrt.build.account import plan_account_of
from edge.engine.tensorrt.profiling import Origins, nodes_of_layer
from tests.support.values import engine_record

# As TensorRT for RTX 1.7 wrote them into plans of the demo's model, in INT8 and for nodes without names.
CONVOLUTION = (
    "[ONNX Layer: /stem.1/conv/Conv]\x1f[ONNX Layer: /stem.0/act/Mul_output_0/quantized/DequantizeLinear]\x1f"
    "[ONNX Layer: stem.1.conv.weight/quantized/DequantizeLinear]"
)
BEHIND_IT = "[ONNX Layer: /stem.1/act/Sigmoid]\x1f[ONNX Layer: /stem.1/act/Mul]\x1f[ONNX Layer: /stem.1/conv/Conv]"
REGION = "[ONNX Layer: /stem.0/conv/Conv]\x1e[ONNX Layer: /stem.0/act/Sigmoid]\x1e[ONNX Layer: /stem.0/act/Mul]"
UNNAMED = "[ONNX Layer: node_of_/stem.0/conv/Conv_output_0]\x1f[ONNX Layer: node_of_x]"


@pytest.mark.parametrize(
    ("name", "metadata", "nodes"),
    [
        ("/stem.1/conv/Conv", "[ONNX Layer: /stem.1/conv/Conv]", ["/stem.1/conv/Conv"]),
        ("__myl_Conv_myl0_1", BEHIND_IT, ["/stem.1/act/Sigmoid", "/stem.1/act/Mul", "/stem.1/conv/Conv"]),
        ("{ForeignNode[a...z]}", REGION, ["/stem.0/conv/Conv", "/stem.0/act/Sigmoid", "/stem.0/act/Mul"]),
        ("x copy", "[ONNX Layer: /Concat]", ["/Concat"]),
        ("odd", "[ONNX Layer: a[0]]\x1f[ONNX Layer: b, c]", ["a[0]", "b, c"]),
        ("a + b", "[Something Else: a]", []),
        ("conv + act + add", "", ["conv", "act", "add"]),
        ("conv1 || conv2", "", ["conv1", "conv2"]),
        ("PWN(PWN(/act/Sigmoid), /act/Mul)", "", ["/act/Sigmoid", "/act/Mul"]),
        ("/cv1/conv/Conv + PWN(/act/Sigmoid, /act/Mul)", "", ["/cv1/conv/Conv", "/act/Sigmoid", "/act/Mul"]),
        ("Reformatting CopyNode for Input Tensor 0 to conv + act", "", []),
        ("Reformatting CopyNode for Input Tensor 0 to conv", "[ONNX Layer: conv]", []),
        ("{ForeignNode[conv...act]}", "", []),
        ("{ForeignNode[conv...act]} + add", "", []),
    ],
)
def test_nodes_of_a_layer(name, metadata, nodes):
    assert nodes_of_layer(name, metadata) == nodes


def told(*layers):
    return json.dumps({"Layers": list(layers)})


def test_only_nodes_that_are_asked_for_are_told():
    origins = Origins(
        told({"Name": "k", "LayerType": "conv", "Metadata": CONVOLUTION}), ["/stem.1/conv/Conv", "/other"]
    )

    assert origins.of("k").nodes == {"/stem.1/conv/Conv"}


def test_nodes_without_a_name_are_called_after_their_outputs_whatever_the_parser_puts_before_them():
    names = ["/stem.0/conv/Conv_output_0", "node_of_x"]  # and one that is really called so

    assert Origins(told({"Name": "k", "Metadata": UNNAMED}), names).of("k").nodes == set(names)


def test_kinds_are_told_with_their_tactics():
    origins = Origins(
        told(
            {"Name": "a", "LayerType": "CaskConvolution", "TacticName": "sm80_xmma_i8i8"},
            {"Name": "b", "LayerType": "Reformat", "TacticName": ""},
            {"Name": "c"},
            "d",
        ),
        ["a", "d"],
    )

    kinds = {name: origins.of(name).kind for name in "abcd"}
    assert kinds == {"a": "CaskConvolution sm80_xmma_i8i8", "b": "Reformat", "c": "layer", "d": "layer"}
    assert origins.of("d").nodes == {"d"}


def test_two_layers_of_one_name_are_what_went_into_either():
    layers = ({"Name": "k", "Metadata": "[ONNX Layer: a]"}, {"Name": "k", "Metadata": "[ONNX Layer: b]"})

    assert Origins(told(*layers), ["a", "b", "c"]).of("k").nodes == {"a", "b"}


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"Layers": 3}', '{"Bindings": []}'])
def test_what_the_inspector_does_not_tell_is_read_off_the_name(text):
    origins = Origins(text, ["conv", "act"])

    assert origins.of("conv + act").nodes == {"conv", "act"}
    assert origins.of("{ForeignNode[conv...act]}").nodes == set()


def layer(name, kind, datatype, tactic="", key="Format/Datatype"):
    return {
        "Name": name,
        "LayerType": kind,
        "Inputs": [{"Name": "x", key: datatype}],
        "Outputs": [],
        "TacticName": tactic,
    }


EIGHT = [
    layer("conv1", "CaskConvolution", "Thirty-two wide channel vectorized row major Int8 format"),
    layer("conv2", "CaskConvolution", "Channel major FP16 format where channel % 8 == 0"),
    layer("head", "CaskConvolution", "Row major linear FP32"),
    layer("Reformatting CopyNode", "Reformat", "Row major linear FP32"),
]
ELEVEN = [
    layer("__myl_MulCastAddSilu", "kgen", "Int8", key="Datatype"),
    layer("fused", "gemm", "Half", "sm80_xmma_fprop_implicit_gemm_interleaved_i8i8_i8i32", key="Datatype"),
    layer("tail", "kgen", "Float", key="Datatype"),
]


@pytest.mark.parametrize(
    ("layers", "counts", "reformats", "line"),
    [
        (EIGHT, {"int8": 1, "fp16": 1, "fp32": 1}, 1, "layers 1 int8, 1 fp16, 1 fp32; 1 reformats"),
        (ELEVEN, {"int8": 2, "fp32": 1}, 0, "layers 2 int8, 1 fp32; 0 reformats"),
        ([layer("odd", "Other", "something new")], {"?": 1}, 0, "layers 1 ?; 0 reformats"),
    ],
)
def test_layers_are_counted_by_precision(layers, counts, reformats, line):
    account = plan_account_of(json.dumps({"Layers": layers}))
    assert account.by_precision == counts
    assert account.reformats == reformats
    assert account.line == line
    assert json.loads(json.dumps(account.as_json()))["line"] == line


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"Layers": ["conv1"]}', '{"Layers": 3}', '{"I/O Tensors": []}'])
def test_an_inspector_that_tells_nothing_gives_no_account(text):
    assert plan_account_of(text) is None


@pytest.mark.parametrize("field", ["Inputs", "Outputs", "TacticName", "LayerType", "Name"])
def test_layers_that_lack_a_field_are_counted_all_the_same(field):
    lacking = [{key: value for key, value in one.items() if key != field} for one in EIGHT[:3]]
    assert sum(plan_account_of(json.dumps({"Layers": lacking})).by_precision.values()) == 3


def test_status_shows_the_account():
    report = {
        "route": "qdq-weak",
        "why": "asked for",
        "account": plan_account_of(json.dumps({"Layers": EIGHT})).as_json(),
    }
    expected = "tensorrt int8, qdq-weak: asked for (layers 1 int8, 1 fp16, 1 fp32; 1 reformats)"
    assert engine_record(report=report).line == expected
