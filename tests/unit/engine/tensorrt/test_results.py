"""Candidates against the raw output, as detections: every family, values that a broken or huge model may give."""

import logging

import numpy as np
import pytest

from edge.engine.cuda.binding import cuda_driver
from edge.engine.cuda.gpu import DeviceBuffer, Gpu, Owner
from edge.engine.cuda.kernels import Kernels
from edge.engine.tensorrt.slot import CandidateResult, RawResult
from edge.engine.tensorrt.tensors import Tensor, _cells
from edge.types import CandidateRows, HeadFamily, ImageSize
from edge.vision.heads import Head, decode_output
from tests.support.cuda_driver import stand_in
from tests.support.logged import logged

SIZE, STRIDES = ImageSize(width=96, height=64), (8, 16, 32)
CELLS = sum(SIZE.width // stride * (SIZE.height // stride) for stride in STRIDES)
ROWS, THRESHOLD = 3, 0.25
STRANGE = (np.nan, np.inf, -np.inf, 0.0, -0.0, -1.0, THRESHOLD, np.nextafter(np.float32(THRESHOLD), np.float32(1)))


@pytest.fixture(scope="module", params=["integrated", "discrete"])
def gpu(request):
    with stand_in(is_integrated=request.param == "integrated"):
        made = Gpu()
        with made.current():
            yield made
        made.close()


def raw_output(family, classes, dtype, seed=1):
    """Return (ROWS, ...) as `family` has it: boxes of any size, scores on both sides of the threshold."""
    generator = np.random.default_rng(seed)
    columns = {HeadFamily.YOLOV8: 4 + classes, HeadFamily.YOLOV10: 6}.get(family, 5 + classes)
    output = generator.random((ROWS, CELLS, columns)) ** 2
    output[..., :4] = generator.normal(0, 2, (ROWS, CELLS, 4))
    if family is HeadFamily.YOLOV10:
        output[..., 5] = generator.integers(0, classes, (ROWS, CELLS))
    strange = generator.random(output.shape) < 0.02
    strange[..., 5 if family is HeadFamily.YOLOV10 else columns :] = False
    strange[..., :4] = False
    output[strange] = generator.choice(STRANGE, int(strange.sum()))
    output = output.astype(dtype)
    return np.ascontiguousarray(output.transpose(0, 2, 1)) if family is HeadFamily.YOLOV8 else output


def results_of(gpu, family, output, threshold, owner):
    """Return what the host gets of `output`: all of it, and candidates."""
    tensor = Tensor(name="out", row_shape=output.shape[1:], dtype=output.dtype)
    classes = output.shape[1] - 4 if family is HeadFamily.YOLOV8 else output.shape[2] - 5
    cells = _cells(tensor, family, classes)
    source = owner.keep(DeviceBuffer(output.nbytes))
    cuda_driver().memcpy_htod(source.address, output)
    kernels = owner.keep(Kernels(gpu))
    picked = CandidateResult(
        owner, kernels, tensor, cells, source, rows=len(output), score_threshold=threshold, name="m"
    )
    return RawResult(owner, tensor, source, rows=len(output)), picked


def assert_same_detections(found, expected):
    for name in ("row", "cell", "xyxy", "score", "class_id"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("is_multi_label", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("classes", [1, 3, 400])
@pytest.mark.parametrize("family", list(HeadFamily))
def test_detections_of_candidates_are_those_of_the_raw_output(gpu, family, classes, dtype, is_multi_label):
    output = raw_output(family, classes, dtype)
    head = Head(family=family, size=SIZE, strides=STRIDES, is_multi_label=is_multi_label)
    with Owner() as owner:
        raw, picked = results_of(gpu, family, output, THRESHOLD, owner)
        stream = cuda_driver().Stream()
        for rows in (ROWS, 1, 2):
            raw.issue(stream, rows)
            picked.issue(stream, rows)
            stream.synchronize()
            candidates = picked.read(rows)
            assert isinstance(candidates, CandidateRows)
            for threshold in (THRESHOLD, 0.5):
                expected = decode_output(raw.read(rows), head, score_threshold=threshold)
                assert len(expected.row) > 3
                assert_same_detections(decode_output(candidates, head, score_threshold=threshold), expected)


@pytest.mark.parametrize(
    ("family", "shape", "is_picked"),
    [
        (HeadFamily.YOLOV8, (4 + 2 + 1, CELLS), False),
        (HeadFamily.YOLOV8, (4 + 2, CELLS), True),
        (HeadFamily.YOLOV5, (CELLS, 5 + 2 + 32), False),
        (HeadFamily.YOLOV5, (CELLS, 5 + 2), True),
        (HeadFamily.YOLOV10, (300, 6 + 51), True),
    ],
)
def test_cells_are_picked_on_the_gpu_only_where_it_can_tell_scores_from_what_follows_them(family, shape, is_picked):
    tensor = Tensor(name="out", row_shape=shape, dtype=np.dtype("float32"))
    assert (_cells(tensor, family, 2) is not None) == is_picked


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_as_many_candidates_as_places_are_all_given_and_one_more_gives_the_raw_output(gpu, monkeypatch, caplog, beyond):
    output = np.zeros((1, CELLS, 6), np.float32)
    output[0, :20, 4:] = 0.9
    monkeypatch.setattr("edge.engine.tensorrt.slot._PLACES_PER_FRAME", 20 - beyond)
    with Owner() as owner, caplog.at_level(logging.WARNING):
        _, picked = results_of(gpu, HeadFamily.YOLOV5, output, THRESHOLD, owner)
        stream = cuda_driver().Stream()
        picked.issue(stream, 1)
        stream.synchronize()
        found = picked.read(1)
    assert isinstance(found, CandidateRows) == (beyond <= 0)
    assert ("candidates-overflow" in logged(caplog)) == (beyond > 0)
    head = Head(family=HeadFamily.YOLOV5, size=SIZE)
    assert list(decode_output(found, head, score_threshold=THRESHOLD).cell) == list(range(20))
