"""What the product asks of a CUDA driver, held to by pycuda and by the calls of its own, over the same library."""

import gc
import os
import sys
import threading
from importlib.util import find_spec

import numpy as np
import pytest

from edge.engine.cuda import driver
from edge.engine.cuda.binding import cuda_driver, cuda_errors
from edge.engine.cuda.gpu import DeviceBuffer, Gpu, Stream, capture
from edge.engine.cuda.kernels import read_kernel_image
from edge.errors import EngineError
from tests.support.cuda_driver import stand_in

pytestmark = pytest.mark.slow_but(reason="further boards: the first row of each test is quick")

REAL = os.environ.get("EDGE_REAL_CUDA")  # of a GPU that may be there without pycuda
COUNTED = ("live", "contexts", "device_bytes")


@pytest.fixture(params=["pycuda", "ctypes"])
def chosen(request, monkeypatch):
    monkeypatch.setenv("EDGE_CUDA", request.param)
    cuda_driver.cache_clear()
    yield request.param
    cuda_driver.cache_clear()


@pytest.fixture
def device(chosen):
    with stand_in(is_integrated=False) as made:
        yield made


@pytest.fixture
def gpu(device, chosen):
    made = Gpu()
    with made.current():
        yield made
        gc.collect()
    made.close()


@pytest.fixture
def cuda(gpu, chosen):
    found = cuda_driver()
    if not REAL or chosen == "ctypes" or find_spec("pycuda") is not None:
        assert found.__name__ == {"pycuda": "pycuda.driver", "ctypes": "edge.engine.cuda.driver"}[chosen]
    return found


def test_everything_that_is_used_of_pycuda_is_here_too():
    with stand_in():
        pycuda = cuda_driver()
    for name in driver.__all__:
        assert hasattr(pycuda, name), name


def test_a_device_tells_what_it_is(cuda, device):
    one = cuda.Device(0)

    assert one.name()
    assert one.compute_capability() >= (7, 5)
    assert one.total_memory() >= 1 << 30
    assert one.get_attribute(cuda.device_attribute.MULTIPROCESSOR_COUNT) > 0
    assert one.get_attribute(cuda.device_attribute.INTEGRATED) in (0, 1)
    free, total = cuda.mem_get_info()
    assert 0 < free <= total


def test_a_device_that_is_not_there_is_an_error_of_the_drivers(cuda):
    with pytest.raises(cuda.Error):
        cuda.Device(99)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
def test_what_is_copied_to_the_gpu_comes_back(cuda, dtype):
    stream, values = cuda.Stream(), np.arange(24).astype(dtype).reshape(4, 6)
    memory, found, later = cuda.mem_alloc(values.nbytes), np.empty_like(values), np.empty((2, 6), dtype)

    cuda.memcpy_htod(int(memory), values)
    cuda.memcpy_dtoh(found, int(memory))
    cuda.memcpy_htod_async(int(memory), values[2:], stream)
    cuda.memcpy_dtoh_async(later, int(memory), stream)
    stream.synchronize()

    np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(later, values[2:])


def test_an_array_with_gaps_is_not_copied(cuda):
    memory = cuda.mem_alloc(64)

    with pytest.raises((ValueError, TypeError)):
        cuda.memcpy_htod(int(memory), np.zeros((4, 8), np.uint8)[:, ::2])


def test_words_are_filled_as_many_as_asked(cuda):
    stream, memory, found = cuda.Stream(), cuda.mem_alloc(40), np.empty(10, np.uint32)

    cuda.memset_d32_async(int(memory), 5, 10, stream)
    cuda.memset_d32_async(int(memory) + 8, 0xFFFFFFFF, 3, stream)
    stream.synchronize()
    cuda.memcpy_dtoh(found, int(memory))

    assert list(found) == [5, 5, *[0xFFFFFFFF] * 3, *[5] * 5]


@pytest.mark.parametrize("shape", [(3,), (2, 5, 7)])
def test_pinned_memory_is_an_array_whose_base_frees_it(cuda, shape):
    array = cuda.pagelocked_empty(shape, np.float32, mem_flags=cuda.host_alloc_flags.DEVICEMAP)
    array[...] = 2.5
    address, back, stream = array.base.get_device_pointer(), np.empty(shape, np.float32), cuda.Stream()

    cuda.memcpy_dtoh_async(back, address, stream)
    stream.synchronize()

    assert (array.shape, array.dtype) == (shape, np.float32)
    assert (back == 2.5).all()
    array.base.free()


