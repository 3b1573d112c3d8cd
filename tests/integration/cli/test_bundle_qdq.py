"""`edge-deploy bundle` of a model that carries Q/DQ pairs: proven against the model without them, or not at all."""

import json
from pathlib import Path

import onnx
import pytest

from edge.bundle.folder import open_bundle
from edge.bundle.manifest import GoldenFrames, Role
from edge.calibrate.table import read_table
from edge.engine.kind import QdqForm
from edge.evaluate.golden import decode_golden
from edge.model.inspect import inspect_model
from edge.quantize.forms import Forms
from tests.integration.cli.test_bundle import bundle, place  # noqa: F401 - a fixture
from tests.support.demo_model import MODEL, TABLE
from tests.support.tables import pair_of, store, stored, with_activation_scales, with_joint_scale


@pytest.fixture(
    scope="module",
    params=["int8", pytest.param("float", marks=pytest.mark.slow(reason="the other way to store weights"))],
)
def brought(request):
    """The demo's model with the pairs of its table, weights in int8 or in float: what training with them would give."""
    form = QdqForm(weights=request.param)
    return Forms(inspect_model(MODEL), read_table(TABLE)).qdq_model(form).model


def pipeline_of(place, content, change=None, engine="auto"):  # noqa: F811
    model = onnx.load_model_from_string(content)
    if change is not None:
        change(model)
    onnx.save(model, place / "brought.onnx")
    (place / "brought.yaml").write_text(
        "version: 1\nmodel: {onnx: brought.onnx}\nstreams: [{id: east, uri: rtsp://east/main}]\n"
        f"engine: {{kind: {engine}}}\npublish: {{jsonl: '-'}}\n"
    )
    return "brought.yaml"


def golden(place, out, *options, expected=0, pipeline="brought.yaml"):  # noqa: F811
    return bundle(place, "--golden", place / "golden", "-o", out, *options, pipeline=pipeline, expected=expected)


@pytest.mark.slow(reason="bundles twice")
def test_it_is_held_against_the_model_without_its_pairs(place, tmp_path, brought):  # noqa: F811
    pipeline_of(place, brought)

    told = json.loads(golden(place, tmp_path, "--json").stdout)
    mine, float_model = told["golden"], json.loads(golden(place, tmp_path, "--json", pipeline="gates.yaml").stdout)

    assert mine["found"] >= 0.95 * mine["expected"] > 40
    assert 0 < mine["score_error"] < 0.02  # of itself it would be 0
    assert abs(mine["expected"] - float_model["golden"]["expected"]) <= 2  # the same images, the same model
    made = open_bundle(Path(told["bundle"]))
    frames = decode_golden(made.path_of(made.manifest.files_of(Role.GOLDEN)[0]).read_bytes())
    assert frames.model_sha256 == inspect_model(place / "brought.onnx").sha256  # that is what the device has


def test_scales_that_clip_are_refused_with_the_numbers(place, tmp_path, brought):  # noqa: F811
    pipeline_of(place, brought, lambda model: with_activation_scales(model, 0.4))

    told = golden(place, tmp_path, expected=2).stderr

    assert "bundle.golden" in told
    assert not list(tmp_path.glob("*.bundle"))


def with_pairs_that_cannot_be_taken_out(model):
    """Q and DQ of the picture by different zero points: engines compute it, and nothing tells what was meant."""
    store(model, "other", stored(model)["images/zero_point"] + 1)
    pair_of(model, "images")[1].input[2] = "other"


@pytest.mark.slow(reason="bundles")
def test_what_has_no_float_model_is_unproven_and_wants_the_flag(place, tmp_path, brought):  # noqa: F811
    pipeline_of(place, brought, with_pairs_that_cannot_be_taken_out)

    told = golden(place, tmp_path, expected=2).stderr
    assert "bundle.golden.reference" in told
    assert "--no-golden" in told
    assert not list(tmp_path.glob("*.bundle"))

    said = bundle(place, "--no-golden", "-o", tmp_path, pipeline="brought.yaml").stdout
    assert "unproven" in said
    assert open_bundle(next(tmp_path.glob("*.bundle"))).manifest.golden_frames is GoldenFrames.NONE


@pytest.mark.parametrize("options", [(), ("--no-golden",)])
def test_pairs_that_erase_scores_are_never_bundled(place, tmp_path, brought, options):  # noqa: F811
    pipeline_of(place, brought, with_joint_scale)

    told = bundle(place, *options, "-o", tmp_path, pipeline="brought.yaml", expected=2).stderr

    assert 'QuantizeLinear "joint_quantize" (level 5)' in told


def with_zero_point(model):
    store(model, "images/zero_point", stored(model)["images/zero_point"] + 3)


@pytest.mark.slow(reason="bundles")
def test_pairs_that_one_kind_of_engine_refuses_are_told_or_refused_where_it_is_asked_for(
    place, tmp_path, brought  # noqa: F811
):  # fmt: skip
    pipeline_of(place, brought, with_zero_point)
    made = bundle(place, "--no-golden", "-o", tmp_path, "--json", pipeline="brought.yaml")
    assert 'engine tensorrt: QuantizeLinear "images/QuantizeLinear": its zero point is not 0' in made.stderr
    assert len(json.loads(made.stdout)["pairs_not_taken"]) == 1

    pipeline_of(place, brought, with_zero_point, engine="openvino")
    assert "warning: a device may" not in bundle(place, "--no-golden", "-o", tmp_path, pipeline="brought.yaml").stderr

    pipeline_of(place, brought, with_zero_point, engine="tensorrt")
    told = bundle(place, "--no-golden", "-o", tmp_path, pipeline="brought.yaml", expected=2).stderr
    assert "brought.yaml:4: engine.kind: tensorrt does not take the model's pairs" in told
