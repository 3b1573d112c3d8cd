import re
import subprocess
import sys

import pytest

from edge.errors import ConfigError
from edge.media.gstreamer.binding import joined, parse_sections, read_sections


def test_sections_are_joined_lines_without_comments():
    text = "# a comment\n[one]\na !\n  b\n\n# between\nc\n[two]\nd name=x\n"

    assert parse_sections(text, "x.launch") == {"one": "a ! b c", "two": "d name=x"}


@pytest.mark.parametrize(
    ("text", "where"), [("a ! b\n", "x.launch:1"), ("[]\n", "x.launch:1"), ("[a]\nb\n[a]\n", "x.launch:3")]
)
def test_text_that_is_not_in_sections_is_refused_with_its_line(text, where):
    with pytest.raises(ConfigError, match=re.escape(where)):
        parse_sections(text, "x.launch")


def test_unknown_section_names_those_that_exist():
    with pytest.raises(ConfigError, match=r"x\.launch: there is no section \[c\]; its sections are: a, b"):
        parse_sections("[a]\nx\n[b]\ny\n", "x.launch")["c"]


def test_unknown_launch_text_says_where_it_was_looked_for():
    with pytest.raises(ConfigError, match=r"no-such\.launch is neither in the package"):
        read_sections("no-such")


def test_joined_leaves_out_what_is_empty():
    assert joined("a", "", "b") == "a ! b"


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
        "import sys, edge.media.select, edge.media.stills;"
        "print([name for name in ('gi', 'av', 'cv2') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"
