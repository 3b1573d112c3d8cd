"""How devices of a ring stand, and what follows, worked by hand; and who waits for a ring."""

import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import msgspec
import pytest

from edge.bundle.statement import RingStatement
from edge.deploy.rings.desk import Stated, Withdrawal
from edge.deploy.rings.promote import RingWatch, wait_for
from edge.deploy.rings.verdict import Condition, Heard, decide, tally_of
from edge.publish.messages import DeployMessage, PullMessage, StateMessage
from tests.support.raised import code_of

BEGAN = datetime(2026, 11, 23, 12, 0, tzinfo=timezone.utc)
NEW = "b" * 12
CONDITION = Condition.parse("95% of canary for 1h, at most 2% failed")


def device(number, *, result=None, release=NEW, minutes=0, state="online", reason=None, since=None):
    """Return the name of a device of the ring, and what it has said."""
    name, at = str(number), (BEGAN + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    said = DeployMessage(device=name, release=release or "", from_=None, result=result, reason="p95 doubled", at=at)
    return f"north/{name}", Heard(
        state=StateMessage(device=name, state=state, epoch=1, session=1, since=since, reason=reason),
        deploy=None if result is None else said,
        pull=PullMessage(device=name, ring="canary"),
    )


def judged(devices, *, members=None, minutes=0, silent_s=None, condition=CONDITION):
    now = BEGAN + timedelta(minutes=minutes)
    heard = dict(devices)
    tally = tally_of("canary", members or set(heard), heard, NEW, began_at=BEGAN, now=now, silent_s=silent_s or {})
    return decide(tally, condition, now=now).what


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("95% of canary for 1h, at most 2% failed", (0.95, "canary", 3600.0, 0.02)),
        ("100% of early, at most 0% failed", (1.0, "early", 0.0, 0.0)),
        ("50% of a-1 for 90s", (0.5, "a-1", 90.0, 0.02)),
    ],
)
def test_a_condition_says_what_it_reads_like(text, found):
    one = Condition.parse(text)
    assert (one.share, one.ring, one.hold_s, one.max_failed) == found


@pytest.mark.parametrize(
    "text", ["", "canary", "0% of canary", "101% of canary", "95% of canary, at most 6% failed", "9% of A"]
)
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(ValueError, match="expected"):
        Condition.parse(text)


def test_a_share_that_is_none_is_not_said_to_be_too_much_with_another():
    with pytest.raises(ValueError, match="more than 0%"):
        Condition.parse("0% of canary")


@pytest.mark.parametrize(("minutes", "what"), [(69, "wait"), (70, "promote")])
def test_it_is_held_since_the_device_that_made_the_share(minutes, what):
    # 19 of 20 are 95 %; the 19th committed in minute 10, so an hour later it has held.
    devices = [
        *(device(n, result="committed", minutes=n / 2) for n in range(18)),
        device(18, result="committed", minutes=10),
    ]
    assert judged([*devices, device(19)], minutes=minutes) == what


def test_a_clock_that_lies_counts_from_when_the_ring_got_it():
    devices = [device(n, result="committed", minutes=-10_000) for n in range(20)]
    assert (judged(devices, minutes=59), judged(devices, minutes=60)) == ("wait", "promote")


@pytest.mark.parametrize(("bad", "what"), [(1, "wait"), (2, "stop")])
def test_more_failures_than_were_said_stop_it(bad, what):
    # 2 % of 50 is one.
    devices = [
        *(device(n, result="committed") for n in range(50 - bad)),
        *(device(n, result="rolled-back") for n in range(50 - bad, 50)),
    ]
    assert judged(devices, minutes=30) == what


@pytest.mark.parametrize(
    ("since", "what"), [("2026-11-23T11:59:59Z", "promote"), ("2026-11-23T12:00:01.000000Z", "stop")]
)
def test_degraded_counts_as_failed_where_it_was_not_so_before(since, what):
    devices = [
        device(n, result="committed", state="degraded", reason="camera gate is lost", since=since) for n in range(20)
    ]
    assert judged(devices, minutes=60) == what


def test_who_is_not_a_member_is_shown_and_not_counted():
    members = {f"north/{n}" for n in range(20)}
    phantoms = [device(f"phantom-{n}", result="rolled-back") for n in range(150)]
    devices = [*(device(n, result="committed") for n in range(20)), *phantoms]

    tally = tally_of("canary", members, dict(devices), NEW, began_at=BEGAN, now=BEGAN, silent_s={})

    assert (tally.failed, len(tally.others)) == (0, 150)
    assert judged(devices, members=members, minutes=60) == "promote"


def test_one_liar_of_a_hundred_stops_nothing():
    devices = [*(device(n, result="committed") for n in range(99)), device(99, result="rolled-back")]
    assert judged(devices, minutes=60) == "promote"


@pytest.mark.parametrize(
    ("silent_s", "what"), [({}, "promote"), ({"north/19": 1800.0}, "wait"), ({"north/19": 1801.0}, "stop")]
)
def test_silent_is_not_failed_and_lost_is(silent_s, what):
    # 19 of 19 without the silent one; of 20 with it 19, which are 95 %, if it only waits for its half hour.
    devices = [
        *(device(n, result="committed") for n in range(18)),
        device(18, result="committed", minutes=30),
        device(19, state="offline"),
    ]
    assert judged(devices, minutes=60 if what == "wait" else 90, silent_s=silent_s) == what


