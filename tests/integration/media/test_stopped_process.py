"""The process itself stands still for a moment, as on a machine that hangs: cameras with key frames far apart go on."""

import itertools
import time

import pytest

from edge.media.gstreamer import build
from edge.media.gstreamer.binding import read_sections
from tests.support.clips import write_clip
from tests.support.reading_process import ReadingProcess, Seen
from tests.support.rtsp import RtspMount, RtspServer
from tests.support.viewer import Viewer, assert_balances
from tests.support.wait import wait_until

FPS, LENGTH = 24, 240  # a key frame every ten seconds
CAMERAS = "abcd"
MOST_LOST_S = 1.5


SLOW = pytest.mark.slow(reason="three stops, and two seconds after each")


@pytest.fixture(scope="module", params=["h264", pytest.param("h265", marks=SLOW)])
def server(request, tmp_path_factory):
    codec = {"h264": "libx264", "h265": "libx265"}[request.param]
    clip = tmp_path_factory.mktemp("clips") / f"a.{request.param}"
    write_clip(clip, count=LENGTH, gop=LENGTH, fps=FPS, codec=codec, x265="bframes=0")
    with RtspServer({f"/{camera}": RtspMount(str(clip), request.param, fps=FPS) for camera in CAMERAS}) as made:
        yield made


def lateness_s(frame: Seen, before: list[Seen]) -> float:
    """How much later a frame is than the quickest ones before, by the numbers in the pictures."""
    usual_s = min((one.at_s - one.number / FPS) % (LENGTH / FPS) for one in before)
    late_s = (frame.at_s - frame.number / FPS - usual_s) % (LENGTH / FPS)
    return late_s if late_s < LENGTH / FPS - 0.5 else 0.0


def lost_s(process: ReadingProcess, stop_s: float) -> dict[str, float]:
    """Stop it; return for how long each camera was without frames that are fresh."""
    counts = {camera: len(frames) for camera, frames in process.seen.items()}
    went_on_s = process.stop_for(stop_s)
    wait_until(lambda: time.monotonic() > went_on_s + 2.0, what="two seconds")
    lost = {}
    for camera, frames in process.seen.items():
        before = frames[counts[camera] - 2 * FPS : counts[camera]]
        fresh = [one.at_s for one in frames[counts[camera] - 1 :] if lateness_s(one, before) < 0.3]
        lost[camera] = max(after - before for before, after in itertools.pairwise([*fresh, time.monotonic()]))
    return lost


@pytest.mark.parametrize(
    ("decoder", "stops_s"),
    [
        ("software", (0.6,)),
        pytest.param("software", (0.3, 0.6, 1.2), marks=SLOW),
        pytest.param("pyav", (0.3, 0.6, 1.2), marks=SLOW),
    ],
)
@pytest.mark.promised(reason="a pause of the process blinds no camera")
def test_no_camera_waits_for_its_next_key_frame_after_a_pause_of_the_process(server, decoder, stops_s):
    urls = {camera: server.url(f"/{camera}") for camera in CAMERAS}
    with ReadingProcess(urls, {"decoder": decoder}) as process:
        wait_until(lambda: all(len(frames) > 2 * FPS for frames in process.seen.values()), what="two seconds")
        for stop_s in stops_s:
            assert max(lost_s(process, stop_s).values()) < MOST_LOST_S
        assert not [told for told in process.told if " down " in told]
        for frames in process.seen.values():
            # What is damaged would have the number of the picture that it was made of.
            steps = [(b.number - a.number) % LENGTH for a, b in itertools.pairwise(frames[FPS:])]
            assert all(1 <= step <= 2 * FPS for step in steps)


@pytest.mark.slow(reason="stopped for eight seconds")
def test_what_has_piled_up_in_a_long_pause_does_not_stay_in_memory_nor_late(server):
    with ReadingProcess({camera: server.url(f"/{camera}") for camera in CAMERAS}, {"decoder": "software"}) as process:
        wait_until(lambda: all(len(frames) > 2 * FPS for frames in process.seen.values()), what="two seconds")
        resident = process.resident_bytes()
        lost = lost_s(process, 8.0)

        assert max(lost.values()) < 9.5
        assert process.resident_bytes() - resident < 32 << 20
        assert not [told for told in process.told if " down " in told]


@pytest.mark.slow(reason="a decoder that falls behind needs seconds to do so")
def test_a_decoder_that_is_slower_than_its_camera_leaves_pictures_out_and_stays_near(tmp_path, monkeypatch):
    """What waits is bounded in time, and so in memory: without a bound it grows as long as the camera sends."""
    clip = write_clip(tmp_path / "a.h264", count=LENGTH, gop=12, fps=FPS)

    def slow_sections(name: str) -> dict[str, str]:
        sections = read_sections(name)
        slow = sections.get("h264", "").replace("coded. !", "coded. ! identity sleep-time=100000 !")
        return {**sections, "h264": slow} if slow else sections

    monkeypatch.setattr(build, "read_sections", slow_sections)
    with (
        RtspServer({"/a": RtspMount(str(clip), "h264", fps=FPS)}) as server,
        Viewer(server.url("/a"), decoder="software") as viewer,
    ):
        wait_until(lambda: viewer.source.counts().skipped > 4 * FPS, what="pictures left out")
        begun = len(viewer.headers)
        viewer.await_frames(100)

        # Two seconds in front of the queue, and 32 pictures in it that take a tenth of a second each.
        assert max(header.decode_ns for header in viewer.headers[begun:]) < 7e9
        assert len(viewer.statuses) == 2
    assert_balances(viewer)
