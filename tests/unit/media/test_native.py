"""What is read of samples by their memory, against what PyGObject says of the same samples."""

import ctypes
import gc
import time

import numpy as np
import pytest

from edge.media.gstreamer import native
from edge.media.gstreamer.binding import load
from tests.support.rtsp import require_gstreamer

WIDTH, HEIGHT = 318, 36  # rows of 954 bytes are padded to 956


@pytest.fixture
def pipeline():
    require_gstreamer("videotestsrc", "appsink")
    gst = load().gst
    made = gst.parse_launch(
        f"videotestsrc num-buffers=4 pattern=snow ! video/x-raw,format=RGB,width={WIDTH},height={HEIGHT} "
        "! identity name=count silent=true ! appsink name=sink max-buffers=8 sync=false "
        "wait-on-eos=false enable-last-sample=false"
    )
    yield made
    made.set_state(gst.State.NULL)


def sink_of(pipeline):
    return native.Sink(pipeline.get_by_name("sink"))


def layout_of(sample):
    caps = load().gst.Caps.from_string(sample.caps_text())
    return native.PixelLayout(load().video.VideoInfo.new_from_caps(caps))


def test_times_and_flags_are_those_of_the_buffer(pipeline):
    gst, sink = load().gst, pipeline.get_by_name("sink")
    seen = []
    flags = gst.BufferFlags

    def note(_pad, info):
        buffer = info.get_buffer()
        if len(seen) == 2:
            buffer.set_flags(flags.CORRUPTED)
        seen.append((buffer.pts, buffer.has_flags(flags.CORRUPTED), buffer.has_flags(flags.DISCONT)))
        return gst.PadProbeReturn.OK

    sink.get_static_pad("sink").add_probe(gst.PadProbeType.BUFFER, note)
    pipeline.set_state(gst.State.PLAYING)

    samples = [sink_of(pipeline).pull(10**10) for _ in range(4)]

    assert [(one.pts, one.is_corrupted, one.is_discont) for one in samples] == seen
    assert [one.running_time_ns() for one in samples] == [one.pts for one in samples]
    assert [one.is_corrupted for one in samples] == [False, False, True, False]


def test_pixels_are_those_of_the_buffer_also_of_padded_rows(pipeline):
    gst, kept = load().gst, []

    def note(_pad, info):
        kept.append(bytes(info.get_buffer().extract_dup(0, info.get_buffer().get_size())))
        return gst.PadProbeReturn.OK

    pipeline.get_by_name("sink").get_static_pad("sink").add_probe(gst.PadProbeType.BUFFER, note)
    pipeline.set_state(gst.State.PLAYING)
    sample = sink_of(pipeline).pull(10**10)

    view = sample.view(layout_of(sample))

    rows = np.frombuffer(kept[0], np.uint8).reshape(HEIGHT, -1)
    assert rows.shape[1] > WIDTH * 3
    np.testing.assert_array_equal(view, rows[:, : WIDTH * 3].reshape(HEIGHT, WIDTH, 3))
    assert not view.flags.writeable


def test_a_view_outlives_its_sample_and_the_pipeline(pipeline):
    pipeline.set_state(load().gst.State.PLAYING)
    sink = sink_of(pipeline)
    sample = sink.pull(10**10)
    view = sample.view(layout_of(sample))[4:8]
    before = view.copy()

    del sample
    pipeline.set_state(load().gst.State.NULL)
    gc.collect()

    np.testing.assert_array_equal(view, before)


def test_samples_that_are_gone_are_given_back(pipeline):
    pipeline.set_state(load().gst.State.PLAYING)
    samples = [sink_of(pipeline).pull(10**10) for _ in range(2)]  # the sink holds on to the last one
    ctypes.CDLL("libgstreamer-1.0.so.0").gst_mini_object_ref(ctypes.c_void_p(samples[0]._buffer))
    references = ctypes.c_int.from_address(samples[0]._buffer + 8)  # of every GstMiniObject
    view = samples[0].view(layout_of(samples[0]))[2:5]

    samples.clear()
    assert references.value == 2  # ours, and that of the view
    del view

    assert references.value == 1


def test_counts_what_has_gone_through_also_after_the_end(pipeline):
    pipeline.set_state(load().gst.State.PLAYING)
    counter, sink = native.Counter(pipeline.get_by_name("count")), sink_of(pipeline)
    while sink.pull(10**10) is not None:
        pass
    assert sink.is_at_end
    assert counter.count() == 4
    pipeline.set_state(load().gst.State.NULL)
    assert counter.count() == 4


def test_the_running_time_is_that_of_the_pipeline(pipeline):
    pipeline.set_state(load().gst.State.PLAYING)
    clock = native.RunningClock(pipeline)
    pipeline.get_state(10**10)

    before_ns = pipeline.get_clock().get_time() - pipeline.get_base_time()
    now_ns = clock.at_ns(time.monotonic_ns())
    after_ns = pipeline.get_clock().get_time() - pipeline.get_base_time()

    assert before_ns <= now_ns <= after_ns
    assert clock.at_ns(time.monotonic_ns()) > now_ns  # reckoned, not asked again


def test_a_pipeline_without_a_clock_has_no_running_time():
    require_gstreamer("fakesrc")
    assert native.RunningClock(load().gst.Pipeline.new(None)).at_ns(0) is None
