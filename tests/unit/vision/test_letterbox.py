"""Expected places of the fitted image are worked out by hand from the definition of a letterbox."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.types import ImageSize, PadPosition, Preprocess
from edge.vision.boxes import fill_border, fit, paste, source_from_canvas_xyxy

sides = st.integers(min_value=1, max_value=5000)


def preprocess(width, height, position=PadPosition.CENTRE):
    return Preprocess(size=ImageSize(width=width, height=height), pad_position=position)


@pytest.mark.parametrize(
    ("source", "canvas", "position", "fitted", "pad"),
    [
        ((1920, 1080), (640, 640), PadPosition.CENTRE, (640, 360), (0, 140)),
        ((1080, 1920), (640, 640), PadPosition.CENTRE, (360, 640), (140, 0)),
        ((853, 480), (640, 640), PadPosition.CENTRE, (640, 360), (0, 140)),
        ((768, 432), (416, 416), PadPosition.TOP_LEFT, (416, 234), (0, 0)),
        ((320, 320), (640, 640), PadPosition.CENTRE, (640, 640), (0, 0)),
        ((500, 375), (640, 640), PadPosition.CENTRE, (640, 480), (0, 80)),
        ((4000, 1), (640, 640), PadPosition.CENTRE, (640, 1), (0, 319)),
    ],
)
def test_fit_places_a_known_image(source, canvas, position, fitted, pad):
    letterbox = fit(ImageSize(width=source[0], height=source[1]), preprocess(*canvas, position))

    assert (letterbox.fitted.width, letterbox.fitted.height) == fitted
    assert (letterbox.pad_left, letterbox.pad_top) == pad


@given(sides, sides, st.sampled_from([(640, 640), (416, 416), (640, 384)]), st.sampled_from(list(PadPosition)))
def test_a_box_comes_back_within_a_pixel_of_the_canvas(width, height, canvas, position):
    letterbox = fit(ImageSize(width=width, height=height), preprocess(*canvas, position))
    box = np.array([[0.1 * width, 0.2 * height, 0.9 * width, 0.8 * height]], np.float32)
    to_canvas = np.array([letterbox.fitted.width / width, letterbox.fitted.height / height] * 2)
    on_canvas = box * to_canvas + np.array([letterbox.pad_left, letterbox.pad_top] * 2)

    back = source_from_canvas_xyxy(on_canvas.astype(np.float32), [letterbox], np.zeros(len(on_canvas), np.int64))

    assert np.abs((back - box) * to_canvas).max() < 0.01


@given(sides, sides)
def test_the_whole_canvas_maps_into_the_frame(width, height):
    letterbox = fit(ImageSize(width=width, height=height), preprocess(640, 640))

    xyxy = source_from_canvas_xyxy(np.array([[-50, -50, 700, 700]], np.float32), [letterbox], np.zeros(1, np.int64))

    assert xyxy.tolist() == [[0, 0, width, height]]


@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from(list(PadPosition)))
def test_border_and_image_cover_the_canvas_exactly(width, height, position):
    settings = preprocess(96, 64, position)
    letterbox = fit(ImageSize(width=width, height=height), settings)
    canvas = np.zeros((64, 96, 3), np.uint8)
    image = np.full((letterbox.fitted.height, letterbox.fitted.width, 3), 7, np.uint8)

    fill_border(canvas, letterbox, pad_value=114)
    paste(image, canvas, letterbox)

    assert (canvas == 7).sum() == image.size
    assert (canvas == 114).sum() == canvas.size - image.size


def test_paste_reads_padded_rows():
    settings = preprocess(640, 640)
    letterbox = fit(ImageSize(width=638, height=638), settings)
    stride = letterbox.fitted.width * 3 + 2
    memory = np.arange(letterbox.fitted.height * stride, dtype=np.uint64).astype(np.uint8)
    shape = (letterbox.fitted.height, letterbox.fitted.width, 3)
    image = np.lib.stride_tricks.as_strided(memory, shape, (stride, 3, 1))
    canvas = np.zeros((640, 640, 3), np.uint8)

    paste(image, canvas, letterbox)

    assert np.array_equal(canvas[5, 10], memory[5 * stride + 30 : 5 * stride + 33])
