"""From which nodes of the file a layer of TensorRT came: entries as real builders write them, and names without any."""

import json

import pytest

from edge.engine.tensorrt.profiling import Origins, nodes_of_layer

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
