"""The kernels against numpy: the product's source, compiled for the host, launched by the real pycuda."""

import numpy as np
import pytest

from edge.calibrate.histogram import RangeTally
from edge.engine.cuda.binding import cuda_driver
from edge.engine.cuda.gpu import DeviceBuffer, Gpu, HostArray
from edge.engine.cuda.kernels import AMAX_WORD, NOT_FINITE_WORD, TALLY_WORDS, ZEROS_WORD, CellLayout, Kernels
from edge.types import HISTOGRAM_BINS, ColourOrder, ImageSize, MagnitudeCounts, Preprocess
from tests.support.cuda_driver import stand_in


@pytest.fixture(scope="module")
def gpu():
    with stand_in():
        made = Gpu()
        with made.current():
            yield made
        made.close()


@pytest.fixture(scope="module")
def kernels(gpu):
    made = Kernels(gpu)
    yield made
    made.close()


def on_device(values):
    buffer = DeviceBuffer(values.nbytes)
    cuda_driver().memcpy_htod(buffer.address, np.ascontiguousarray(values))
    return buffer


def on_host(buffer, shape, dtype):
    values = np.empty(shape, dtype)
    cuda_driver().memcpy_dtoh(values, buffer.address)
    buffer.close()
    return values


PREPROCESSES = {
    "rgb": Preprocess(size=ImageSize(width=32, height=16)),
    "bgr": Preprocess(size=ImageSize(width=32, height=16), colour_order=ColourOrder.BGR, scale=1.0),
    "mean and std": Preprocess(
        size=ImageSize(width=32, height=64),
        colour_order=ColourOrder.BGR,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
    ),
    "rows of odd length": Preprocess(size=ImageSize(width=17, height=15), mean=(0.1, 0.2, 0.3)),
}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("preprocess", PREPROCESSES.values(), ids=PREPROCESSES)
def test_normalize_equals_the_formula(kernels, preprocess, dtype):
    size = preprocess.size
    canvas = np.random.default_rng(1).integers(0, 256, (3, size.height, size.width, 3), np.uint8)
    source, target = on_device(canvas), DeviceBuffer(canvas.size * np.dtype(dtype).itemsize)
    stream = cuda_driver().Stream()

    kernels.normalize(stream, source.address, target.address, rows=3, preprocess=preprocess, dtype=dtype)

    stream.synchronize()
    found = on_host(target, (3, 3, size.height, size.width), dtype)
    pixels = canvas[..., ::-1] if preprocess.colour_order is ColourOrder.BGR else canvas
    expected = (pixels.astype(np.float64) * preprocess.scale - preprocess.mean) / preprocess.std
    tolerance = 3e-7 if dtype == "float32" else 5e-4
    np.testing.assert_allclose(
        found, expected.transpose(0, 3, 1, 2), rtol=tolerance, atol=tolerance * float(np.abs(expected).max())
    )
    source.close()


def test_normalize_writes_nothing_behind_its_rows(kernels):
    preprocess = PREPROCESSES["rows of odd length"]
    plane = 17 * 15
    source = on_device(np.zeros((1, 15, 17, 3), np.uint8))
    target = on_device(np.full((2, 3 * plane), 7, np.float32))
    stream = cuda_driver().Stream()

    kernels.normalize(stream, source.address, target.address, rows=1, preprocess=preprocess, dtype="float32")

    stream.synchronize()
    found = on_host(target, (2, 3 * plane), np.float32)
    assert (found[0] != 7).all()
    assert (found[1] == 7).all()
    source.close()


def random_output(layout, rows, cells, columns, dtype):
    output = np.random.default_rng(2).random((rows, cells, columns)).astype(dtype)
    output[0, 3] = np.nan
    return np.ascontiguousarray(output.transpose(0, 2, 1)) if layout is CellLayout.PLANES else output


def best_scores(layout, output):
    cells = output.astype(np.float32)
    if layout is CellLayout.PLANES:
        return cells[:, 4:].max(axis=1)
    if layout is CellLayout.SCORED:
        return cells[..., 4]
    return cells[..., 4] * cells[..., 5:].max(axis=-1)


