from __future__ import annotations

import pytest

from edge.media.gstreamer.sender_clock import SenderClock, unix_ns_from_ntp
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
    assert caplog.text.count("clock of the camera is off") == 1
    assert "off_s=-3600.0" in caplog.text
    assert clock.captured_at_ns(0, arrived_at_ns=AT_NS) == AT_NS