def test_while_more_than_a_quarter_says_nothing_nobody_can_tell():
    members = {f"north/{n}" for n in range(20)}
    heard = [device(n, result="committed") for n in range(14)]
    assert judged(heard, members=members, minutes=60) == "wait"
    assert judged([*heard, device(14, result="committed")], members=members, minutes=60) == "promote"


@pytest.mark.parametrize(
    ("result", "release", "from_", "pulled", "what"),
    [
        ("rolled-back", "c" * 12, NEW, "unchanged", "promote"),
        (None, None, None, "unchanged", "promote"),
        ("rolled-back", "c" * 12, NEW, "committed", "promote"),  # it came by pull, and another one by hand went back
        ("rolled-back", "c" * 12, NEW, "rolled-back", "wait"),
        ("rolled-back", "c" * 12, "a" * 12, "unchanged", "wait"),
        ("failed", "c" * 12, NEW, "unchanged", "wait"),
        ("committed", "c" * 12, NEW, "unchanged", "wait"),  # pushed since
        ("rolled-back", NEW, "a" * 12, "unchanged", "stop"),
    ],
)
def test_a_device_that_serves_the_release_already_has_it(result, release, from_, pulled, what):
    said = device(0, result=result, release=release)[1]
    switched = said.deploy and msgspec.structs.replace(said.deploy, from_=from_)
    looked = PullMessage(device="0", ring="canary", release=NEW, result=pulled)
    assert judged({"north/0": replace(said, deploy=switched, pull=looked)}, minutes=60) == what


def test_what_is_wrong_with_a_statement_says_nothing_of_the_release():
    for code, release, what in (
        ("verify.ring.expired", NEW, "wait"),
        ("verify.signature.signer", None, "wait"),  # of the statement: what lies beside it was not read
        ("verify.signature.signer", NEW, "stop"),
        ("preflight.disk", NEW, "stop"),
    ):
        pull = PullMessage(device="a", ring="canary", release=release, code=code, reason="why")
        heard = {f"north/{n}": Heard(state=device(n)[1].state, pull=pull) for n in range(3)}
        tally = tally_of("canary", set(heard), heard, NEW, began_at=BEGAN, now=BEGAN, silent_s={})
        assert (judged(heard), tally.reasons(has_failed=what == "stop")) == (what, f"{code}: why (3)")


THERE, AWAY = dict([device(0)]), dict([device(0, state="offline")])
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
    return RingWatch(desk, "stable", NEW, condition, {"north/0"}, clock=lambda: BEGAN, boottime_s=lambda: boottime["s"])


def test_a_device_that_was_there_is_lost_after_half_an_hour_also_if_this_machine_slept():
    boottime = {"s": 100.0}
    one = watch(Desk(), boottime)
    one.look(THERE)
    one.look(AWAY)

    boottime["s"] += 1801.0  # as CLOCK_BOOTTIME does in a suspended machine; CLOCK_MONOTONIC stands still there
    tally, decision = one.look(AWAY)

    assert (tally.failed, decision.what) == (1, "stop")


@pytest.mark.parametrize(("release", "failed"), [(NEW, 1), ("a" * 12, 0), (None, 0)])
def test_a_device_that_was_never_there_is_lost_if_it_has_taken_the_release(release, failed):
    boottime = {"s": 100.0}
    result = None if release is None else "committed"
    one, away = watch(Desk(), boottime), dict([device(0, result=result, release=release, state="offline")])
    one.look(away)

    boottime["s"] += 1801.0
    assert one.look(away)[0].failed == failed


def test_a_device_that_comes_back_is_not_lost():
    boottime = {"s": 0.0}
    one = watch(Desk(), boottime)
    for is_there, at_s in ((True, 0.0), (False, 10.0), (True, 1700.0), (False, 1750.0)):
        boottime["s"] = at_s
        one.look(THERE if is_there else AWAY)

    boottime["s"] = 1900.0
    assert one.look(AWAY)[0].failed == 0


def test_the_waiting_ends_with_its_time_however_seldom_it_looks():
    looks, began_s = [], time.monotonic()

    decision = wait_for(
        watch(Desk(), {"s": 0.0}),
        lambda: THERE,
        every_s=60.0,
        within_s=0.1,
        on_look=lambda tally, decision: looks.append(decision.what),
        say=pytest.fail,
    )

    assert (decision.what, len(looks) > 1) == ("wait", True)
    assert time.monotonic() - began_s < 30


def test_a_release_that_is_withdrawn_or_no_longer_that_of_the_ring_is_not_waited_for():
    desk = Desk()
    one = watch(desk, {"s": 0.0})
    desk.stated = None
    assert code_of(one.look, {}) == "request.ring"
    desk.withdrawn = Withdrawal(NEW, "overheats", "me", "now")
    assert code_of(one.look, {}) == "request.withdrawn"