def test_a_kernel_gets_its_arguments_as_they_are_packed(cuda):
    """Pointers, words and a 64-bit count behind each other: `copy_peak` (PPQ) moves what it is told to, and no more."""
    module = cuda.module_from_buffer(read_kernel_image(cuda.Device(0).compute_capability()))
    kernel, stream = module.get_function("copy_peak"), cuda.Stream()
    kernel.prepare("PPQ")
    values, found = np.arange(64, dtype=np.uint32), np.empty(64, np.uint32)
    source, target = cuda.mem_alloc(256), cuda.mem_alloc(256)
    cuda.memcpy_htod(int(source), values)
    cuda.memset_d32_async(int(target), 7, 64, stream)

    kernel.prepared_async_call((2, 1), (64, 1, 1), stream, int(source), int(target), 12)
    stream.synchronize()
    cuda.memcpy_dtoh(found, int(target))

    np.testing.assert_array_equal(found[:48], values[:48])
    assert (found[48:] == 7).all()
    with pytest.raises(cuda.Error):
        module.get_function("no_such_kernel")


def test_an_image_that_is_none_is_an_error_of_the_drivers(cuda):
    with pytest.raises(cuda.Error):
        cuda.module_from_buffer(b"no image\0" * 20)


def test_an_event_is_reached_when_what_was_given_before_it_is_done(cuda):
    stream, memory, found = cuda.Stream(), cuda.mem_alloc(1 << 20), np.empty(1 << 18, np.uint32)
    event = cuda.Event(cuda.event_flags.BLOCKING_SYNC | cuda.event_flags.DISABLE_TIMING)

    cuda.memset_d32_async(int(memory), 1, 1 << 18, stream)
    cuda.memcpy_dtoh_async(found, int(memory), stream)
    event.record(stream)
    event.synchronize()

    assert (found == 1).all()
    assert stream.handle != cuda.Stream().handle


def test_what_nothing_refers_to_any_more_is_given_back(cuda, device):
    before = {name: device[name] for name in COUNTED}
    held = [cuda.Stream(), cuda.Event(), cuda.mem_alloc(64), cuda.pagelocked_empty((3,), np.uint8, mem_flags=0)]
    held.append(cuda.module_from_buffer(read_kernel_image(cuda.Device(0).compute_capability())))
    held.append(held[-1].get_function("copy_peak"))
    assert device["live"] == before["live"] + 5

    held.clear()
    gc.collect()

    assert {name: device[name] for name in COUNTED} == before


def test_what_outlives_its_gpu_is_not_given_back_to_the_driver(device):
    """It went with the context: NVIDIA's driver crashes where it is given such a handle."""
    device.may_leave = True
    before = device["live"]
    gpu = Gpu()
    with gpu.current():
        held = [cuda_driver().Stream(), cuda_driver().Event(), cuda_driver().mem_alloc(64)]
    gpu.close()

    held.clear()
    gc.collect()

    assert device["live"] == before + 3


def test_a_capture_and_what_another_thread_does_meanwhile_do_not_break_each_other(gpu, cuda):
    stream, memory, found, problems = Stream(), DeviceBuffer(64), np.zeros(16, np.uint32), []

    def elsewhere():
        try:
            with gpu.current():
                cuda.memcpy_dtoh(np.empty(16, np.uint32), memory.address)
                DeviceBuffer(64).close()
                Stream().synchronize()
        except Exception as error:
            problems.append(error)

    def work():
        cuda.memset_d32_async(memory.address, 5, 8, stream.raw)
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        cuda.memset_d32_async(memory.address + 32, 6, 8, stream.raw)

    graph = capture(stream.handle, work)
    graph.launch(stream.handle)
    stream.synchronize()
    cuda.memcpy_dtoh(found, memory.address)

    assert problems == []
    assert list(found) == [5] * 8 + [6] * 8
    for one in (graph, memory, stream):
        one.close()


def test_memory_that_runs_out_is_told_as_such(cuda):
    told = r"taking it all: the GPU is out of memory \(.*out of memory"
    with pytest.raises(EngineError, match=told), cuda_errors("taking it all"):
        cuda.mem_alloc(1 << 46)


def test_without_a_current_context_a_call_is_refused(device):
    with pytest.raises(cuda_driver().Error, match="context"):
        cuda_driver().mem_alloc(64)


def test_a_pycuda_that_cannot_be_imported_is_told_and_the_driver_called_without_it(monkeypatch, tmp_path, caplog):
    monkeypatch.delenv("EDGE_CUDA", raising=False)
    (tmp_path / "pycuda").mkdir()
    (tmp_path / "pycuda" / "__init__.py").write_text("raise ValueError('numpy.dtype size changed')")
    with stand_in():
        monkeypatch.syspath_prepend(str(tmp_path))
        for name in [one for one in sys.modules if one.partition(".")[0] == "pycuda"]:
            monkeypatch.delitem(sys.modules, name)
        cuda_driver.cache_clear()

        assert cuda_driver() is driver

    assert "numpy.dtype size changed" in caplog.text


def test_without_pycuda_the_driver_is_called_without_it(monkeypatch):
    monkeypatch.delenv("EDGE_CUDA", raising=False)
    with stand_in():
        monkeypatch.setitem(sys.modules, "pycuda", None)
        cuda_driver.cache_clear()
        assert cuda_driver() is driver
