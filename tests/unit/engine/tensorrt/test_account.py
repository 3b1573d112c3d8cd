"""Which layers compute in which precision, read from what inspectors of different TensorRTs write."""

import json

import pytest

from edge.engine.tensorrt.build.account import plan_account_of
from tests.support.values import engine_record


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
