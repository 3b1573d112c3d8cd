"""Each complaint from the table that causes it, and none from a good one."""

import dataclasses
import math
import struct

import msgspec
import pytest

from edge.calibrate.findings import Severity, facts_of_model, largest_input
from edge.calibrate.lint import lint_table
from edge.calibrate.table import Imported, ModelId, TensorRange
from edge.errors import ModelError
from edge.model.inspect import inspect_model
from edge.model.qdq import insert_qdq
from edge.model.qdq.placement import quantizable_tensors
from edge.types import ImageSize, Preprocess
from tests.support import models
from tests.support.tables import csp, spec_of
from tests.support.values import calibration_table


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    return facts_of_model(inspect_model(models.yolov8(tmp_path_factory.mktemp("m") / "m.onnx")))


@pytest.fixture
def good(facts):
    ranges = {name: 1.5 + index / 7 for index, name in enumerate(facts.activations)}
    ranges["images"] = 1.0
    model = ModelId(name=facts.name, sha256=facts.sha256)
    return calibration_table(ranges, preprocess=facts.preprocess, model=model)


def with_ranges(table, **ranges):
    changed = {name: TensorRange(amax=amax, method="mse") for name, amax in ranges.items()}
    return msgspec.structs.replace(table, tensors={**table.tensors, **changed})


def without(table, *names):
    return msgspec.structs.replace(table, tensors={n: t for n, t in table.tensors.items() if n not in names})


def complaints(table, facts=None):
    return {finding.code: finding for finding in lint_table(table, facts)}


def test_a_good_table_has_no_complaint(good, facts):
    assert lint_table(good, facts) == ()
    assert lint_table(good, None) == ()


@pytest.mark.parametrize(
    ("amax", "code"),
    [
        *((0.0, "zero"), (-0.0, "zero"), (1e-50, "zero"), (math.nan, "nan"), (-0.74, "negative")),
        *((math.inf, "infinite"), (1e300, "infinite"), (-math.inf, "infinite")),
    ],
)
def test_ranges_that_cannot_be_used_are_errors(good, facts, amax, code):
    found = complaints(with_ranges(good, Conv_0=amax), facts)[f"{code}-scale"]

    assert found.severity is Severity.ERROR
    assert found.tensors == ("Conv_0",)
    assert '"Conv_0"' in found.problem
    assert found.fix


@pytest.mark.parametrize(
    "amax",
    [
        math.nextafter(2**-24, 0),
        struct.unpack(">f", bytes.fromhex("00003fef"))[0] * 127,  # what "3fef", cut from "3fef468d", was taken for
        2**-149 * 127,  # the smallest scale that float32 has
        math.nextafter(2**-126, 0) * 127,  # the largest denormal one
    ],
)
def test_a_range_that_no_activation_has_is_an_error(good, facts, amax):
    for model in (facts, None):
        found = complaints(with_ranges(good, Conv_0=amax), model)["tiny-scale"]

        assert found.severity is Severity.ERROR
        assert found.tensors == ("Conv_0",)
        assert f"range {amax:.3g}" in found.problem


def test_the_smallest_ranges_that_calibrators_write_are_no_error(good, facts):
    tensorrts = struct.unpack(">f", bytes.fromhex("30810204"))[0] * 127  # in real caches: 2^-23, of dead tensors

    assert tensorrts == pytest.approx(2**-23)
    assert not complaints(with_ranges(good, Conv_0=tensorrts), facts)
    assert not complaints(with_ranges(good, Conv_0=2**-24), facts)


def imported(table):
    return msgspec.structs.replace(table, imported=Imported(tensorrt="8.6.1", calibrator="EntropyCalibration2"))


def test_a_scale_of_zero_counts_where_the_model_computes_that_tensor(good, facts):
    shape = next(name for name in facts.tensors if name.startswith("Shape_"))
    table = imported(with_ranges(good, **{"const_0": 0.0, shape: 0.0, "ONNXTRT_Broadcast": 0.0}))
    assert "const_0" in facts.tensors

    assert not [one for one in lint_table(table, facts) if one.severity is Severity.ERROR]
    assert complaints(with_ranges(table, Conv_0=0.0), facts)["zero-scale"].tensors == ("Conv_0",)


def test_a_scale_of_zero_in_a_cache_is_no_error_before_the_model_is_known(good):
    found = complaints(imported(with_ranges(good, anything=0.0)))["zero-scale"]

    assert found.severity is Severity.WARNING
    assert "--model" in found.fix
    assert (
        complaints(with_ranges(good, anything=0.0))["zero-scale"].severity is Severity.ERROR
    )  # we write none for those


