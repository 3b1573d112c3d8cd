"""TensorRT's own calibrators over the strict fake: their caches, and what goes wrong on the way there."""

import dataclasses

import numpy as np
import pytest

from edge.calibrate.cache import parse_cache
from edge.engine.averaging import model_input
from edge.engine.tensorrt.binding import import_tensorrt
from edge.engine.tensorrt.calibrators import CALIBRATORS, written_cache
from edge.engine.tensorrt.examine import require_calibration
from edge.engine.tensorrt.machine import ThisMachine
from edge.errors import DatasetError, EngineError
from edge.model.inspect import inspect_model
from edge.quantize.forms import Forms
from edge.types import ColourOrder
from tests.support import fake_tensorrt, models
from tests.support.fake_gpu import DESKTOP
from tests.support.onnxruntime_engine import OnnxRuntimeEngine
from tests.support.tables import minmax

NAMES = {
    "entropy2": "EntropyCalibration2",
    "minmax": "MinMaxCalibration",
    "entropy": "EntropyCalibration",
    "legacy": "LegacyCalibration",
}


MADE = []


class HostMemory:
    """Memory that the fake reads; knows whether it was freed."""

    def __init__(self, shape):
        self.array = np.zeros(shape, np.float32)
        self.is_open = True
        MADE.append(self)

    @property
    def address(self):
        assert self.is_open
        return self.array.ctypes.data

    def close(self):
        self.is_open = False


def pictures(count, rows=2, seed=5):
    random = np.random.default_rng(seed)
    return [random.integers(0, 256, (rows, 96, 96, 3), np.uint8) for _ in range(count)]


def cache_of(spec, batches, name="minmax"):
    return written_cache(
        import_tensorrt(),
        DESKTOP,
        Forms(spec),
        name,
        iter(batches),
        HostMemory,
    )


@pytest.mark.parametrize("version", ["8.6.1", "10.3.0", "10.16.1.11"])
@pytest.mark.parametrize("name", CALIBRATORS)
def test_each_calibrator_writes_its_cache(spec, version, name):
    with fake_tensorrt.used(version):
        cache = parse_cache(cache_of(spec, pictures(3), name).decode(), "cache")
    assert cache.tensorrt == ".".join(version.split(".")[:3])
    assert cache.calibrator == NAMES[name]
    assert not MADE[-1].is_open


def test_the_cache_holds_what_the_images_make_of_the_model(spec):
    batches = pictures(2)
    with fake_tensorrt.used():
        cache = parse_cache(cache_of(spec, batches).decode(), "cache")
    feeds = [OnnxRuntimeEngine(spec, max_batch=2)._input(batch) for batch in batches]
    expected = {}
    for feed in feeds:
        for name, amax in minmax(spec.path, {spec.input_name: feed}).items():
            expected[name] = max(expected.get(name, 0.0), amax)
    assert set(cache.scales) <= set(expected)
    assert len(cache.scales) > 20
    for name, scale in cache.scales.items():
        assert scale.value == pytest.approx(expected[name] / 127, rel=1e-4, abs=1e-9), name


def test_pixels_become_what_the_model_reads(spec):
    for batch in pictures(2):
        np.testing.assert_allclose(
            model_input(batch, spec.preprocess), OnnxRuntimeEngine(spec, max_batch=2)._input(batch), rtol=1e-6
        )


def test_what_the_images_raise_comes_out_as_it_is(spec):
    def broken():
        yield pictures(1)[0]
        raise DatasetError("b.jpg cannot be read")

    with fake_tensorrt.used(), pytest.raises(DatasetError, match=r"b\.jpg cannot be read"):
        cache_of(spec, broken())
    assert not MADE[-1].is_open


def test_a_batch_of_another_size_is_refused(spec):
    with fake_tensorrt.used(), pytest.raises(DatasetError, match="has 1 images, the first one 2"):
        cache_of(spec, [*pictures(1), *pictures(1, rows=1)])


def test_no_images_are_refused(spec):
    with fake_tensorrt.used(), pytest.raises(DatasetError, match="no images"):
        cache_of(spec, [])


def test_a_model_of_a_fixed_batch_wants_that_many_images(tmp_path):
    fixed = inspect_model(models.yolov8(tmp_path / "model.onnx", batch=3))
    with fake_tensorrt.used(), pytest.raises(DatasetError, match="batches of 3, got 2"):
        cache_of(fixed, pictures(1))


def test_a_build_that_fails_before_the_cache_is_told_with_its_reason(spec):
    with fake_tensorrt.used(build="CUDA error 700"), pytest.raises(EngineError, match="wrote no cache: CUDA error 700"):
        cache_of(spec, pictures(1))


@pytest.mark.parametrize("version", ["11.4.0.106", "rtx-1.7.1.116"])
def test_a_library_without_calibrators_says_what_to_do(spec, version):
    with fake_tensorrt.used(version), pytest.raises(EngineError, match=r"has no calibrators.*--method"):
        cache_of(spec, pictures(1))


def test_on_a_jetson_with_tensorrt_10_it_is_refused_before_it_crashes():
    jetson = ThisMachine(architecture="aarch64", python="3.10", board="NVIDIA Jetson Orin Nano", l4t="36.4.3")
    with fake_tensorrt.used("10.3.0"):
        with pytest.raises(EngineError, match=r"crashes.*on a workstation"):
            require_calibration(jetson, import_tensorrt())
        require_calibration(ThisMachine(architecture="x86_64", python="3.12"), import_tensorrt())
    with fake_tensorrt.used("8.6.1"):
        require_calibration(jetson, import_tensorrt())


@pytest.mark.parametrize(
    ("name", "is_told"), [("entropy", True), ("legacy", True), ("minmax", False), ("entropy2", False)]
)
def test_calibrators_that_could_lose_names_by_fusion_are_told_not_to(spec, monkeypatch, name, is_told):
    told = []
    with fake_tensorrt.used() as fake:
        monkeypatch.setattr(
            fake.module.IBuilderConfig, "set_quantization_flag", lambda self, flag: told.append(flag.name)
        )
        cache_of(spec, pictures(1), name)
    assert told == (["CALIBRATE_BEFORE_FUSION"] if is_told else [])


def test_a_bgr_model_reads_bgr(spec):
    preprocess = dataclasses.replace(spec.preprocess, colour_order=ColourOrder.BGR, mean=(0.1, 0.2, 0.3), std=(1, 2, 3))
    (batch,) = pictures(1)
    pixels = batch[..., ::-1].astype(np.float64) * preprocess.scale
    expected = ((pixels - preprocess.mean) / preprocess.std).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(model_input(batch, preprocess), expected, rtol=1e-5, atol=1e-6)
