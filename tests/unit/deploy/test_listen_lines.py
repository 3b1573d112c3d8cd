"""How `edge-deploy listen` says what objects did."""

import pytest

from edge.deploy.listen import line_from_message
from edge.publish.messages import GapMessage
from tests.support.wire_messages import counts, crossing, event, occupancy


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (event(12), "10:15:02.113 gate-01/east event #12 car 57 enter yard"),
        (crossing(13), "10:15:02.113 gate-01/east event #13 car 57 cross gate forward"),
        (
            event(14, kind="vanish", duration_s=4.23, reason="interrupted"),
            "10:15:02.113 gate-01/east event #14 car 57 vanish yard after 4.2 s (interrupted)",
        ),
        (event(15, label=None), "10:15:02.113 gate-01/east event #15 class 2 57 enter yard"),
        (counts(), "gate-01/east counting, car 2, person 0"),
        (counts(state="interrupted", objects={"car": None}, total=None), "gate-01/east interrupted"),
        (occupancy(), "gate-01/east following, car 2; zones: yard 1"),
        (occupancy(objects={}, zones={}), "gate-01/east following, no objects"),
        (occupancy(state="stopped", objects={}, zones={}), "gate-01/east stopped"),
        (
            GapMessage(device="g", stream="east", epoch=1, from_=2, to=4, count=3, reason="spool-bytes", of="events"),
            "g/east lost events #2 to #4: spool-bytes",
        ),
    ],
)
def test_a_person_reads(message, line):
    assert line_from_message(message) == line
