"""The helpers around GStreamer: launch texts, and caps and messages as every binding gives them.

Those of 1.26 and later (Debian 13) only lend the structure in these.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from edge.media.gstreamer.binding import (
    caps_fields,
    load,
    message_fields,
    read_sections,
    shorten_tracks,
)
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
        structure = self.__structure
        return structure.__enter__() if hasattr(structure, "__enter__") else structure

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


def test_whole_addresses_of_tracks_are_shortened_and_nothing_else(caps):
    """What GStreamer 1.20 is given; later ones need it not, and take it as well."""
    lines = ["v=0", "o=- 1 1 IN IP4 127.0.0.1", "s=x", "t=0 0", "a=control:rtsps://gate/main", "m=video 0 RTP/AVP 96"]
    lines += ["a=control:rtsps://gate/main/1", "a=tool:rtsps://gate", "m=audio 0 RTP/AVP 97", "a=control:trackID=2"]
    sdp = load().sdp
    _, session = sdp.SDPMessage.new()
    sdp.sdp_message_parse_buffer("\r\n".join([*lines, ""]).encode(), session)
    source = Recorder()

    shorten_tracks(source)
    source.signals["on-sdp"](source, session)

    expected = [line.replace("a=control:rtsps://gate/main/1", "a=control:rtsp://gate/main/1") for line in lines]
    assert session.as_text().split() == " ".join(expected).split()


class Recorder:
    def __init__(self):
        self.signals = {}

    def connect(self, signal, callback):
        self.signals[signal] = callback


def test_nobody_else_takes_the_structure_of_caps_or_messages():
    takers = [path for path in EDGE.rglob("*.py") if ".get_structure(" in path.read_text(encoding="utf-8")]

    assert [path.name for path in takers] == ["binding.py"]


def test_software_and_nvmm_are_a_visible_pair():
    software, nvmm = read_sections("software"), read_sections("nvmm")

    assert set(software) == {"h264", "h265", "jpeg", "raw", "any", "scale"}
    assert set(nvmm) == {*software, "jpeg-software"}
    for sections in (software, nvmm):
        assert all("name=decoder" in sections[codec] for codec in set(sections) - {"scale"})
        assert re.search(r"appsink name=sink .*wait-on-eos=false", sections["scale"])


@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_nvmm_decoder_gets_parsed_byte_stream(codec):
    parser, *_, decoder = read_sections("nvmm")[codec].split(" ! ")

    assert parser == f"{codec}parse config-interval=-1"
    # Properties that only some boards have would make the whole text unusable on the others.
    assert decoder == "nvv4l2decoder name=decoder"


@pytest.mark.parametrize("name", ["software", "nvmm"])
@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_key_frames_are_heard_of_before_they_are_decoded(name, codec):
    """A tee serves its branches in their order."""
    text = read_sections(name)[codec]

    assert text.index("tee name=coded ! identity name=keys drop-buffer-flags=delta-unit") < text.index("coded. !")


def test_nvmm_scaler_is_bilinear_and_writes_rgba_to_system_memory():
    elements = read_sections("nvmm")["scale"].split(" ! ")

    assert elements[:3] == [
        "nvvidconv name=scale interpolation-method=1",
        "video/x-raw,format=RGBA",
        "capsfilter name=fitted",
    ]
    assert not any("memory:NVMM" in element for element in elements)


def test_software_scaler_stands_between_two_pins_of_colour():
    elements = [element.split()[0] for element in read_sections("software")["scale"].split(" ! ")]

    assert elements.index("capssetter") < elements.index("videoscale") < elements.index("capsfilter")
    assert elements.index("capsfilter") < elements.index("videoconvert")


def test_nothing_leaks_in_front_of_a_decoder():
    sources = read_sections("sources")

    assert not any("leaky" in text for name, text in sources.items() if name != "newest")


def test_importing_the_room_loads_nothing_heavy():
    code = (
        "import sys, edge.media.select, edge.media.images;"
        "print([name for name in ('gi', 'av', 'cv2') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"