def run_candidates(kernels, layout, output, *, capacity, threshold):
    rows = len(output)
    cells, columns = output.shape[:0:-1] if layout is CellLayout.PLANES else output.shape[1:]
    cuda, stream = cuda_driver(), cuda_driver().Stream()
    source, counter = on_device(output), on_device(np.zeros(1, np.uint32))
    keys = HostArray((capacity + 1,), np.uint32, is_mapped=True)
    values = HostArray((capacity + 1, columns), np.float32, is_mapped=True)
    keys.array[:], values.array[:] = 0xFFFFFFFF, -1
    kernels.candidates(
        stream,
        source.address,
        rows=rows,
        cells=cells,
        columns=columns,
        layout=layout,
        dtype=output.dtype,
        score_threshold=threshold,
        capacity=capacity,
        found=counter.address,
        keys=keys.address,
        values=values.address,
    )
    stream.synchronize()
    found = int(on_host(counter, 1, np.uint32)[0])
    result = found, keys.array.copy(), values.array.copy()
    for one in (source, keys, values):
        one.close()
    del cuda
    return result


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("layout", list(CellLayout))
@pytest.mark.parametrize("threshold", [0.25, 0.9, 2.0])
def test_candidates_are_the_cells_above_the_threshold_as_they_are(kernels, layout, dtype, threshold):
    columns = 6 if layout is CellLayout.SCORED else 9
    output = random_output(layout, 3, 300, columns, dtype)

    found, keys, values = run_candidates(kernels, layout, output, capacity=900, threshold=threshold)

    row, cell = np.nonzero(best_scores(layout, output) > threshold)
    order = np.argsort(keys[:found])
    np.testing.assert_array_equal(keys[:found][order], row * 300 + cell)
    whole = output.transpose(0, 2, 1) if layout is CellLayout.PLANES else output
    np.testing.assert_array_equal(values[:found][order], whole[row, cell].astype(np.float32))


@pytest.mark.parametrize("layout", list(CellLayout))
def test_candidates_beyond_their_places_are_counted_and_written_nowhere(kernels, layout):
    output = random_output(layout, 2, 100, 6, "float32")
    wanted = int((best_scores(layout, output) > 0.2).sum())

    found, keys, values = run_candidates(kernels, layout, output, capacity=10, threshold=0.2)

    assert found == wanted > 10
    assert len(set(keys[:10])) == 10
    assert keys[10] == 0xFFFFFFFF
    assert (values[10] == -1).all()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("count", [1, 255, 40000])
def test_largest_is_the_largest_magnitude_of_each_row(kernels, count, dtype):
    values = np.random.default_rng(3).normal(0, 5, (3, count)).astype(dtype)
    source, found = on_device(values), on_device(np.zeros(3, np.float32))
    stream = cuda_driver().Stream()

    kernels.largest(stream, source.address, rows=3, count=count, dtype=dtype, found=found.address)

    stream.synchronize()
    np.testing.assert_array_equal(on_host(found, 3, np.float32), np.abs(values).max(axis=1))
    source.close()


def test_what_is_not_a_number_is_the_largest(kernels):
    source, found = on_device(np.array([[1, np.nan, np.inf]], np.float32)), on_device(np.zeros(1, np.float32))
    stream = cuda_driver().Stream()

    kernels.largest(stream, source.address, rows=1, count=3, dtype=np.float32, found=found.address)

    stream.synchronize()
    assert np.isnan(on_host(found, 1, np.float32)).all()
    source.close()


def tallied(kernels, arrays):
    """Count the arrays on the device, one after the other, into one tally; return it as the host takes it over."""
    stream, tally = cuda_driver().Stream(), on_device(np.zeros(TALLY_WORDS, np.uint32))
    for values in arrays:
        source = on_device(values)
        kernels.tally(stream, source.address, count=values.size, dtype=values.dtype, tally=tally.address)
        stream.synchronize()
        source.close()
    words = on_host(tally, TALLY_WORDS, np.uint32)
    return MagnitudeCounts(
        counts=words[:HISTOGRAM_BINS].astype(np.int64),
        zeros=int(words[ZEROS_WORD]),
        not_finite=int(words[NOT_FINITE_WORD]),
        amax=float(words[AMAX_WORD : AMAX_WORD + 1].view(np.float32)[0]),
    )


def edges(exponent):
    """Values on the edges of bins, and next to them on either side."""
    on_edge = np.arange(1, 2048, dtype=np.float32) * np.float32(2.0 ** (exponent - 11))
    return np.concatenate([on_edge, np.nextafter(on_edge, 0), -np.nextafter(on_edge, np.inf, dtype=np.float32)])


