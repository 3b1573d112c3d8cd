import threading

import pytest

from edge.media.gstreamer.bus import SenderClock, unix_ns_from_ntp
from tests.support.logged import logged
from tests.support.rtsp import require_gstreamer

# 2026-11-20T10:15:02.5Z: `date -d ... +%s` gives 1795169702; NTP's first second is 70 years, 17 leap days earlier.
AT_S = 1_795_169_702
NTP = (AT_S + (70 * 365 + 17) * 86_400) << 32 | 1 << 31
AT_NS = AT_S * 10**9 + 5 * 10**8


@pytest.fixture
def clock():
    require_gstreamer("rtspsrc")
    return SenderClock("gate")


def test_ntp_time_is_read():
    assert unix_ns_from_ntp(NTP) == AT_NS


def passes(clock, pts, rtp, *, came_ns=0):
    """Have a packet come to the jitter buffer, and leave it at once."""
    clock.note_arrival(came_ns, rtp)
    clock.note_packet(pts, rtp, running_ns=came_ns)


def test_a_frame_is_as_far_from_the_report_as_its_rtp_time(clock):
    clock.note_report(NTP, 1_000_000)
    passes(clock, 7_000_000_000, 1_000_000 + 90_000 * 2)  # two seconds after the report

    late_ns = AT_NS + 3 * 10**9
    assert clock.captured_at_ns(7_000_000_000, arrived_at_ns=late_ns) == AT_NS + 2 * 10**9
    assert clock.captured_at_ns(7_040_000_000, arrived_at_ns=late_ns) == AT_NS + 2_040_000_000


@pytest.mark.parametrize(
    ("report", "packet", "apart_s"), [(2**32 - 45_000, 45_000, 1.0), (45_000, 2**32 - 45_000, -1.0)]
)
def test_rtp_times_wrap(clock, report, packet, apart_s):
    clock.note_report(NTP, report)
    passes(clock, 0, packet)

    assert clock.captured_at_ns(0, arrived_at_ns=AT_NS + 2 * 10**9) == AT_NS + apart_s * 10**9


def test_before_the_first_report_nothing_is_known(clock):
    passes(clock, 0, 0)

    assert clock.captured_at_ns(0, arrived_at_ns=AT_NS) is None


def test_no_picture_is_taken_after_it_has_come(clock):
    clock.note_report(NTP, 0)
    passes(clock, 0, 90_000)

    assert clock.captured_at_ns(0, arrived_at_ns=AT_NS) == AT_NS


def test_f40_a_clock_that_is_an_hour_off_is_not_believed_and_said_once(clock, caplog):
    clock.note_report(NTP, 0)
    passes(clock, 0, 0)

    for _ in range(3):
        assert clock.captured_at_ns(0, arrived_at_ns=AT_NS + 3600 * 10**9) is None
    assert logged(caplog).count("camera-clock-off") == 1
    assert "off_s=-3600.0" in caplog.text
    assert clock.captured_at_ns(0, arrived_at_ns=AT_NS) == AT_NS


def test_a_camera_that_sends_one_report_only_keeps_its_clock_over_days(clock):
    clock.note_report(NTP, 0)
    for hour in range(60):
        passed_ns = hour * 3600 * 10**9
        passes(clock, passed_ns, hour * 3600 * 90_000 % 2**32, came_ns=passed_ns)

        assert clock.captured_at_ns(passed_ns, arrived_at_ns=AT_NS + passed_ns) == AT_NS + passed_ns


def test_the_lag_is_that_of_the_quickest_packet_and_a_wait_that_behind_the_jitter_buffer(clock):
    for second in range(3):
        passes(clock, second * 10**9, second * 90_000, came_ns=second * 10**9 + 40_000_000)
    passes(clock, 3 * 10**9, 3 * 90_000, came_ns=5 * 10**9)  # held up on its way
    assert (clock.lag_ns, clock.waited_ns) == (40_000_000, 0)
    clock.note_arrival(7 * 10**9, 7 * 90_000)
    clock.note_packet(4 * 10**9, 4 * 90_000, running_ns=7 * 10**9)
    assert clock.waited_ns == 3 * 10**9


class Manager:
    """An rtpbin that is asked to begin PTS anew."""

    asked = 0

    def __init__(self) -> None:
        self.sinkpads = [QuickPad()]

    def connect(self, *_arguments):
        pass

    def emit(self, signal):
        assert signal == "clear-pt-map"
        self.asked += 1


@pytest.mark.parametrize(("lag_s", "asked"), [(0.9, 0), (1.1, 1), (-0.9, 0), (-1.1, 1), (-5.9, 1), (-3600, 0)])
def test_pts_begin_anew_where_a_cameras_clock_has_drifted(clock, lag_s, asked):
    manager = Manager()
    clock.attach(manager)
    clock.note_report(NTP, 0)
    passes(clock, 10_000 * 10**9, 0, came_ns=10_000 * 10**9 + round(lag_s * 10**9))

    assert manager.asked == asked
    assert (clock.captured_at_ns(10_000 * 10**9, arrived_at_ns=AT_NS) is None) == bool(asked)
    assert clock.lag_ns == (0 if asked else round(lag_s * 10**9))


class QuickPad:
    """Whose next packet comes by while a probe is still being put there, in another thread."""

    def __init__(self) -> None:
        self.packets: list[threading.Thread] = []

    def get_name(self) -> str:
        return "recv_rtp_sink_0"

    def add_probe(self, _kind, callback) -> int:
        packet = threading.Thread(target=callback, args=(self, Packet()))
        self.packets.append(packet)
        packet.start()
        packet.join(0.5)
        return len(self.packets)


class Packet:
    pts = 7_000_000_000

    def get_buffer(self):
        return self

    def extract_dup(self, _offset, _size) -> bytes:
        return (1_000_000).to_bytes(4, "big")


def test_each_look_is_followed_by_a_packet_however_quick_that_is(clock):
    manager, pad = Manager(), QuickPad()
    clock.attach(manager)
    clock.look(lambda _: 0)  # nothing has come yet
    clock.follow(pad)
    for _ in range(3):
        clock.look(lambda _: Packet.pts)
        for packet in (manager.sinkpads[0].packets[-1], pad.packets[-1]):
            packet.join(5.0)
    clock.note_report(NTP, 1_000_000)

    assert (len(manager.sinkpads[0].packets), len(pad.packets)) == (3, 3)
    assert clock.captured_at_ns(Packet.pts, arrived_at_ns=AT_NS) == AT_NS
