"""Who waits for a ring: how long a device is away counts while this machine sleeps, too."""

from datetime import datetime, timezone

import pytest

from edge.bundle.ring import RingStatement
from edge.deploy.rings.desk import Stated, Withdrawal
from edge.deploy.rings.promote import RingWatch
from edge.deploy.rings.verdict import Condition, Heard
from edge.errors import DeployError
from edge.publish.device_messages import DeployMessage, PullMessage, StateMessage

NEW = "b" * 12
NOW = datetime(2026, 11, 23, 12, 0, tzinfo=timezone.utc)
STATEMENT = RingStatement(
    channel="stable",
    ring="canary",
    release=NEW,
    sequence=1,
    serial=1,
    created_at="2026-11-23T12:00:00Z",
    valid_until="2026-12-23T12:00:00Z",
)


class Desk:
    def __init__(self):
        self.stated, self.withdrawn = Stated(STATEMENT, b""), None

    def named_by(self, tag):
        assert tag == "stable-canary"
        return self.stated

    def withdrawal(self, release):
        return self.withdrawn


def watch(desk, boottime):
    condition = Condition.parse("50% of canary, at most 50% failed")
    return RingWatch(desk, "stable", NEW, condition, {"north/a"}, clock=lambda: NOW, boottime_s=lambda: boottime["s"])


def device(*, is_there, has_switched_to=None):
    said = DeployMessage(
        device="a", release=has_switched_to or "", from_=None, result="committed", reason=None, at="then"
    )
    state = StateMessage(device="a", state="online" if is_there else "offline", epoch=1, session=1, since=None)
    deploy, pull = None if has_switched_to is None else said, PullMessage(device="a", ring="canary")
    return {"north/a": Heard(state=state, deploy=deploy, pull=pull)}


def test_a_device_that_was_there_is_lost_after_half_an_hour_also_if_this_machine_slept():
    boottime = {"s": 100.0}
    one = watch(Desk(), boottime)
    one.look(device(is_there=True))
    one.look(device(is_there=False))

    boottime["s"] += 1801.0  # as CLOCK_BOOTTIME does in a suspended machine; CLOCK_MONOTONIC stands still there
    tally, decision = one.look(device(is_there=False))

    assert (tally.failed, decision.what) == (1, "stop")


@pytest.mark.parametrize(("release", "failed"), [(NEW, 1), ("a" * 12, 0), (None, 0)])
def test_a_device_that_was_never_there_is_lost_if_it_has_taken_the_release(release, failed):
    boottime = {"s": 100.0}
    one, away = watch(Desk(), boottime), device(is_there=False, has_switched_to=release)
    one.look(away)

    boottime["s"] += 1801.0
    assert one.look(away)[0].failed == failed


def test_a_device_that_comes_back_is_not_lost():
    boottime = {"s": 0.0}
    one = watch(Desk(), boottime)
    for is_there, at_s in ((True, 0.0), (False, 10.0), (True, 1700.0), (False, 1750.0)):
        boottime["s"] = at_s
        one.look(device(is_there=is_there))

    boottime["s"] = 1900.0
    assert one.look(device(is_there=False))[0].failed == 0


def test_a_release_that_is_withdrawn_or_no_longer_that_of_the_ring_is_not_waited_for():
    desk = Desk()
    one = watch(desk, {"s": 0.0})
    desk.stated = None
    with pytest.raises(DeployError) as other:
        one.look({})
    desk.withdrawn = Withdrawal(NEW, "overheats", "me", "now")
    with pytest.raises(DeployError) as withdrawn:
        one.look({})

    assert [one.value.code for one in (other, withdrawn)] == ["request.ring", "request.withdrawn"]
