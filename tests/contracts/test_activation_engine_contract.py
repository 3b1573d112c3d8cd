"""What every engine that shows its inside promises (`edge.protocols.ActivationEngine`, `ObservingEngine`,
`AveragingEngine`), over every
kind here: a calibration gets the same of those that give values and of those that count or add.
"""

import numpy as np
import pytest

from edge.calibrate.histogram import Observer
from edge.engine.kind import load_kind
from edge.errors import TensorMismatchError
from edge.model.graph import load_graph
from edge.model.inspect import inspect_model
from edge.model.qdq import quantizable_tensors
from tests.support import models
from tests.support.engines import kinds_that_run
from tests.support.few_layers import KINDS, attention
from tests.support.onnxruntime_engine import OnnxRuntimeActivations
from tests.support.values import canvases, infer

pytestmark = pytest.mark.usefixtures("every_kind")

ENGINES = [*kinds_that_run(), "tensorrt"]


@pytest.fixture(scope="module", params=["yolov5", "yolox", "yolov5-fixed-at-2", "position", "area"])
def spec(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / f"{request.param}.onnx"
    if request.param in KINDS:
        return inspect_model(attention(path, request.param))
    family, _, is_fixed = request.param.partition("-")
    return inspect_model(getattr(models, family)(path, batch=2 if is_fixed else 1))


@pytest.fixture(scope="module")
def names(spec):
    return quantizable_tensors(load_graph(spec.path))


@pytest.fixture(params=ENGINES)
def engine(request, spec, names):
    made = load_kind(request.param).activations(spec, names, max_batch=3)
    yield made
    made.close()


def run(engine, images, index=0):
    return {name: values.copy() for name, values in infer(engine, images, index).items()}


def observed(engine, images, index=0):
    return dict(infer(engine, images, index))


def test_all_tensors_that_were_asked_for_equal_the_independent_reference(engine, spec, names):
    images = canvases(spec, 1)

    found = run(engine, images)

    expected = run(OnnxRuntimeActivations(spec, names, max_batch=3), images)
    assert set(found) == {*names, spec.output_name}
    for name, values in expected.items():
        assert found[name].dtype == np.float32
        np.testing.assert_allclose(found[name], values, rtol=1e-3, atol=1e-4 * float(np.abs(values).max()))


def test_the_input_is_what_the_model_reads_not_the_canvas(engine, spec):
    images = canvases(spec, 2, rows=1)

    (found,) = run(engine, images)[spec.input_name]

    ordered = images[0][..., ::-1] if spec.preprocess.colour_order.value == "bgr" else images[0]
    np.testing.assert_allclose(found, ordered.transpose(2, 0, 1) * spec.preprocess.scale, rtol=1e-6, atol=1e-6)


def test_a_row_has_the_same_bits_alone_and_among_others_and_on_either_canvas(engine, spec):
    images = canvases(spec, 3)

    together = run(engine, images)

    for row in range(3):
        alone = run(engine, images[row : row + 1], index=1)
        for name, values in alone.items():
            np.testing.assert_array_equal(values, np.split(together[name], 3)[row])


@pytest.mark.parametrize("kind", ENGINES)
def test_of_other_tensors_the_largest_magnitude_alone(kind, spec, names):
    others = [node.outputs[0] for node in load_graph(spec.path).nodes if node.op_type in ("Conv", "Sigmoid")]
    images = canvases(spec, 4)
    engine = load_kind(kind).observing(spec, names, largest_of=others, max_batch=3)

    found = observed(engine, images)

    whole = run(OnnxRuntimeActivations(spec, others, max_batch=3), images)
    step = spec.batch or 1
    for name in others:
        assert found[name].shape == (3,)
        assert found[name].dtype == np.float32
        for first in range(0, 3 // step * step, step):
            largest = np.abs(whole[name][first : first + step]).max()
            np.testing.assert_allclose(found[name][first : first + step], largest, rtol=1e-4)
    engine.close()


@pytest.mark.parametrize("kind", ENGINES)
def test_what_is_observed_is_the_histogram_of_what_is_given_out_to_the_bit(kind, spec, names):
    engine = load_kind(kind).activations(spec, names, max_batch=3)
    observing = load_kind(kind).observing(spec, names, max_batch=3)
    values, seen = Observer(), Observer()

    for seed, rows, index in ((5, 3, 0), (6, 2, 1), (7, 1, 0)):
        images = canvases(spec, seed, rows)
        images[0] = 0  # the input has zeros
        for name, one in run(engine, images, index).items():
            if name in names:
                values.observe(name, one)
        for name, one in observed(observing, images, index).items():
            if name in names:
                seen.observe(name, one)

    assert seen.histograms == values.histograms
    assert set(seen.histograms) == set(names)
    assert seen.histograms[spec.input_name].zeros >= 3 * spec.preprocess.size.width
    engine.close()
    observing.close()


@pytest.mark.parametrize("kind", ENGINES)
def test_rows_behind_the_last_one_are_not_counted(kind, spec, names):
    observing = load_kind(kind).observing(spec, names, max_batch=3)
    observing.canvases[0][:] = 255
    observed(observing, canvases(spec, 8), 0)

    found = observed(observing, np.zeros_like(canvases(spec, 8, 1)), 0)

    observer = Observer()
    observer.observe("input", found[spec.input_name])
    histogram = observer.histograms["input"]
    assert (histogram.zeros, histogram.amax) == (3 * spec.preprocess.size.width * spec.preprocess.size.height, 0.0)
    observing.close()


@pytest.mark.parametrize("kind", ENGINES)
def test_means_are_those_of_each_channel_of_each_row_that_was_given(kind, spec, names):
    images = canvases(spec, 9)
    images[1] //= 9  # rows differ
    averaging = load_kind(kind).averaging(spec, names[:4], max_batch=3)
    averaging.canvases[0][:] = 255
    observed(averaging, images[:, ::-1], 0)

    whole = run(OnnxRuntimeActivations(spec, names[:4], max_batch=3), images)
    for rows, index in ((3, 0), (2, 1), (1, 0)):
        found = observed(averaging, images[:rows], index)
        assert set(found) == set(names[:4])
        for name, means in found.items():
            expected = whole[name][:rows].reshape(rows, whole[name].shape[1], -1).mean(axis=2, dtype=np.float64)
            assert (means.dtype, means.shape) == (np.float64, expected.shape)
            largest = float(np.abs(whole[name]).max())
            np.testing.assert_allclose(means, expected, rtol=1e-3, atol=1e-4 * largest)
    averaging.close()


@pytest.mark.parametrize("kind", ENGINES)
def test_means_of_a_row_are_the_same_bits_alone_and_among_others(kind, spec, names):
    images = canvases(spec, 10)
    averaging = load_kind(kind).averaging(spec, names[:4], max_batch=3)

    together = {name: means.copy() for name, means in observed(averaging, images).items()}

    for row in range(3):
        for name, means in observed(averaging, images[row : row + 1], 1).items():
            np.testing.assert_array_equal(means[0], together[name][row])
    averaging.close()


@pytest.mark.parametrize(("index", "count"), [(99, 1), (-1, 1), (0, 0), (0, 4)])
def test_rows_that_are_not_there_are_refused(engine, index, count):
    with pytest.raises(TensorMismatchError):
        engine.start(index, count)


def test_the_engine_says_what_it_is(engine, spec):
    assert engine.max_batch == 3
    assert engine.preprocess == spec.preprocess
    assert engine.name.split()[0] in ENGINES
    assert all((canvas == spec.preprocess.pad_value).all() for canvas in engine.canvases)
