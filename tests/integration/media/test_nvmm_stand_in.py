"""What Python does with nvmm.launch, on a pipeline of the same shape made of software elements: no board is at hand.

The stand-in has what sets NVMM apart: no `colour` element, and RGBA instead of RGB.
"""

import pytest

from edge.config.schema import StreamConfig
from edge.errors import EndOfStream
from edge.media.address import parse_address
from edge.media.gstreamer import build
from edge.media.gstreamer.binding import load, read_sections, set_if_present
from edge.media.gstreamer.source import GstSource
from tests.support.clips import CANVAS, number_of, write_clip

pytestmark = pytest.mark.slow(reason="further clips and cameras")


def stand_in(name: str) -> dict[str, str]:
    if name != "nvmm":
        return read_sections(name)
    scale = read_sections("nvmm")["scale"]
    scaler = "nvvidconv name=scale interpolation-method=1 ! "
    assert scale.startswith(scaler)
    # Here the conversion takes two elements, and the size must stand between them as it does on the board.
    software = scale.replace(scaler, "videoconvert ! videoscale name=scale ! ")
    return {**read_sections("nvmm"), "h264": read_sections("software")["h264"], "scale": software}


def test_rgba_frames_are_seen_as_rgb(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "read_sections", stand_in)
    path = write_clip(tmp_path / "a.mp4", count=10, width=640, height=360)
    config = StreamConfig(id="board", uri=str(path))
    source = GstSource(config, parse_address(config.uri, base_dir=tmp_path), preprocess=CANVAS, is_nvmm=True)
    source.open()
    frames = [source.read(5.0) for _ in range(10)]
    with pytest.raises(EndOfStream):
        source.read(5.0)
    source.close()

    assert [number_of(frame.image) for frame in frames] == list(range(10))
    image = frames[0].image
    assert (image.shape, image.strides) == ((180, 320, 3), (1280, 4, 1))
    red, _green, blue = image[150, 40]
    assert red > 150 > blue


@pytest.mark.parametrize(("name", "codec"), [("a.avi", "mpeg4"), ("a.webm", "libvpx"), ("a.mov", "mjpeg")])
def test_what_nvdec_does_not_read_here_is_decoded_by_software(tmp_path, monkeypatch, name, codec):
    monkeypatch.setattr(build, "read_sections", stand_in)
    path = write_clip(tmp_path / name, count=10, width=640, height=360, codec=codec)
    config = StreamConfig(id="board", uri=str(path))
    source = GstSource(config, parse_address(config.uri, base_dir=tmp_path), preprocess=CANVAS, is_nvmm=True)
    source.open()
    seen = [number_of(source.read(5.0).image) for _ in range(10)]
    source.close()

    assert seen == list(range(10))


def test_properties_that_a_build_lacks_are_passed_over():
    element = load().gst.ElementFactory.make("videotestsrc", None)
    set_if_present(element, is_live=True, enable_max_performance=True)
    set_if_present(None, anything=1)

    assert element.get_property("is-live") is True
