import pytest

from edge.model.families import strides_of
from edge.types import ImageSize


@pytest.mark.parametrize(
    ("cells", "width", "height", "strides"),
    [
        (8400, 640, 640, (8, 16, 32)),  # Ultralytics at 640
        (3549, 416, 416, (8, 16, 32)),  # YOLOX nano
        (34000, 640, 640, (4, 8, 16, 32)),  # P2
        (8500, 640, 640, (8, 16, 32, 64)),  # P6: 25500 anchors / 3
        (2000, 640, 640, (16, 32)),  # tiny
        (5040, 640, 384, (8, 16, 32)),
        (300, 640, 640, None),
        (8400, 320, 320, (4, 8, 16)),
        (8400, 416, 416, None),
        (8399, 640, 640, None),
        (0, 640, 640, None),
        (18900, 640, 640, None),
    ],
)
def test_cells_belong_to_neighbouring_strides(cells, width, height, strides):
    assert strides_of(cells, ImageSize(width=width, height=height)) == strides


def test_size_has_to_be_a_multiple_of_the_largest_stride():
    assert strides_of(81 * 81 + 40 * 40 + 20 * 20, ImageSize(width=650, height=650)) is None
