"""Damage inside a JPEG file, which decoders paint over: found, and not mistaken for what phones and cameras add."""

import os
from pathlib import Path

import cv2
import numpy as np
import pytest

from edge.errors import DatasetError
from edge.media.images import decode_image

PATH = Path("gate.jpg")
END = b"\xff\xd9"
COMMENT = b"\xff\xfe\0\x10\xff\xda comment \xff\xd9 "


def jpeg(*settings):
    """A picture of shapes, whose data are some kilobytes."""
    random = np.random.default_rng(3)
    picture = np.full((240, 320, 3), 90, np.uint8)
    for left, top in random.integers(0, 200, (60, 2)).tolist():
        picture[top : top + 40, left : left + 60] = random.integers(0, 256, 3)
    return cv2.imencode(".jpg", picture, list(settings))[1].tobytes()


BASELINE, PROGRESSIVE = jpeg(), jpeg(cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
GARBAGE = np.random.default_rng(0).integers(0, 255, 600, np.uint8).tobytes()  # no 0xff: no marker tells


def middle(content, put, length):
    at = len(content) // 2
    return content[:at] + put + content[at + length :]


@pytest.mark.parametrize("content", [BASELINE, PROGRESSIVE], ids=["baseline", "progressive"])
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda content: content[: len(content) // 2], id="cut"),
        pytest.param(lambda content: content[: len(content) // 2] + END, id="cut, with an end"),
        pytest.param(lambda content: content[:-2], id="no end"),
        pytest.param(lambda content: content[:-2] + bytes(64), id="zeros for an end"),
        pytest.param(lambda content: middle(content, b"", 300), id="a part is missing"),
        pytest.param(lambda content: middle(content, GARBAGE, len(GARBAGE)), id="garbage"),
        pytest.param(lambda content: middle(content, bytes(700), 700), id="zeros"),
    ],
)
def test_damage_is_refused_and_named(content, damage):
    with pytest.raises(DatasetError, match=r"^gate\.jpg: (the picture is damaged: |expected an image, got .* decode)"):
        decode_image(PATH, damage(content))


@pytest.mark.parametrize("content", [BASELINE, PROGRESSIVE], ids=["baseline", "progressive"])
@pytest.mark.parametrize(
    "more",
    [
        pytest.param(lambda content: content, id="as it is"),
        pytest.param(lambda content: content + b"ftypmp42" + GARBAGE, id="a clip behind it"),
        pytest.param(lambda content: content[:-2] + b"\x7f\x12\x34\0\0" + END, id="bytes before the end"),
        pytest.param(lambda content: content[:2] + COMMENT + content[2:], id="marks in a comment"),
    ],
)
def test_what_does_no_harm_to_a_picture_is_taken(content, more):
    np.testing.assert_array_equal(decode_image(PATH, more(content)), decode_image(PATH, content))


def test_a_damaged_png_says_what_the_library_said():
    content = cv2.imencode(".png", np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8))[1].tobytes()

    with pytest.raises(DatasetError, match=r"cannot decode \(libpng error: "):
        decode_image(PATH, middle(content, bytes(8), 8))


def test_other_lines_on_stderr_are_not_lost(capfd, monkeypatch):
    real = cv2.imdecode

    def talking(*arguments):
        os.write(2, b"an engine says something\n")
        return real(*arguments)

    monkeypatch.setattr(cv2, "imdecode", talking)
    with pytest.raises(DatasetError):
        decode_image(PATH, middle(BASELINE, b"", 300))

    assert capfd.readouterr().err == "an engine says something\n"


def test_a_closed_stderr_is_no_obstacle():
    stderr = os.dup(2)
    os.close(2)
    try:
        shape = decode_image(PATH, BASELINE).shape
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)

    assert shape == (240, 320, 3)
