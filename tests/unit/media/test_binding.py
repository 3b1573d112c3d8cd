"""Caps and messages as every GStreamer gives them: bindings of 1.26 and later (Debian 13) only lend their structure."""

from pathlib import Path

import pytest

from edge.media.gstreamer.binding import caps_fields, load, message_fields
from tests.support.rtsp import require_gstreamer

EDGE = Path(__file__).parents[3] / "edge"


class Lending:
    """As `gi.overrides.Gst` of 1.26 has them: what `get_structure` returns has nothing of its own but a `with`."""

    def __init__(self, owner):
        self._owner = owner

    def get_structure(self, *index):
        return Lent(self._owner.get_structure(*index))


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


KINDS = pytest.mark.parametrize("kind", [lambda owner: owner, Lending], ids=["as here", "lent"])


@KINDS
def test_fields_of_caps_are_read_whatever_the_binding_hands_out(caps, kind):
    fields = caps_fields(kind(caps))

    assert fields.get_name() == "video/x-raw"
    assert (fields.get_value("width"), fields.get_value("height")) == (1280, 720)
    assert fields.get_string("colorimetry") == "bt709"
    assert not fields.has_field("format")


@KINDS
def test_fields_of_messages_are_read_whatever_the_binding_hands_out(caps, kind):
    message = load().gst.Message.new_element(None, caps_fields(caps).copy())

    assert message_fields(kind(message)).to_string().startswith("video/x-raw, width=(int)1280")


def test_nobody_else_takes_the_structure_of_caps_or_messages():
    takers = [path for path in EDGE.rglob("*.py") if ".get_structure(" in path.read_text(encoding="utf-8")]

    assert [path.name for path in takers] == ["binding.py"]
