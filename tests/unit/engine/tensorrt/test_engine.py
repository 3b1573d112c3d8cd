"""The running TensorRT engine: our CUDA code and the real pycuda, over stand-ins for driver and TensorRT.

Whatever the driver refuses to give, one thing after the other: a clear error, and nothing is left behind.
"""

import itertools
import logging

import numpy as np
import pytest

from edge.engine.cuda.binding import cuda_driver
from edge.engine.kind import EngineRequest
from edge.engine.tensorrt.kind import KIND
from edge.errors import EngineError
from edge.model.inspect import ModelOverrides, inspect_model
from edge.quantize.forms import Forms
from edge.types import CandidateRows, ImageSize, Precision
from tests.support import fake_tensorrt, models
from tests.support.cuda_driver import stand_in
from tests.support.logged import logged
from tests.support.onnxruntime_engine import OnnxRuntimeEngine
from tests.support.values import canvases

pytestmark = pytest.mark.slow_but(reason="further boards and versions: the first row of each test is quick")

ROWS = 3
OLD, NEW = "8.6.1", "10.3.0"


@pytest.fixture(scope="module", params=["integrated, 1", "discrete, 2", "integrated, open", "discrete, open"])
def case(request):
    """How a device has its memory, and at which batch the model is fixed, in pairs."""
    return request.param.split(", ")


@pytest.fixture
def device(case):
    with stand_in(is_integrated=case[0] == "integrated") as made:
        yield made


@pytest.fixture(scope="module")
def spec(case, tmp_path_factory):
    batch = int(case[1]) if case[1].isdecimal() else None
    return inspect_model(models.yolov8(tmp_path_factory.mktemp("models") / "m.onnx", batch=batch))


@pytest.fixture
def fake(device):
    with fake_tensorrt.used(NEW) as made:
        made.give = device.give
        yield made


def request_of(rows=ROWS, score_threshold=None):
    options = KIND.options_type()
    return EngineRequest(precision=Precision.FP32, max_batch=rows, options=options, score_threshold=score_threshold)


def make(spec, **wanted):
    request = request_of(**wanted)
    return KIND.load(KIND.build(Forms(spec), request).data, spec, request)


def reference(spec, images):
    step = spec.batch or len(images)
    engine = OnnxRuntimeEngine(spec, max_batch=step)
    padded = np.concatenate([images, np.zeros((-len(images) % step, *images.shape[1:]), np.uint8)])
    outputs = [
        engine._session.run([spec.output_name], {spec.input_name: engine._input(padded[first : first + step])})[0]
        for first in range(0, len(padded), step)
    ]
    return np.concatenate(outputs)[: len(images)]


def infer(engine, index, images):
    engine.canvases[index][: len(images)] = images
    engine.start(index, len(images))
    return engine.wait(index)


def assert_equal(output, expected):
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-4 * float(np.abs(expected).max()))


@pytest.mark.parametrize(("rows", "is_lazy"), [(1, False), (2, True), (3, False), (3, True)])
def test_every_number_of_rows_on_either_canvas_however_late_the_gpu_is(device, fake, spec, rows, is_lazy):
    engine = make(spec)
    device.set(is_lazy=is_lazy)

    for index, seed in [(0, 1), (1, 2), (0, 3), (0, 4), (1, 5)]:
        images = canvases(spec, seed, rows)
        assert_equal(infer(engine, index, images), reference(spec, images))

    engine.close()


@pytest.mark.parametrize("is_lazy", [False, True])
def test_one_canvas_is_filled_and_started_while_the_other_waits_to_be_inferred(device, fake, spec, is_lazy):
    engine = make(spec)
    device.set(is_lazy=is_lazy)
    images = [canvases(spec, seed) for seed in range(6)]

    engine.canvases[0][:] = images[0]
    engine.start(0, ROWS)
    for turn in range(1, 6):
        index = turn % 2
        engine.canvases[index][:] = images[turn]
        engine.start(index, ROWS)
        output = engine.wait(1 - index)
        engine.canvases[1 - index][:] = 0  # ours again
        assert_equal(output, reference(spec, images[turn - 1]))

    engine.close()


def test_a_batch_costs_one_event_and_no_allocation_and_a_fixed_shape_one_graph(device, fake, spec):
    engine = make(spec, score_threshold=0.5)
    images = canvases(spec, 1)
    infer(engine, 0, images)

    with device.counted() as spent:
        for index in (0, 1) * 5:
            infer(engine, index, images)

    assert spent["allocations"] == spent["live"] == 0
    assert spent["synchronizations"] == 10
    assert spent["graph_launches"] == 10
    engine.close()


