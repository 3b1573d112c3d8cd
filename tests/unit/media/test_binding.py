"""Caps as every GStreamer gives them: the bindings of 1.26 and later (Debian 13) only lend their structure."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.media.gstreamer.binding import caps_fields, load
from tests.support.rtsp import require_gstreamer

EDGE = Path(__file__).parents[3] / "edge"


class LendingCaps:
    """As `gi.overrides.Gst` of 1.26 has them: what `get_structure` returns has nothing of its own but a `with`."""

    def __init__(self, caps):
        self._structure = caps.get_structure(0)

    def get_structure(self, index):
        assert index == 0
        return Lent(self._structure)


class Lent:
    def __init__(self, structure):
        self.__structure = structure

    def __enter__(self):
        return self.__structure

    def __exit__(self, *_):
        self.__structure = None


@pytest.fixture
def caps():
    require_gstreamer()
    return load().gst.Caps.from_string("video/x-raw,width=1280,height=720,colorimetry=bt709")


@pytest.mark.parametrize("kind", [lambda caps: caps, LendingCaps], ids=["as here", "lent"])
def test_fields_of_caps_are_read_whatever_the_binding_hands_out(caps, kind):
    fields = caps_fields(kind(caps))

    assert fields.get_name() == "video/x-raw"
    assert (fields.get_value("width"), fields.get_value("height")) == (1280, 720)
    assert fields.get_string("colorimetry") == "bt709"
    assert not fields.has_field("format")


def test_nobody_else_takes_the_structure_of_caps():
    takers = [path for path in EDGE.rglob("*.py") if ".get_structure(" in path.read_text(encoding="utf-8")]

    assert [path.name for path in takers] == ["binding.py"]
