from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge.config.schema import StreamConfig
from edge.errors import ConfigError, DatasetError, MissingDependencyError
from edge.media.address import parse_address
from edge.media.ffmpeg import binding as pyav
from edge.media.gstreamer import binding as gst
from edge.media.recorded import read_recording
from edge.media.select import choose_decoder, make_source
from tests.support.clips import CANVAS

HERE = Path("/srv")


def chosen(uri: str, decoder: str = "auto") -> str:
    stream = StreamConfig(id="a", uri=uri, decoder=decoder)
    return choose_decoder(stream, parse_address(uri, base_dir=HERE))


@pytest.fixture
def machine(monkeypatch):
    def be(*, gstreamer: bool = True, nvmm: bool = False, av: bool = True) -> None:
        monkeypatch.setattr(gst, "is_available", lambda: gstreamer)
        monkeypatch.setattr(gst, "has_factories", lambda names: nvmm or "nvv4l2decoder" not in names)
        monkeypatch.setattr(pyav, "is_available", lambda: av)

    return be


@pytest.mark.parametrize(
    ("has", "uri", "decoder"),
    [
        ({"nvmm": True}, "rtsp://camera/", "nvmm"),
        ({"nvmm": True}, "test://", "software"),
        ({}, "rtsp://camera/", "software"),
        ({"gstreamer": False}, "clip.mp4", "pyav"),
    ],
)
def test_auto_takes_the_best_that_is_installed(machine, has, uri, decoder):
    machine(**has)

    assert chosen(uri) == decoder


def test_nothing_installed_says_what_to_install(machine):
    machine(gstreamer=False, av=False)
    with pytest.raises(MissingDependencyError, match="install GStreamer"):
        chosen("rtsp://camera/")


def test_pyav_does_not_read_devices():
    with pytest.raises(ConfigError, match="decoder pyav reads file, rtsp"):
        chosen("v4l2:///dev/video0", decoder="pyav")


def test_unknown_scheme_is_refused():
    with pytest.raises(ConfigError, match="expected one of rtsp"):
        make_source(StreamConfig(id="a", uri="gopher://x"), preprocess=CANVAS, base_dir=HERE)


def test_missing_gstreamer_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "gi", None)
    gst.load.cache_clear()
    with pytest.raises(MissingDependencyError, match="apt install python3-gi"):
        gst.load()
    gst.load.cache_clear()


def test_recording_is_checked(tmp_path):
    images = np.zeros((2, 4, 6, 3), np.uint8)
    np.savez(tmp_path / "good.npz", images=images)
    np.savez(tmp_path / "flat.npz", images=images[0])
    np.savez(tmp_path / "other.npz", frames=images)

    assert read_recording(tmp_path / "good.npz").shape == (2, 4, 6, 3)
    for name in ("flat.npz", "other.npz", "gone.npz"):
        with pytest.raises(DatasetError, match=name):
            read_recording(tmp_path / name)
