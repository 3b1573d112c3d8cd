"""What every engine promises (`edge.protocols.Engine`), over every kind that runs here."""

import dataclasses

import numpy as np
import pytest

from edge.engine.kind import EngineRequest, load_kind
from edge.errors import EngineError, TensorMismatchError
from edge.model.inspect import inspect_model
from edge.quantize.forms import Forms
from edge.types import CandidateRows, Letterbox, Precision
from edge.vision.heads import Detector, head_of
from tests.support import models
from tests.support.engines import kinds_that_run
from tests.support.onnxruntime_engine import OnnxRuntimeEngine
from tests.support.values import canvases, infer

pytestmark = pytest.mark.usefixtures("every_kind")

FAMILIES = ["yolov5", "yolov8", "yolov10", "yolox"]
OPTIONS = {"onnxruntime-as-it-is": {"optimize": False}}
ENGINES = sorted([*kinds_that_run(), "tensorrt", *OPTIONS])


def request_of(name, rows, score_threshold=None):
    kind = load_kind(name.partition("-")[0])
    options = kind.options_type(**OPTIONS.get(name, {}))
    request = EngineRequest(precision=Precision.FP32, max_batch=rows, options=options, score_threshold=score_threshold)
    return kind, request


def make(name, spec, rows, score_threshold=None):
    kind, request = request_of(name, rows, score_threshold)
    return kind.load(kind.build(Forms(spec), request).data, spec, request)


@pytest.fixture(scope="module", params=FAMILIES)
def spec(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / f"{request.param}.onnx"
    return inspect_model(getattr(models, request.param)(path))


@pytest.fixture(params=ENGINES)
def engine(request, spec):
    made = make(request.param, spec, 3)
    yield made
    made.close()


def reference(spec, images):
    return infer(OnnxRuntimeEngine(spec, max_batch=len(images)), images)


def assert_close(spec, output, expected):
    if spec.family.value == "yolov10":  # the k best in order: equal scores may change places
        output, expected = np.sort(output, axis=1), np.sort(expected, axis=1)
    np.testing.assert_allclose(output, expected, rtol=1e-3, atol=1e-3 * float(np.abs(expected).max()))


def test_output_equals_the_independent_reference(engine, spec):
    images = canvases(spec, 1)

    assert_close(spec, infer(engine, images), reference(spec, images))


def test_canvases_start_as_border(engine, spec):
    assert len(engine.canvases) >= 2
    for canvas in engine.canvases:
        assert canvas.dtype == np.uint8
        assert canvas.shape == (3, spec.preprocess.size.height, spec.preprocess.size.width, 3)
        assert (canvas == spec.preprocess.pad_value).all()


def test_fewer_rows_than_the_canvas_has(engine, spec):
    images = canvases(spec, 2)
    engine.canvases[1][:] = images
    engine.start(1, 2)

    output = engine.wait(1)

    assert len(output) == 2
    assert_close(spec, output, reference(spec, images[:2]))


def test_a_canvas_is_filled_while_the_other_is_inferred_and_outputs_do_not_meet(engine, spec):
    first, second = canvases(spec, 3), canvases(spec, 4)
    engine.canvases[0][:] = first
    engine.start(0, 3)
    engine.canvases[1][:] = second
    output_of_first = engine.wait(0)
    engine.canvases[0][:] = 0  # ours again once wait has returned
    engine.start(1, 3)
    output_of_second = engine.wait(1)

    assert_close(spec, output_of_first, reference(spec, first))
    assert_close(spec, output_of_second, reference(spec, second))


def test_rows_that_are_not_there_are_refused(engine):
    for index, count in ((2, 1), (-1, 1), (0, 0), (0, 4)):
        with pytest.raises(TensorMismatchError):
            engine.start(index, count)


def test_the_engine_says_what_it_is(engine, spec):
    assert engine.max_batch == 3
    assert engine.preprocess == spec.preprocess
    assert engine.name.split()[0] in ENGINES


@pytest.mark.parametrize("name", ENGINES)
def test_mean_and_std_are_applied(name, spec):
    settings = dataclasses.replace(spec.preprocess, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4), scale=1 / 255)
    changed = dataclasses.replace(spec, preprocess=settings)
    images = canvases(spec, 5, rows=2)
    engine = make(name, changed, 2)

    assert_close(spec, infer(engine, images), reference(changed, images))
    engine.close()


@pytest.mark.parametrize("name", ENGINES)
def test_candidates_or_raw_the_detections_are_the_same(name, spec):
    images = canvases(spec, 7)
    whole = reference(spec, images)
    best = best_scores(spec, whole[:2])
    gap = int(np.argmax(np.diff(best)))  # between two scores that lie far apart, so that rounding moves none over it
    threshold = float(best[gap : gap + 2].mean())
    engine = make(name, spec, 3, score_threshold=threshold)
    engine.canvases[1][:] = images
    engine.start(1, 2)

    output = engine.wait(1)

    for wanted in (threshold, (1 + threshold) / 2):
        for got, expected in zip(detect(spec, output, wanted), detect(spec, whole[:2], wanted), strict=True):
            np.testing.assert_array_equal(got.class_id, expected.class_id)
            np.testing.assert_allclose(got.score, expected.score, rtol=1e-3)
            np.testing.assert_allclose(got.xyxy, expected.xyxy, rtol=1e-3, atol=0.05)
    if isinstance(output, CandidateRows):
        assert len(output) == len(best) - gap - 1
        assert (np.diff(output.row * whole.size + output.cell) > 0).all()
    engine.close()


def best_scores(spec, output):
    """Best score of each cell, ascending."""
    cells = output.transpose(0, 2, 1) if spec.family.value == "yolov8" else output
    first = {"yolov8": 4, "yolov10": 4}.get(spec.family.value, 5)
    scores = cells[..., 4:5] if spec.family.value == "yolov10" else cells[..., first:]
    return np.sort((scores.max(axis=-1) * (cells[..., 4] if first == 5 else 1)).ravel())


def detect(spec, output, score_threshold):
    size = spec.preprocess.size
    head = head_of(spec)
    detector = Detector(head=head, score_threshold=score_threshold, iou_threshold=0.5, max_detections=300)
    canvas = Letterbox(source=size, fitted=size, canvas=size, pad_left=0, pad_top=0)
    with np.errstate(over="ignore", invalid="ignore"):  # the weights are random: boxes may be infinitely large
        return detector.detect(output, [canvas] * 2)


@pytest.mark.parametrize("name", ENGINES)
def test_what_was_built_is_loaded_without_the_model(name, tmp_path):
    spec = inspect_model(models.yolov8(tmp_path / "m.onnx"))
    kind, request = request_of(name, 2)
    images = canvases(spec, 6, rows=2)
    expected = reference(spec, images)
    plan = kind.build(Forms(spec), request)
    spec.path.unlink()

    engine = kind.load(plan.data, spec, request)

    assert_close(spec, infer(engine, images), expected)
    engine.close()


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("plan", [b"", b"no plan at all" * 100])
def test_what_is_no_plan_is_an_engine_error_that_names_the_model(name, plan, tmp_path):
    spec = inspect_model(models.yolov8(tmp_path / "m.onnx"))
    kind, request = request_of(name, 2)

    with pytest.raises(EngineError, match="m"):
        kind.load(plan, spec, request)