RANDOM = np.random.default_rng(4)
ARRAYS = {
    "all zero, of both signs": [np.array([0.0, -0.0] * 5000, np.float32)],
    "one value": [np.array([-0.3], np.float32)],
    "one value ten thousand times": [np.full(10_001, 7.7, np.float32)],
    "a power of two, which opens the next range": [np.array([1, 2, 4, 0.5, -4], np.float32)],
    "denormal": [np.array([2.0**-149, -(2.0**-127), 2.0**-126, 0], np.float32)],
    "below the smallest range": [np.array([2.0**-101, 2.0**-100, 2.0**-120, 3e-31], np.float32)],
    "the largest there are": [np.array([np.finfo(np.float32).max, -1e38, 2.0**127, 1, 2.0**-149], np.float32)],
    "denormal beside the largest": [np.array([np.finfo(np.float32).max, 2.0**-149], np.float32)],
    "on the edges of bins": [edges(0), edges(7), edges(-99)],
    "lengths that fill no block": [
        RANDOM.normal(0, 3, length).astype(np.float32) for length in (1, 255, 257, 4097, 70_001)
    ],
    "ranges that grow and shrink": [
        RANDOM.normal(0, width, 3000).astype(np.float32) for width in (1e-35, 1e-3, 1, 900, 1e30, 2)
    ],
    "a range that doubles by one": [np.array([1.5, 0.1], np.float32), np.array([2.5], np.float32)],
    "every bit pattern of a float16": [
        np.arange(65536, dtype=np.uint16).view(np.float16)[
            np.isfinite(np.arange(65536, dtype=np.uint16).view(np.float16))
        ]
    ],
    "float16": [RANDOM.normal(0, 40, 9999).astype(np.float16), np.zeros(3, np.float16)],
    "SiLU of half a million": [(x := RANDOM.normal(0, 4, 500_000).astype(np.float32)) / (1 + np.exp(-x))],
}


@pytest.mark.parametrize("arrays", ARRAYS.values(), ids=ARRAYS)
def test_a_tally_of_the_gpu_is_the_histogram_of_the_host_to_the_bit(kernels, arrays):
    on_this_host, taken_over = RangeTally(), RangeTally()
    for values in arrays:
        on_this_host.add(values)

    counted = tallied(kernels, arrays)

    taken_over.join(counted)
    assert taken_over.histogram() == on_this_host.histogram()
    assert counted.total == sum(values.size for values in arrays)
    assert counted.not_finite == 0


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_is_not_finite_is_counted_apart_from_the_rest(kernels, dtype):
    values = np.array([1, np.nan, 3, -np.inf, 0, np.inf, -np.nan], dtype)

    counted = tallied(kernels, [np.array([9], dtype), values, np.array([2], dtype)])

    assert (counted.not_finite, counted.zeros, counted.total, counted.amax) == (4, 1, 9, 9.0)
    assert counted.counts.sum() == 4


def test_a_tally_writes_nothing_behind_its_words(kernels):
    stream, values = cuda_driver().Stream(), on_device(np.arange(9000, dtype=np.float32))
    tally = on_device(np.concatenate([np.zeros(TALLY_WORDS, np.uint32), np.full(64, 7, np.uint32)]))

    kernels.tally(stream, values.address, count=9000, dtype=np.float32, tally=tally.address)

    stream.synchronize()
    assert (on_host(tally, TALLY_WORDS + 64, np.uint32)[TALLY_WORDS:] == 7).all()
    values.close()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 255), (3, 5, 256), (2, 7, 10_001), (1, 300, 3)])
def test_means_are_those_of_each_channel_of_each_row(kernels, shape, dtype):
    values = np.random.default_rng(5).normal(3, 40, shape).astype(dtype)
    rows, channels, plane = shape
    source, found = on_device(values), on_device(np.full(rows * channels + 8, 7.0))
    stream = cuda_driver().Stream()

    kernels.means(stream, source.address, rows=rows, channels=channels, plane=plane, dtype=dtype, found=found.address)

    stream.synchronize()
    means = on_host(found, rows * channels + 8, np.float64)
    expected = values.astype(np.float64).mean(axis=2)
    np.testing.assert_allclose(means[:-8].reshape(rows, channels), expected, rtol=1e-13, atol=1e-13)
    assert (means[-8:] == 7).all()
    source.close()


def test_a_mean_of_large_and_small_values_loses_none_of_them(kernels):
    """As sums in float32 would: half of the values are a ten-millionth of the others."""
    values = np.where(np.arange(400_000) % 2, 1e7, 1.0).astype(np.float32).reshape(1, 1, -1)
    source, found = on_device(values), on_device(np.zeros(1))
    stream = cuda_driver().Stream()

    kernels.means(stream, source.address, rows=1, channels=1, plane=400_000, dtype=np.float32, found=found.address)

    stream.synchronize()
    assert on_host(found, 1, np.float64)[0] == 5_000_000.5
    source.close()
