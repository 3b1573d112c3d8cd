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


def test_a_frame_is_as_far_from_the_report_as_its_rtp_time(clock):
    clock.note_report(NTP, 1_000_000)
    clock.note_packet(7_000_000_000, 1_000_000 + 90_000 * 2)  # two seconds after the report

    assert clock.captured_at_ns(7_000_000_000, arrived_at_ns=AT_NS + 2 * 10**9) == AT_NS + 2 * 10**9
    assert clock.captured_at_ns(7_040_000_000, arrived_at_ns=AT_NS + 2 * 10**9) == AT_NS + 2_040_000_000


@pytest.mark.parametrize(
    ("report", "packet", "apart_s"), [(2**32 - 45_000, 45_000, 1.0), (45_000, 2**32 - 45_000, -1.0)]
)
def test_rtp_times_wrap(clock, report, packet, apart_s):
    clock.note_report(NTP, report)
    clock.note_packet(0, packet)

    assert clock.captured_at_ns(0, arrived_at_ns=AT_NS) == AT_NS + apart_s * 10**9


def test_before_the_first_report_nothing_is_known(clock):
    clock.note_packet(0, 0)

    assert clock.captured_at_ns(0, arrived_at_ns=AT_NS) is None


def test_f40_a_clock_that_is_an_hour_off_is_not_believed_and_said_once(clock, caplog):
    clock.note_report(NTP, 0)
    clock.note_packet(0, 0)

    for _ in range(3):
        assert clock.captured_at_ns(0, arrived_at_ns=AT_NS + 3600 * 10**9) is None
    assert logged(caplog).count("camera-clock-off") == 1
    assert "off_s=-3600.0" in caplog.text
    assert clock.captured_at_ns(0, arrived_at_ns=AT_NS) == AT_NS


class QuickPad:
    """Whose next packet comes by while a probe is still being put there, in another thread."""

    def __init__(self) -> None:
        self.packets: list[threading.Thread] = []

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


class Reports:
    """An rtpbin, its session, the source in it and what is known of that, all in one."""

    def emit(self, *_arguments):
        return self

    def get_property(self, _name):
        return self

    def get_value(self, name):
        return {"have-sr": True, "clock-rate": 90_000, "sr-ntptime": NTP, "sr-rtptime": 1_000_000}[name]


def test_each_report_is_followed_by_a_packet_however_quick_that_is(clock):
    pad = QuickPad()
    clock.follow(pad)
    for _ in range(3):
        clock._on_active(Reports(), 0, 1)
        pad.packets[-1].join(5.0)

    assert len(pad.packets) == 3
    assert clock.captured_at_ns(Packet.pts, arrived_at_ns=AT_NS) == AT_NS
