"""How many cameras fit, with which rate all do, and which module is the smallest."""

import dataclasses
import functools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.capacity.fit import answer_of, smallest
from edge.capacity.loads import loads_of
from edge.capacity.platform import jetson_modes
from edge.capacity.work import ASSUMED, video_from_text
from edge.errors import ConfigError
from tests.unit.capacity.conftest import camera, video

NANO = "orin-nano-8gb"


def of(work, one, count):
    return work(*(dataclasses.replace(one, id=f"c{number}") for number in range(count)))


@pytest.mark.parametrize("name", [NANO, "orin-nano-4gb/7W_AI", "agx-orin-64gb"])
@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_as_many_fit_as_are_said_and_no_more(work, platform, name, codec):
    one = camera(video=video(codec=codec))
    fit = answer_of(work(one), platform(name), headroom=0.3)

    assert loads_of(of(work, one, fit.typical), platform(name)).typical_share <= 0.7 + 1e-9
    assert loads_of(of(work, one, fit.typical + 1), platform(name)).typical_share > 0.7
    assert loads_of(of(work, one, fit.most), platform(name)).least_share <= 1 + 1e-9
    assert loads_of(of(work, one, fit.most + 1), platform(name)).least_share > 1
    assert 0 < fit.typical < fit.most


def test_the_decoder_of_a_nano_is_full_with_eleven(work, platform):
    answer = answer_of(work(camera(video=video())), platform(NANO), headroom=0.0)

    assert answer.most == 11  # as published
    assert answer.loads.first.name == "GPU" or answer.typical == 10


def test_where_one_is_too_many_none_fit(work, platform):
    answer = answer_of(work(camera(video=video(3840, 2160, fps=60), wanted_fps=1)), platform(NANO), headroom=0.3)

    assert (answer.typical, answer.most) == (0, 1)  # one of 4k60 is all that its decoder is published for


def test_cameras_that_are_too_fast_fit_with_the_rate_that_is_said(work, platform):
    cameras = [camera("a", video=video(codec="h264", fps=900)), camera("b", video=video(640, 360, codec="h264"))]
    tight = platform("orin-nano-4gb/7W_AI")
    answer = answer_of(work(*cameras), tight, headroom=0.3)
    capped = [dataclasses.replace(one, wanted_fps=min(one.wanted_fps, answer.typical_fps)) for one in cameras]

    assert not answer.is_served
    assert loads_of(work(*capped), tight).typical_share == pytest.approx(0.7, rel=1e-3)


def test_a_rate_that_decoding_alone_forbids_is_none(work, platform):
    answer = answer_of(work(*(camera(video=video(3840, 2160, fps=60)) for _ in range(3))), platform(NANO), headroom=0.3)

    assert answer.is_beyond_bound
    assert answer.loads.first.name == "decoder"
    assert answer.most_fps == pytest.approx(0, abs=1e-3)


def test_where_all_fit_no_rate_is_said(work, platform):
    answer = answer_of(work(camera(wanted_fps=1)), platform(NANO), headroom=0.3)

    assert answer.is_served
    assert math.isinf(answer.most_fps)
    assert answer.as_json()["max_fps"] == {"most": None, "typical": None}


@settings(deadline=None, max_examples=40)
@given(slow=st.floats(200, 6000), factor=st.floats(1, 4), codec=st.sampled_from(["h264", "h265"]))
def test_a_faster_memory_never_serves_fewer(work, with_memory, slow, factor, codec):
    cameras = work(camera(video=video(codec=codec)))
    less, more = (answer_of(cameras, with_memory(NANO, mhz), headroom=0.3) for mhz in (slow, slow * factor))

    assert more.most >= less.most
    assert more.typical >= less.typical


@settings(deadline=None, max_examples=30)
@given(low=st.floats(0, 0.9), more=st.floats(0, 0.09))
def test_more_headroom_never_serves_more(work, platform, low, more):
    fits = [answer_of(work(camera()), platform(NANO), headroom=share) for share in (low, low + more)]

    assert fits[0].typical >= fits[1].typical
    assert fits[0].most == fits[1].most


def test_the_smallest_is_the_first_that_serves_and_one_with_a_known_decoder(work):
    few = smallest(work(camera(video=video())), list(jetson_modes()), headroom=0.3)
    many = smallest(work(*(camera(video=video(), wanted_fps=1) for _ in range(9))), list(jetson_modes()), headroom=0.3)
    none = smallest(work(camera(video=video(codec="h264", fps=1000))), list(jetson_modes()), headroom=0.99)
    unknown = smallest(work(camera(video=video(codec="h264"))), list(jetson_modes()), headroom=0.3)

    assert few.platform.called == "orin-nano-4gb/7W_AI"
    assert many.platform.machine.key == "orin-nx-8gb"  # 9 of the 11 of a Nano are more than 70 %
    assert none is None
    assert not unknown.loads.is_decoder_known


def test_modes_are_in_order_of_modules_and_watts():
    modes = [(one.machine.key, one.watts) for one in jetson_modes()]
    keys = list(dict.fromkeys(key for key, _ in modes))

    assert keys[:2] == ["orin-nano-4gb", "orin-nano-4gb-super"]
    assert keys[-1] == "agx-orin-64gb"
    assert [watts for key, watts in modes if key == "orin-nx-16gb"] == [10, 15, 25, None]


@pytest.mark.parametrize("headroom", [-0.1, 1.0, 3.0, math.nan, math.inf])
def test_headroom_is_a_share(work, platform, headroom):
    with pytest.raises(ConfigError, match="expected a share from 0 to below 1"):
        answer_of(work(), platform(NANO), headroom=headroom)


def test_a_video_as_people_write_it():
    read = functools.partial(video_from_text, base=ASSUMED)

    assert str(read("1280x720@15/H265")) == "1280x720@15/h265"
    assert str(read("1280x720/hevc")) == "1280x720@30/h265"
    assert str(read(" 640x360@7.5 ")) == "640x360@7.5/h264"
    assert str(read("640x360/raw")) == "640x360@30"
    assert read("1920x1080") == ASSUMED
    for text, words in {
        "": "expected WIDTHxHEIGHT", "1080p": "expected WIDTHxHEIGHT", "1x1": "expected WIDTHxHEIGHT",
        "10x10": "expected sides of 16", "64x99999": "expected sides", "640x360@0": "got 0", "640x360@1e9": "expected",
        "640x360@99999": "at most 1000",
    }.items():  # fmt: skip
        with pytest.raises(ConfigError, match=words):
            read(text)