@pytest.mark.parametrize(
    ("names", "deeper"),
    [
        (lambda i: f"/model.{i // 3}/m.{i % 3}/cv{i % 2}/conv/Conv_output_0", "/model.1/m.9/cv1/conv/Conv_output_0"),
        (lambda i: f"Conv_{10 * i}", "Conv_7"),
        (lambda i: str(100 + i), "99"),
        (lambda i: f"Conv__{i}:0", "Conv__1234:0"),
    ],
    ids=["torch", "counted", "numbers", "tensorflow"],
)
def test_a_convolution_that_the_model_does_not_have_tells_another_network(good, facts, names, deeper):
    weighted = tuple(names(i) for i in range(4))
    model = dataclasses.replace(facts, weighted_outputs=weighted, tensors=facts.tensors | set(weighted))
    found = complaints(with_ranges(good, **{deeper: 3.0}), model)["other-network"]

    assert found.severity is Severity.ERROR
    assert found.tensors == (deeper,)
    assert f'"{deeper}"' in found.problem
    assert "other-network" not in complaints(with_ranges(good, **dict.fromkeys(weighted, 3.0)), model)


@pytest.mark.parametrize(
    "name",
    ["(Unnamed Layer* 56) [Constant]_output", "ONNXTRT_Broadcast_7", "TopK_9 (1)", "Reshape_12345", "Conv_0 (1)"],
)
def test_what_a_parser_adds_or_a_simplifier_takes_away_tells_no_other_network(good, facts, name):
    assert "other-network" not in complaints(with_ranges(good, **{name: 3.0}), facts)


def test_the_cache_of_a_deeper_network_of_the_same_family_is_an_error(tmp_path, good, facts):
    deeper = facts_of_model(inspect_model(models.yolov8(tmp_path / "m.onnx", depth=2)))
    ranges = {name: TensorRange(amax=1.0 + i / 7, method="x") for i, name in enumerate(deeper.activations)}
    table = imported(msgspec.structs.replace(good, tensors={**good.tensors, **ranges}))

    assert complaints(table, facts)["other-network"].severity is Severity.ERROR


@pytest.mark.parametrize("mean", [math.nan, math.inf, -math.inf])
def test_means_that_are_no_numbers_are_an_error(good, facts, mean):
    bad = TensorRange(amax=1.0, method="mse", means=(0.5, mean, 0.5))
    found = lint_table(msgspec.structs.replace(good, tensors={**good.tensors, "images": bad}), facts)

    assert [(one.code, one.severity, one.tensors) for one in found] == [("means", Severity.ERROR, ("images",))]


def test_an_empty_table_is_an_error(good):
    assert complaints(msgspec.structs.replace(good, tensors={}))["empty"].severity is Severity.ERROR


def test_a_table_of_another_model_names_both(good, facts):
    other = msgspec.structs.replace(good, model=ModelId(name="other", sha256="12" * 32))

    assert f"made for model other 121212121212, this model is m {facts.sha256[:12]}" in str(
        complaints(other, facts)["other-model"]
    )


def test_a_table_of_another_preprocess_names_what_differs(good, facts):
    other = Preprocess(size=ImageSize(width=96, height=96), scale=1.0)
    table = msgspec.structs.replace(good, preprocess=other.as_json(), preprocess_sha256=other.sha256)
    found = complaints(table, facts)["other-preprocess"]

    assert found.severity is Severity.ERROR
    assert "scale 1.0 (model: 0.00392" in found.problem
    assert "size" not in found.problem


def test_a_missing_input_of_a_convolution_is_an_error_with_the_nearest_name(good, facts):
    table = with_ranges(without(good, "Mul_2"), Mul_2x=3.0)
    found = complaints(table, facts)

    assert found["coverage"].severity is Severity.ERROR
    assert found["coverage"].tensors == ("Mul_2",)
    count = len(facts.activations)
    assert f"covers {count - 1} of {count} tensors ({(count - 1) / count:.1%})" in found["coverage"].problem
    assert 'the table has "Mul_2x" for "Mul_2"' in found["coverage"].problem
    assert found["unknown-tensors"].tensors == ("Mul_2x",)


def test_a_convolution_that_is_kept_float_needs_no_range(good, facts):
    (reader,) = facts.graph.consumers("Mul_2")
    table = msgspec.structs.replace(without(good, "Mul_2"), keep_float=(reader.name,))

    assert complaints(table, facts)["coverage"].severity is Severity.WARNING


def test_another_missing_tensor_is_a_warning(good, facts):
    assert complaints(without(good, "output0"), facts)["coverage"].severity is Severity.WARNING