def test_canvases_are_mapped_where_memory_is_shared_and_copied_where_it_is_not(device, fake, spec):
    with device.counted() as spent:
        engine = make(spec)
        infer(engine, 0, canvases(spec, 1, 2))

    assert (spent["copies_to_device"] == 0) == bool(device.settings["is_integrated"])
    engine.close()


def test_close_leaves_nothing_behind(device, fake, spec):
    before = device["live"]
    engine = make(spec, score_threshold=0.5)
    infer(engine, 1, canvases(spec, 1, 2))
    assert device["live"] > before

    engine.close()
    engine.close()
    assert device["live"] == before


@pytest.mark.parametrize("rows", [2, 3])
def test_close_waits_for_what_runs_before_it_frees(device, fake, spec, rows):
    before = device["live"]
    engine = make(spec)
    device.set(is_lazy=True)
    inferences = device["host_functions"]
    engine.start(0, rows)
    engine.start(1, rows)
    freed_at = []
    engine._owner.callback(lambda: freed_at.append(device["host_functions"]))  # what is kept last is freed first

    engine.close()

    assert freed_at == [inferences + 2 * -(-rows // (spec.batch or rows))]
    assert device["live"] == before


@pytest.mark.parametrize("of", ["engine", "activations", "observing"])
def test_use_after_close_is_an_engine_error(device, fake, spec, of):
    names = [spec.output_name]
    engine = make(spec) if of == "engine" else getattr(KIND, of)(spec, names, max_batch=2)
    engine.start(0, 1)
    engine.close()

    for use in (lambda: engine.start(0, 1), lambda: engine.wait(0), lambda: engine.wait(1)):
        with pytest.raises(EngineError, match="m: the engine is closed"):
            use()

    assert engine.canvases == ()
    assert engine.name.startswith("tensorrt ")


def threshold_of(output, share):
    return float(np.quantile(output[:, 4:].max(axis=1), share))


@pytest.mark.parametrize("rows", [2, 3])
def test_candidates_are_the_cells_of_the_raw_output_in_its_order(device, fake, spec, rows):
    images = canvases(spec, 7, rows)
    whole = make(spec)
    raw = infer(whole, 0, images).copy()
    threshold = threshold_of(raw, 0.9)
    engine = make(spec, score_threshold=threshold)

    for index in (0, 1, 0):
        found = infer(engine, index, images)

        assert isinstance(found, CandidateRows)
        row, cell = np.nonzero(raw[:, 4:].max(axis=1) > threshold)
        np.testing.assert_array_equal(found.row, row)
        np.testing.assert_array_equal(found.cell, cell)
        np.testing.assert_array_equal(found.values, raw[row, :, cell])
    engine.close()
    whole.close()


def test_a_model_with_more_behind_its_scores_gives_its_whole_output_and_its_other_output_is_let_be(
    device, fake, case, tmp_path
):
    """The kernel that picks cells would take coefficients of masks for scores."""
    batch = int(case[1]) if case[1].isdecimal() else None
    spec = inspect_model(models.yolov8_beside(tmp_path / "m.onnx", 32, batch=batch, prototypes=32))
    images = canvases(spec, 7)
    engine = make(spec, score_threshold=0.25)

    assert_equal(infer(engine, 0, images), reference(spec, images))
    engine.close()


def test_more_candidates_than_places_give_the_raw_output_and_say_so_once(device, fake, spec, monkeypatch, caplog):
    monkeypatch.setattr("edge.engine.tensorrt.slot._PLACES_PER_FRAME", 5)
    images = canvases(spec, 8)
    engine = make(spec, score_threshold=0.0001)

    with caplog.at_level(logging.WARNING):
        outputs = [infer(engine, 0, images).copy() for _ in range(3)]

    for output in outputs:
        assert_equal(output, reference(spec, images))
    assert logged(caplog).count("candidates-overflow model=m") == 1
    engine.close()


def test_a_driver_without_graphs_issues_singly_and_says_so(device, fake, spec, caplog):
    device.set(capture_result=801)
    engine = make(spec)
    images = canvases(spec, 9)

    with device.counted() as spent:
        assert_equal(infer(engine, 0, images), reference(spec, images))

    assert spent["graph_launches"] == 0
    assert spent["synchronizations"] == 1
    assert "tensorrt-no-graph" in logged(caplog)
    assert "operation not supported" in caplog.text
    engine.close()


@pytest.mark.parametrize("version", [OLD, NEW, "10.16.1.11", "11.4.0.106"])
def test_from_its_second_time_on_any_number_of_rows_is_one_graph(device, spec, version, monkeypatch):
    with fake_tensorrt.used(version) as fake:
        fake.give = device.give
        made, enqueued = fake.module._made["IExecutionContext"], []
        real = made.execute_async_v3
        monkeypatch.setattr(made, "execute_async_v3", lambda *args: enqueued.append(args) or real(*args))
        engine = make(spec)
        for rows in (1, 2, 3, 1, 2):
            for index in (0, 1):
                images = canvases(spec, 10 * rows + index, rows)
                assert_equal(infer(engine, index, images), reference(spec, images))

        enqueued.clear()
        with device.counted() as spent:
            for index, seed, rows in [(0, 1, 3), (1, 2, 2), (0, 3, 1), (1, 4, 3), (0, 5, 2), (1, 6, 1)]:
                images = canvases(spec, seed, rows)
                assert_equal(infer(engine, index, images), reference(spec, images))

        assert spent["graph_launches"] == 6
        assert spent["live"] == len(enqueued) == 0
        engine.close()


@pytest.mark.parametrize("version", [OLD, NEW, "11.4.0.106"])
def test_however_many_contexts_there_are_they_compute_in_one_memory(device, spec, version):
    with fake_tensorrt.used(version) as fake:
        fake.give = device.give
        engine = make(spec)
        before = device["device_bytes"]
        for rows in (1, 2, 3, 1, 2, 3):
            infer(engine, rows % 2, canvases(spec, rows, rows))

        assert fake.own_activations == 0
        assert device["device_bytes"] == before
        engine.close()


def test_a_plan_of_8_6_that_shares_no_profile_is_refused_where_it_would_not_compute(device, spec, monkeypatch):
    config = fake_tensorrt.builder.IBuilderConfig
    monkeypatch.setattr(config, "set_preview_feature", lambda self, feature, enable: None)
    with fake_tensorrt.used(OLD) as fake:
        fake.give = device.give
        engine = make(spec)
        if spec.batch is None:
            with pytest.raises(EngineError, match="refuses a context the plan's profile"):
                infer(engine, 0, canvases(spec, 1, 2))
        engine.close()


def test_a_capture_that_fails_later_leaves_the_graphs_that_are_there(device, fake, spec, caplog):
    engine = make(spec)
    device.set(capture_result=2)  # memory has run out
    for rows in (2, 2, 1, 1, 2):
        images = canvases(spec, rows, rows)
        assert_equal(infer(engine, 0, images), reference(spec, images))
    assert logged(caplog).count("tensorrt-no-graph") == 1
    with device.counted() as spent:
        infer(engine, 0, canvases(spec, 1))
    assert spent["graph_launches"] == 1
    engine.close()


def test_work_is_given_singly_while_that_is_asked_for(device, fake, spec):
    engine = make(spec)
    images = canvases(spec, 1)
    with device.counted() as spent, engine.singly():
        assert_equal(infer(engine, 0, images), reference(spec, images))
    assert spent["graph_launches"] == 0
    with device.counted() as spent:
        infer(engine, 0, images)
    assert spent["graph_launches"] == 1
    engine.close()


def test_a_model_that_is_open_in_all_sides_runs_at_the_size_that_was_asked_for(device, fake, tmp_path):
    path = models.yolov8(tmp_path / "m.onnx", dynamic_size=True)
    spec = inspect_model(path, overrides=ModelOverrides(input_size=ImageSize(width=96, height=96)))
    engine = make(spec)
    images = canvases(spec, 1, 2)

    assert_equal(infer(engine, 0, images), reference(spec, images))

    engine.close()


def test_the_context_of_a_graph_keeps_its_shape(device, fake, spec, monkeypatch):
    changes = []
    made = fake.module._made["IExecutionContext"]
    real = made.set_input_shape
    monkeypatch.setattr(made, "set_input_shape", lambda self, *args: changes.append(self) or real(self, *args))
    engine = make(spec)

    for rows in (3, 1, 3, 2, 3):
        images = canvases(spec, rows, rows)
        assert_equal(infer(engine, 0, images), reference(spec, images))

    per_context = [changes.count(one) for one in set(changes)]
    assert per_context == ([1] if spec.batch is not None else [1, 1, 1])
    engine.close()


def test_what_tensorrt_does_not_take_is_told_in_its_words_and_leaves_nothing_behind(device, fake, spec):
    plan = KIND.build(Forms(spec), request_of()).data
    fake.faults.deserialize = "Serialization Error in verifyHeader: 0 (Version tag does not match)"

    with pytest.raises(EngineError, match="m: TensorRT does not take the plan: Serialization Error in verifyHeader"):
        KIND.load(plan, spec, request_of())


def test_memory_that_runs_out_is_an_engine_error_and_leaves_nothing_behind(device, fake, spec):
    plan = KIND.build(Forms(spec), request_of()).data
    device.set(memory_bytes=device["device_bytes"] + 100_000)

    with pytest.raises(EngineError, match=r"m: taking \d+ bytes of the GPU's memory: the GPU is out of memory"):
        KIND.load(plan, spec, request_of())


def test_a_gpu_without_kernels_is_refused(device, fake, spec):
    device.set(major=6, minor=2)
    fake.faults.capability = (6, 2)

    with pytest.raises(EngineError, match=r"no kernels for a GPU of compute capability 6\.2"):
        make(spec)


def test_a_context_that_is_lost_is_an_engine_error_and_closing_still_works(device, fake, spec):
    engine = make(spec)
    device.set(is_lazy=True, lost_after_launches=device["launches"])

    with pytest.raises(EngineError, match=r"m: waiting for an inference: .*illegal memory access"):
        infer(engine, 0, canvases(spec, 1))
    with pytest.raises(EngineError, match="illegal memory access"):
        engine.start(1, 1)

    engine.close()


def test_an_inference_that_tensorrt_refuses_is_told_in_its_words(device, fake, spec):
    device.set(capture_result=801)
    engine = make(spec)
    fake.faults.execute = "enqueueV3: Error Code 3: the context is not ready"

    with pytest.raises(EngineError, match="m: TensorRT refuses inference: enqueueV3: Error Code 3"):
        engine.start(0, ROWS)

    engine.close()


def test_a_plan_for_fewer_frames_is_refused(device, fake, spec):
    plan = KIND.build(Forms(spec), request_of()).data

    with pytest.raises(EngineError, match="the plan is for 3 frames at once, 9 are wanted"):
        KIND.load(plan, spec, request_of(rows=9))


RTX = "rtx-1.7.1.116"


@pytest.fixture
def rtx(device):
    device.set(major=8, minor=6)
    with fake_tensorrt.used(RTX, capability=(8, 6)) as made:
        made.give = device.give
        yield made


def test_tensorrt_for_rtx_compiles_when_it_is_built_and_captures_by_itself(device, rtx, spec):
    plan = KIND.build(Forms(spec), request_of()).data
    compiled = rtx.compilations
    assert compiled == (1 if spec.batch is not None else ROWS)

    engine = KIND.load(plan, spec, request_of())
    with device.counted() as spent:
        for rows in (1, 2, 3, 1, 2, 3):
            images = canvases(spec, rows, rows)
            assert_equal(infer(engine, rows % 2, images), reference(spec, images))

    assert rtx.compilations == compiled
    assert spent["graph_launches"] == 0
    assert rtx.own_activations == 2  # one context while it was built, and one now
    engine.close()


def test_what_another_driver_compiled_is_compiled_again_and_told(device, rtx, spec, caplog):
    plan = KIND.build(Forms(spec), request_of()).data
    refused = rtx.module._made["IRuntimeCache"]
    refused.deserialize = lambda self, blob: False
    before = rtx.compilations

    engine = KIND.load(plan, spec, request_of())
    images = canvases(spec, 1)

    assert_equal(infer(engine, 0, images), reference(spec, images))
    assert rtx.compilations == before + 1
    assert "tensorrt-not-compiled" in logged(caplog)
    engine.close()


COUNTED = ("live", "contexts", "device_bytes")


@pytest.mark.parametrize("is_integrated", [True, False])
@pytest.mark.parametrize("kind", ["mem_alloc", "pagelocked_empty", "Stream", "Event"])
def test_the_nth_that_is_refused_leaves_nothing_behind(tmp_path, monkeypatch, kind, is_integrated):
    spec, request = inspect_model(models.yolov8(tmp_path / "m.onnx")), request_of(score_threshold=0.5)
    with stand_in(is_integrated=is_integrated) as device, fake_tensorrt.used() as fake:
        fake.give = device.give
        plan = KIND.build(Forms(spec), request).data
        cuda = cuda_driver()
        real, before = getattr(cuda, kind), {name: device[name] for name in COUNTED}
        told: list[str] = []
        for refused in itertools.count():
            made = itertools.count()

            def make(*args, made=made, refused=refused, **more):
                if next(made) == refused:
                    raise cuda.MemoryError(kind, 2, "out of memory")
                return real(*args, **more)

            monkeypatch.setattr(cuda, kind, make)
            try:
                engine = KIND.load(plan, spec, request)
            except EngineError as error:
                told.append(error.problem)
                assert {name: device[name] for name in COUNTED} == before
                continue
            infer(engine, 0, canvases(spec, 7))
            engine.close()
            break
        assert len(told) == refused >= (1 if kind == "Stream" else 2)
        assert all(one.startswith("m: ") for one in told)
