"""One colour rule: the same clip looks the same through every decoder (docs/adr/0009)."""

from pathlib import Path

import av
import cv2
import numpy as np
import pytest

from edge.config.schema import StreamConfig
from edge.media.address import parse_address
from edge.media.gstreamer.binding import caps_fields
from edge.media.gstreamer.source import GstSource
from edge.media.gstreamer.tail import declared_or_bt601
from edge.media.images import resize
from edge.media.select import make_source
from edge.types import ImageSize, Preprocess
from tests.support.clips import BT601, BT709, CANVAS, UNDECLARED, write_clip

pytestmark = pytest.mark.slow_but(reason="further clips and cameras: the first row of each test is quick")

# Solid areas of the numbered picture, lower half: red, green, blue, yellow.
TRUTH = np.array([(200, 40, 40), (40, 180, 60), (50, 70, 210), (220, 200, 60)])


def first_image(path: Path, decoder: str, side: int) -> np.ndarray:
    preprocess = Preprocess(size=ImageSize(width=side, height=side))
    config = StreamConfig(id="colour", uri=str(path), decoder=decoder)
    source = make_source(config, preprocess=preprocess, base_dir=path.parent)
    source.open()
    frame = source.read(5.0)
    assert frame is not None
    image = frame.image.copy()
    source.close()
    return image


def patches(image: np.ndarray) -> np.ndarray:
    height, width = image.shape[:2]
    rows = slice(height * 5 // 8, height * 7 // 8)
    columns = [slice(round((i + 0.3) * width / 4), round((i + 0.7) * width / 4)) for i in range(4)]
    return np.array([image[rows, part].mean((0, 1)) for part in columns])


@pytest.mark.parametrize("codec", ["libx264", "libx265"])
@pytest.mark.parametrize("colour", [UNDECLARED, BT601, BT709], ids=["undeclared", "bt601", "bt709"])
@pytest.mark.parametrize(("width", "height"), [(320, 180), (1280, 720)], ids=["sd", "hd"])
@pytest.mark.parametrize("side", [320, 640])
def test_colours_are_those_that_were_painted(tmp_path, codec, colour, width, height, side):
    suffix = {"libx264": "mp4", "libx265": "mkv"}[codec]  # FFmpeg 8 sometimes refuses to mux two x265 frames into mp4
    path = write_clip(tmp_path / f"a.{suffix}", codec=codec, count=2, width=width, height=height, colour=colour)

    gstreamer, pyav = (first_image(path, decoder, side) for decoder in ("software", "pyav"))

    # The wrong matrix is off by 8 to 30 in these patches.
    assert np.abs(patches(gstreamer) - TRUTH).max() < 5
    assert np.abs(patches(pyav) - TRUTH).max() < 5
    assert np.abs(gstreamer.astype(int) - pyav).mean() < 2.5


@pytest.mark.parametrize("is_in_container", [True, False], ids=["colr", "vui"])
@pytest.mark.parametrize("is_full_range", [True, False], ids=["full", "limited"])
@pytest.mark.parametrize("colour", [BT601, BT709], ids=["bt601", "bt709"])
@pytest.mark.parametrize("name", ["a.mp4", "a.mov", "a.mkv"])
def test_range_is_that_of_the_video_whatever_the_container_says(tmp_path, name, colour, is_full_range, is_in_container):
    path = write_clip(
        tmp_path / name,
        count=2,
        first=0b10101010,
        colour=colour,
        is_full_range=is_full_range,
        is_colour_in_container=is_in_container,
    )
    for decoder in ("software", "pyav"):
        image = first_image(path, decoder, 320)
        assert np.abs(patches(image) - TRUTH).max() < 5, decoder
        assert image[:60].min() < 6, decoder  # the blocks of the number are black and white
        assert image[:60].max() > 249, decoder


@pytest.mark.parametrize("colour", [UNDECLARED, BT709], ids=["undeclared", "bt709"])
def test_scaler_has_no_colour_to_convert(tmp_path, colour):
    """Different colorimetry on its two sides would cost five times the time, and no picture would show it."""
    path = write_clip(tmp_path / "a.mp4", count=4, width=1280, height=720, colour=colour)
    config = StreamConfig(id="colour", uri=str(path))
    address = parse_address(config.uri, base_dir=tmp_path)
    source = GstSource(config, address, preprocess=CANVAS, is_nvmm=False)
    source.open()
    assert source.read(5.0) is not None
    scaler = source.pipeline.get_by_name("scale")
    sides = [caps_fields(scaler.get_static_pad(name).get_current_caps()) for name in ("sink", "src")]
    source.close()

    assert [side.get_value("width") for side in sides] == [1280, 320]
    assert sides[0].get_value("colorimetry") == sides[1].get_value("colorimetry")


def test_clip_and_still_of_the_same_picture_agree(tmp_path):
    path = write_clip(tmp_path / "a.mp4", count=2, width=1280, height=720)
    reader = cv2.VideoCapture(str(path))
    is_read, bgr = reader.read()
    reader.release()
    assert is_read
    still = resize(np.ascontiguousarray(bgr[..., ::-1]), ImageSize(width=640, height=360))

    for decoder in ("software", "pyav"):
        assert np.abs(first_image(path, decoder, 640).astype(int) - still).mean() < 2.5


def test_mjpeg_is_full_range(tmp_path):
    path = tmp_path / "a.avi"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mjpeg", rate=30)
        stream.width, stream.height, stream.pix_fmt = 320, 176, "yuvj420p"
        grey = np.full((176, 320, 3), 0, np.uint8)
        grey[:, 160:] = 255
        frame = av.VideoFrame.from_ndarray(grey, "rgb24").reformat(format="yuvj420p", dst_color_range=2)
        for packet in [*stream.encode(frame), *stream.encode()]:
            container.mux(packet)

    for decoder in ("software", "pyav"):
        image = first_image(path, decoder, 320)
        assert image[:, :140].max() < 6
        assert image[:, 180:].min() > 249


@pytest.mark.parametrize(
    ("declared", "used"),
    [
        (None, "bt601"),
        ("bt601", "bt601"),
        ("bt709", "bt709"),
        ("2:3:0:0", "2:3:0:0"),  # BT.709 matrix, the rest unsaid: as avdec_h264 writes it
        ("2:0:0:0", "2:4:0:0"),  # only the range said: x265's default
        ("0:3:0:0", "2:3:0:0"),
        ("1:4:0:0", "1:4:0:0"),  # JPEG
        ("sRGB", None),
        ("nonsense", "bt601"),
    ],
)
def test_declared_colour_is_honoured_and_the_rest_filled_in(declared, used):
    assert declared_or_bt601(declared, None) == used


def test_what_the_video_leaves_open_is_taken_from_its_container():
    assert declared_or_bt601(None, "bt709") == "bt709"
    assert declared_or_bt601("1:0:0:0", "bt709") == "1:3:0:0"
    assert declared_or_bt601("0:4:0:0", "bt709") == "2:4:0:0"
