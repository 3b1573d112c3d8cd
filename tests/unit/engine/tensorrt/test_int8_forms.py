"""Which forms of INT8 a TensorRT is asked to build, and how they differ in its network."""

import msgspec
import pytest

from edge.engine.kind import EngineRequest, load_kind
from edge.engine.tensorrt.binding import import_tensorrt
from edge.engine.tensorrt.build.build import build_plan, int8_forms
from edge.engine.tensorrt.options import Options
from edge.model.inspect import inspect_model
from edge.quantize.forms import Forms
from edge.types import Precision
from tests.support import fake_tensorrt, models
from tests.support.fake_gpu import DESKTOP
from tests.support.tables import quantized

CENTRED, PLAIN = "qdq-weak", "qdq-weak without centres"


@pytest.fixture
def centred(calibrated):
    spec, table = calibrated
    return Forms(spec, msgspec.structs.replace(table, centred=True, padded=True))


def asked(**options):
    return EngineRequest(precision=Precision.INT8, max_batch=2, options=Options(**options))


def names(version, forms, **options):
    with fake_tensorrt.used(version):
        return [form.name for form in int8_forms(import_tensorrt().abilities, forms, asked(**options))]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("8.6.1", [CENTRED, PLAIN, "implicit-cache"]),
        ("10.3.0", [CENTRED, PLAIN, "implicit-cache"]),
        ("11.4.0.106", ["qdq-strong", "qdq-strong without centres"]),
        ("rtx-1.7.1.116", ["qdq-strong", "qdq-strong without centres"]),
    ],
)
def test_pairs_with_and_without_centres_race_and_scales_where_the_builder_takes_them(centred, version, expected):
    assert names(version, centred) == expected


def test_a_table_without_centres_has_one_form_of_pairs(calibrated):
    assert names("10.3.0", Forms(*calibrated)) == ["qdq-weak", "implicit-cache"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"route": "implicit-cache"}, ["implicit-cache"]),
        ({"route": "qdq-weak"}, [CENTRED, PLAIN]),
        ({"route": "qdq-weak", "centres": False}, [PLAIN]),
        ({"centres": True}, [CENTRED, "implicit-cache"]),
        ({"dla_core": 0}, ["implicit-cache"]),
    ],
)
def test_the_pipeline_leaves_as_much_open_as_it_says(centred, options, expected):
    assert names("10.3.0", centred, **options) == expected


def test_the_pairs_that_a_model_brings_leave_no_choice(tmp_path):
    (tmp_path / "own.onnx").write_bytes(quantized(models.yolov8(tmp_path / "float.onnx")).model)

    assert names("10.3.0", Forms(inspect_model(tmp_path / "own.onnx"))) == ["qdq-weak"]


def test_without_centres_no_float_layer_stands_before_a_quantize(centred):
    counted = {}
    with fake_tensorrt.used("10.3.0"):
        for form in int8_forms(import_tensorrt().abilities, centred, asked()):
            report = build_plan(import_tensorrt(), DESKTOP, centred, form.request).report
            counted[form.name] = report["scales"].get("float_layers_before_quantize")

    assert counted[CENTRED] > 0
    assert counted[PLAIN] == 0


def test_a_kind_says_its_forms_by_the_library_that_is_installed(centred):
    with fake_tensorrt.used("10.3.0"):
        forms = load_kind("tensorrt").int8_forms(centred, asked())

    assert [form.request.options.route for form in forms] == ["qdq-weak", "qdq-weak", "implicit-cache"]
    assert [form.request.options.centres for form in forms] == [True, False, None]