def test_coverage_is_an_error_where_pairs_cannot_be_made_and_nowhere_else(tmp_path):
    csp(tmp_path / "m.onnx")
    spec = spec_of(tmp_path / "m.onnx")
    facts = facts_of_model(spec)
    needed = dict.fromkeys(quantizable_tensors(facts.graph), 1.0)
    model = ModelId(name=facts.name, sha256=facts.sha256)
    refused = 0
    for left_out in (None, *needed):
        ranges = {name: 1.0 for name in needed if name != left_out}
        table = calibration_table(ranges, preprocess=facts.preprocess, model=model)
        found = complaints(table, facts)["coverage"]
        try:
            insert_qdq(facts.graph, spec, ranges=ranges, keep_float=())
        except ModelError:
            refused += 1
            assert found.severity is Severity.ERROR
            assert f'"{left_out}"' in found.problem
        else:
            assert found.severity is Severity.WARNING
            assert "nothing to do for Q/DQ pairs" in found.fix
    assert 1 < refused < len(needed) + 1


def test_a_node_that_is_not_there_cannot_be_kept_float(good, facts):
    assert (
        '"/dfl/Conv"'
        in complaints(msgspec.structs.replace(good, keep_float=("/dfl/Conv",)), facts)["unknown-nodes"].problem
    )


def test_tensors_that_tensorrt_adds_are_no_complaint(good, facts):
    assert not complaints(with_ranges(good, **{"(Unnamed Layer* 56) [Constant]_output": 1.0}), facts)


@pytest.mark.parametrize(
    ("amax", "severity", "words"),
    [
        (255.0, Severity.ERROR, "about 255 times too large"),
        (1 / 255, Severity.ERROR, "about 255 times too small"),
        (2.64, Severity.ERROR, "mean, std or scale were others"),  # (1 - 0.406) / 0.225
        (0.4475, Severity.WARNING, "only 44.8% of it"),
        (0.1, Severity.ERROR, "only 10.0% of it"),
        (10.0, Severity.ERROR, "10 times too large"),
    ],
)
@pytest.mark.parametrize("with_model", [True, False])
def test_an_input_that_was_normalised_otherwise(good, facts, amax, severity, words, with_model):
    found = complaints(with_ranges(good, images=amax), facts if with_model else None)["input-range"]

    assert found.severity is severity
    assert words in found.problem


@pytest.mark.parametrize("amax", [1.00024, 0.99976, 0.85])
def test_an_input_as_tensorrt_finds_it_is_good(good, facts, amax):
    assert not complaints(with_ranges(good, images=amax), facts)


@pytest.mark.parametrize(
    ("preprocess", "expected"),
    [
        ({}, 1.0),
        ({"scale": 1.0}, 255.0),
        ({"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}, (1 - 0.406) / 0.225),
        ({"scale": 1.0, "mean": (200.0, 200.0, 200.0)}, 200.0),
    ],
)
def test_the_largest_input_of_a_preprocess(preprocess, expected):
    assert largest_input(Preprocess(size=ImageSize(width=1, height=1), **preprocess)) == pytest.approx(expected)


def test_constants_that_nobody_measured_are_an_error(good, facts):
    constant = {name: TensorRange(amax=4.0, method="x") for name in good.tensors}
    found = complaints(msgspec.structs.replace(good, tensors=constant))["placeholder-ranges"]

    assert found.severity is Severity.ERROR
    assert f"{len(constant)} of {len(constant)} tensors have the same range 4" in found.problem


def test_scores_that_never_saw_an_object_look_random(good, facts):
    assert len(facts.scores) == 1
    assert "the largest score in all calibration images was 0.03" in str(
        complaints(with_ranges(good, **{facts.scores[0]: 0.03}), facts)["random-looking"]
    )


def test_a_range_beyond_float16_is_a_warning(good):
    assert complaints(with_ranges(good, Conv_0=70_000.0))["beyond-float16"].severity is Severity.WARNING


def test_an_unbound_table_is_a_warning_and_errors_come_first(good, facts):
    table = with_ranges(msgspec.structs.replace(good, model=None, preprocess=None, preprocess_sha256=None), Conv_0=0.0)

    assert [(f.severity.value, f.code) for f in lint_table(table, facts)] == [
        ("error", "zero-scale"),
        ("warning", "unbound"),
    ]


def test_indices_of_an_end_to_end_head_are_no_activations(tmp_path):
    found = facts_of_model(inspect_model(models.yolov10(tmp_path / "m.onnx")))

    kinds = {name.split("_")[0] for name in found.activations}
    assert not kinds & {"Tile", "Mod", "Div_i", "Shape"}
    assert "GatherElements" in kinds
    assert not [name for name in found.activations if name.startswith("TopK") and name.endswith("_1")]


def test_a_preprocess_of_another_version_is_not_guessed_at(good):
    table = msgspec.structs.replace(with_ranges(good, images=255.0), preprocess={"scale": "x"})

    assert "input-range" not in complaints(table)
