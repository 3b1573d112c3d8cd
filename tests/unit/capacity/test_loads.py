"""What a pipeline takes of each resource, counted by hand; and that more work never takes less."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.capacity.fit import answer_of
from edge.capacity.loads import Interval, loads_of
from edge.capacity.platform import evidence, factors_of
from edge.roofline.bound import bound_of_model
from edge.roofline.machines import find_machine
from edge.types import Precision
from tests.unit.capacity.conftest import camera, video

NANO = "orin-nano-8gb"


def load(loads, name):
    return next(one for one in loads.each if one.name == name)


def test_gpu_by_hand(work, model, platform):
    loads = loads_of(work(*(camera(wanted_fps=10) for _ in range(6)), max_frames=4), platform(NANO))
    bound = bound_of_model(model.account(4), find_machine(NANO))
    factors = factors_of(evidence().engine)
    typical_s = factors.of_least * bound.least_s + factors.layer_s * len(bound.layers)

    assert loads.frames == 4
    assert loads.batch_s.least == pytest.approx(bound.floor_s)
    assert loads.batch_s.typical == pytest.approx(typical_s)
    assert load(loads, "GPU").share.least == pytest.approx(60 / 4 * bound.floor_s)
    assert load(loads, "GPU").share.typical == pytest.approx(60 / 4 * typical_s)
    assert loads.latency_s.typical == pytest.approx(0.02 + typical_s)


def test_one_camera_waits_for_nobody(work, platform):
    loads = loads_of(work(camera()), platform(NANO))

    assert loads.latency_s == loads.batch_s


def test_bandwidth_by_hand(work, model, platform):
    loads = loads_of(work(camera(video=video(1280, 720, fps=25), wanted_fps=5)), platform(NANO))
    moved = 5 * model.account(1).moved_bytes + 2 * 1.5 * 1280 * 720 * 25

    assert load(loads, "memory bandwidth").used.typical == pytest.approx(moved)
    assert load(loads, "memory bandwidth").share.typical == pytest.approx(moved / 68.256e9)


def test_weights_that_no_cache_holds_are_read_for_each_batch(work, model, platform):
    agx = platform("agx-orin-64gb")
    large = dataclasses.replace(model)
    account = model.account(4)
    grown = dataclasses.replace(account.layers[0], weight_bytes=100 << 20)
    whole = dataclasses.replace(account, layers=(grown, *account.layers[1:]))
    object.__setattr__(large, "spec", model.spec)
    from edge.capacity import work as module

    known = module._account
    try:
        module._account = lambda one, *rest: whole if one is large else known(one, *rest)
        loads = loads_of(work(*(camera(wanted_fps=8) for _ in range(4)), of=large), agx)
    finally:
        module._account = known

    beyond = whole.weight_bytes - 4 * 2**20
    assert load(loads, "memory bandwidth").used.least == pytest.approx(8 * beyond)
    assert loads.batch_s.least >= beyond / agx.machine.bytes_per_s


@pytest.mark.parametrize(
    ("name", "sent", "least", "typical"),
    [
        (NANO, video(), 1920 * 1080 * 30 / (11 * 1920 * 1080 * 30), 1 / 10),  # five of 1080p60 are ten of 1080p30
        (NANO, video(fps=60), 1 / 5.5, 1 / 5),
        (NANO, video(3840, 2160), 4 / 11, 1 / 2),
        ("agx-orin-64gb", video(3840, 2160), 1 / 7, 1 / 6),
        ("agx-orin-64gb", video(7680, 4320), 4 / 7, 1),
        (NANO, video(1280, 720), 4 / 9 / 11, 4 / 9 / 10),
        ("agx-thor-t5000", video(codec="h264"), 30 / 1434, 30 / 1434),
    ],
)
def test_decoder_by_hand(work, platform, name, sent, least, typical):
    share = platform(name).decoder_load(sent)

    assert (share.least, share.typical) == (pytest.approx(least), pytest.approx(typical))


def test_what_nobody_published_of_a_decoder_is_said_and_not_counted(work, platform):
    both = loads_of(work(camera(video=video()), camera(video=video(codec="h264"))), platform(NANO))
    none = loads_of(work(camera(video=video(codec="h264"))), platform(NANO))
    raw = loads_of(work(camera(video=video(codec=None))), platform(NANO))

    assert load(both, "decoder").note == "how much h264 this decoder does is not published: not counted"
    assert load(both, "decoder").share.typical == pytest.approx(1 / 10)
    assert load(none, "decoder").share == Interval(least=None, typical=None)
    assert load(raw, "decoder").share == Interval(least=0, typical=0)
    assert (both.is_decoder_known, none.is_decoder_known, raw.is_decoder_known) == (False, False, True)


def test_messages_from_heartbeats_to_full_frames(work, platform):
    def bits(mode):
        two = work(camera(wanted_fps=10), camera(wanted_fps=20), mode=mode)
        return load(loads_of(two, platform(NANO)), "broker").used

    full = 8 * 30 * (465 + 12 * 89)
    assert bits("change") == Interval(least=8 * 2 * 465, typical=full)
    assert bits("all") == Interval(least=8 * 30 * 465, typical=full)
    assert bits("nonempty") == Interval(least=0, typical=full)


def test_the_size_of_a_message_is_what_our_encoder_makes():
    from tests.support.wire_messages import detections

    size = evidence().host.message_bytes
    for count in (0, 12):
        assert len(detections(12345, count=count).encode()) == pytest.approx(
            size.empty + count * size.for_object, abs=5
        )


def test_a_discrete_gpu_has_a_bound_and_nothing_typical(work, platform):
    loads = loads_of(work(camera(video=video(codec="h264"))), platform("rtx-3080"))

    assert loads.batch_s.least > 0
    assert loads.batch_s.typical is None
    assert loads.typical_share is None
    assert load(loads, "processor").used.typical == pytest.approx(30 * (0.68 + 2.85) / 1e3)
    assert not loads.is_served(0.0)


def test_a_machine_whose_peaks_are_not_known_has_no_answer(work, platform):
    found = answer_of(work(), platform("agx-thor-t5000"), headroom=0.3)

    assert (found.loads, found.as_json()["cameras"], found.is_beyond_bound) == (None, None, False)


def test_a_model_of_a_fixed_batch_runs_several_times_and_is_bound_as_if_once(work, model, platform):
    fixed = dataclasses.replace(model, spec=dataclasses.replace(model.spec, batch=1))
    cameras = [camera(wanted_fps=10) for _ in range(4)]
    free, one = (loads_of(work(*cameras, of=of), platform(NANO)) for of in (model, fixed))
    single = loads_of(work(camera()), platform(NANO))

    assert one.batch_s.least == pytest.approx(free.batch_s.least)
    assert one.batch_s.typical == pytest.approx(4 * single.batch_s.typical)


CAMERAS = st.lists(
    st.builds(
        lambda width, fps, share, codec: camera(
            video=video(width, width * 9 // 16, fps=fps, codec=codec), wanted_fps=fps * share
        ),
        st.integers(320, 3840), st.floats(1, 60), st.floats(0.05, 1), st.sampled_from(["h264", "h265", None]),
    ),
    min_size=1, max_size=12,
)  # fmt: skip
NAMES = st.sampled_from(["orin-nano-8gb", "orin-nano-4gb/7W_AI", "agx-orin-64gb/MODE_30W", "rtx-3080"])


def values(loads):
    return [
        value or 0.0 for one in loads.each for part in (one.used, one.share) for value in (part.least, part.typical)
    ]


def no_less(more, less):
    return all(a >= b * (1 - 1e-9) for a, b in zip(values(more), values(less), strict=True))


@settings(deadline=None, max_examples=60)
@given(cameras=CAMERAS, name=NAMES, max_frames=st.integers(1, 8))
def test_one_more_camera_never_takes_less(work, platform, cameras, name, max_frames):
    less, more = (
        loads_of(work(*some, max_frames=max_frames), platform(name)) for some in (cameras, [*cameras, cameras[0]])
    )

    assert no_less(more, less)


@settings(deadline=None, max_examples=60)
@given(cameras=CAMERAS, name=NAMES, factor=st.floats(1, 3))
def test_a_higher_rate_never_takes_less(work, platform, cameras, name, factor):
    def faster(one):
        sent = dataclasses.replace(one.video, fps=one.video.fps * factor)
        return dataclasses.replace(one, video=sent, wanted_fps=one.wanted_fps * factor)

    less = loads_of(work(*cameras), platform(name))
    assert no_less(loads_of(work(*map(faster, cameras)), platform(name)), less)


@settings(deadline=None, max_examples=60)
@given(cameras=CAMERAS, name=NAMES, max_frames=st.integers(1, 8))
def test_no_bound_lies_above_what_is_typical(work, platform, cameras, name, max_frames):
    loads = loads_of(work(*cameras, max_frames=max_frames), platform(name))

    for part in (loads.batch_s, loads.latency_s, *(one.share for one in loads.each)):
        assert part.least is None or part.typical is None or part.least <= part.typical * (1 + 1e-9)


def test_precision_of_a_published_kind_has_no_remark_and_fp32_has_one(work, model, platform):
    fp32 = dataclasses.replace(model, precision=Precision.FP32)

    assert load(loads_of(work(), platform(NANO)), "GPU").note is None
    assert "TF32" in load(loads_of(work(of=fp32), platform(NANO)), "GPU").note
