"""Head decoding against boxes worked out by hand, and against a slow, obvious decoder of each layout."""

import dataclasses
import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.errors import TensorMismatchError
from edge.types import CandidateRows, HeadFamily, ImageSize
from edge.vision.heads import Head, decode_output, has_scores
from tests.support.slow_detections import STRIDES, candidates

SIZE = ImageSize(width=64, height=32)
CELLS = 8 * 4 + 4 * 2 + 2 * 1
CLASSES = 3


def head(family, *, is_multi_label=False):
    return Head(family=family, size=SIZE, strides=STRIDES, is_multi_label=is_multi_label)


def random_output(family, seed, rows):
    random = np.random.default_rng(seed)
    cells = {HeadFamily.YOLOV5: 3 * CELLS, HeadFamily.YOLOV10: 20}.get(family, CELLS)
    columns = {HeadFamily.YOLOV8: 4 + CLASSES, HeadFamily.YOLOV10: 6}.get(family, 5 + CLASSES)
    output = random.random((rows, cells, columns))
    if family is HeadFamily.YOLOX:
        output[..., :4] = random.normal(0, 1, output[..., :4].shape)
    elif family is HeadFamily.YOLOV10:
        output[..., 5] = random.integers(0, CLASSES, output[..., 5].shape)
    else:
        output[..., :4] *= 64
    output = output.astype(np.float32)
    return output.transpose(0, 2, 1).copy() if family is HeadFamily.YOLOV8 else output


def obvious_decode(family, output, threshold, *, is_multi_label):
    words = {"size": SIZE, "classes": CLASSES, "threshold": threshold, "is_multi_label": is_multi_label}
    return [
        (row, class_id, score, *box)
        for row, one in enumerate(output.astype(float))
        for *box, score, class_id in candidates(family, one, **words)
    ]


@pytest.mark.parametrize("is_multi_label", [False, True])
@pytest.mark.parametrize("family", list(HeadFamily))
@settings(deadline=None)
@given(seed=st.integers(0, 1000), rows=st.integers(1, 3), threshold=st.sampled_from([0.001, 0.25, 0.6, 0.99]))
def test_equals_the_obvious_decoder(family, is_multi_label, seed, rows, threshold):
    output = random_output(family, seed, rows)

    got = decode_output(output, head(family, is_multi_label=is_multi_label), score_threshold=threshold)

    rows_got = np.column_stack([got.row, got.class_id, got.score, got.xyxy])
    expected = np.array(obvious_decode(family, output, threshold, is_multi_label=is_multi_label)).reshape(-1, 7)
    assert rows_got.shape == expected.shape
    np.testing.assert_allclose(rows_got, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("is_multi_label", [False, True])
@pytest.mark.parametrize("family", list(HeadFamily))
@settings(deadline=None)
@given(seed=st.integers(0, 1000), threshold=st.sampled_from([0.25, 0.6, 0.99]), more=st.sampled_from([0.0, 0.2]))
def test_candidates_give_the_same_bits_as_the_whole_output(family, is_multi_label, seed, threshold, more):
    output = random_output(family, seed, 2)
    cells = output.transpose(0, 2, 1) if family is HeadFamily.YOLOV8 else output
    cells[0, seed % cells.shape[1]] = np.nan
    row, cell = np.nonzero(np.ones(cells.shape[:2]))  # all of them: more than needed is allowed
    found = CandidateRows(row=row, cell=cell, values=cells[row, cell], score_threshold=threshold)
    read = functools.partial(
        decode_output, head=head(family, is_multi_label=is_multi_label), score_threshold=threshold + more
    )

    got, expected = read(found), read(output)

    for name in ("row", "cell", "xyxy", "score", "class_id"):
        np.testing.assert_array_equal(getattr(got, name), getattr(expected, name))


def test_candidates_cannot_say_what_lies_below_their_threshold():
    nothing = np.zeros(0, np.int64)
    found = CandidateRows(row=nothing, cell=nothing, values=np.zeros((0, 8), np.float32), score_threshold=0.25)

    assert len(decode_output(found, head(HeadFamily.YOLOV5), score_threshold=0.25).score) == 0
    with pytest.raises(TensorMismatchError, match=r"above 0\.2 are wanted .* above 0\.25 only"):
        decode_output(found, head(HeadFamily.YOLOV5), score_threshold=0.2)


def test_a_yolox_cell_worked_out_by_hand():
    output = np.zeros((1, CELLS, 5 + CLASSES), np.float32)
    # Second level (stride 16) starts after 32 cells; its cell 5 is column 1, row 1.
    output[0, 32 + 5] = [0.5, 0.25, math.log(2), math.log(1.5), 0.8, 0.1, 0.9, 0.2]

    got = decode_output(output, head(HeadFamily.YOLOX), score_threshold=0.5)

    assert got.class_id.tolist() == [1]
    assert got.score.tolist() == [pytest.approx(0.72)]
    # centre (1.5 * 16, 1.25 * 16) = (24, 20), size (32, 24)
    np.testing.assert_allclose(got.xyxy, [[8, 8, 40, 32]], atol=1e-4)


@pytest.mark.parametrize("is_multi_label", [False, True])
@pytest.mark.parametrize("family", [HeadFamily.YOLOV5, HeadFamily.YOLOV8, HeadFamily.YOLOV10])
def test_what_follows_the_scores_is_let_be(family, is_multi_label):
    """Keypoints in pixels and coefficients of masks: the boxes are those without them, to the bit."""
    output = random_output(family, 5, 2)
    axis = 1 if family is HeadFamily.YOLOV8 else 2
    shape = [51 if i == axis else side for i, side in enumerate(output.shape)]
    longer = np.concatenate([output, np.random.default_rng(1).normal(0, 300, shape).astype(np.float32)], axis=axis)
    whole = head(family, is_multi_label=is_multi_label)
    part = dataclasses.replace(whole, classes=CLASSES)

    got = decode_output(longer, part, score_threshold=0.3)
    expected = decode_output(output, whole, score_threshold=0.3)

    assert len(expected.score) > 3
    for name in ("row", "cell", "xyxy", "score", "class_id"):
        np.testing.assert_array_equal(getattr(got, name), getattr(expected, name))
    no_scores = np.s_[:, 4:7] if family is HeadFamily.YOLOV8 else np.s_[:, :, 4]
    longer[no_scores] = 0
    assert not has_scores(longer, part)


@pytest.mark.parametrize("family", [HeadFamily.YOLOV8, HeadFamily.YOLOV10])
@pytest.mark.parametrize(
    ("turn_deg", "xyxy"),
    [
        (0, (20, 25, 60, 35)),
        (90, (35, 10, 45, 50)),
        (-90, (35, 10, 45, 50)),
        (30, (40 - 19.8205, 30 - 14.3301, 40 + 19.8205, 30 + 14.3301)),
        (135, (40 - 17.6777, 30 - 17.6777, 40 + 17.6777, 30 + 17.6777)),
    ],
)
def test_a_turned_box_gives_the_upright_one_around_it(family, turn_deg, xyxy):
    """Centre 40, 30, sides 40 and 10: at 30 degrees 40 cos 30 + 10 sin 30 = 39.64 wide, 40 sin 30 + 10 cos 30 high."""
    scored = [0.1, 0.9, 0.2] if family is HeadFamily.YOLOV8 else [0.9, 1]
    row = np.array([40, 30, 40, 10, *scored, math.radians(turn_deg)], np.float32)
    output = row[None, :, None] if family is HeadFamily.YOLOV8 else row[None, None, :]
    turned = dataclasses.replace(head(family), classes=CLASSES, is_turned=True)

    got = decode_output(output, turned, score_threshold=0.5)

    assert got.class_id.tolist() == [1]
    np.testing.assert_allclose(got.xyxy, [xyxy], atol=1e-3)


def test_a_score_that_is_not_a_number_is_no_detection():
    output = np.full((1, CELLS, 5 + CLASSES), np.nan, np.float32)

    assert len(decode_output(output, head(HeadFamily.YOLOV5), score_threshold=0.1).score) == 0


@pytest.mark.parametrize("family", list(HeadFamily))
def test_the_lowest_score_is_a_score_and_boxes_are_none(family):
    output = random_output(family, 1, 2)
    scores = np.s_[:, 4:] if family is HeadFamily.YOLOV8 else np.s_[:, :, 4:5]
    output[scores] = 0
    assert not has_scores(output, head(family))

    cell = (1, 4, -1) if family is HeadFamily.YOLOV8 else (1, -1, 4)
    output[cell] = 1e-6

    assert has_scores(output, head(family))


def test_of_candidates_only_the_whole_output_tells_that_there_are_no_scores():
    nothing = np.zeros(0, np.int64)
    found = functools.partial(
        CandidateRows, row=nothing, cell=nothing, values=np.zeros((0, 8), np.float32), score_threshold=0.25
    )
    empty, faint = np.zeros((1, CELLS, 8), np.float32), np.full((1, CELLS, 8), 1e-3, np.float32)

    assert has_scores(found(), head(HeadFamily.YOLOV5))
    assert not has_scores(found(whole=lambda: empty), head(HeadFamily.YOLOV5))
    assert has_scores(found(whole=lambda: faint), head(HeadFamily.YOLOV5))
