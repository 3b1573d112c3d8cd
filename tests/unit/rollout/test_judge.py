"""What is done with a rollout, by what the devices of its rings say."""

from datetime import datetime, timedelta, timezone

import msgspec
import pytest

from edge.rollout.device import DeviceStanding, ReleaseOutcome, RolloutDevice
from edge.rollout.judge import judge_rollout, tally_of
from edge.rollout.rules import Rules
from edge.rollout.state import RingState, RolloutState

BEGAN = datetime(2026, 11, 23, 12, 0, tzinfo=timezone.utc)
NEW = "0123456789ab"
GOOD, BAD = ReleaseOutcome(NEW, "committed"), ReleaseOutcome(NEW, "rolled-back", reason="p95 doubled")


def state(*rings, silent=None, rules=None, **values):
    made = rings or (RingState(name="canary", known=0, began_at=BEGAN), RingState(name="all", known=0))
    return RolloutState(
        serial=1,
        claim="c",
        channel="stable",
        release=NEW,
        digest="sha256:" + "0" * 64,
        sequence=2,
        rules=rules or Rules(),
        rings=made,
        silent=silent or {},
        **values,
    )


def fleet(ring="canary", *, good=0, bad=0, waiting=0, away=0):
    kinds = [GOOD] * good + [BAD] * bad + [None] * (waiting + away)
    return [
        RolloutDevice(name=f"north/{ring}-{n}", ring=ring, is_there=n < good + bad + waiting, switched=kind)
        for n, kind in enumerate(kinds)
    ]


def decided(given, devices, *, after_s=60.0):
    now = BEGAN + timedelta(seconds=after_s)
    tallies = [tally_of(given, ring, devices, now=now) for ring in given.begun]
    return judge_rollout(given, tallies, now=now)


def reached(*, after_s):
    at = BEGAN + timedelta(seconds=after_s)
    return RingState(name="canary", known=0, began_at=BEGAN, reached_at=at), RingState(name="all", known=0)


def test_nothing_is_done_before_enough_have_committed_it():
    decision = decided(state(), fleet(good=94, waiting=6))
    assert (decision.what, decision.is_reached) == ("wait", False)
    assert "94 of 100" in decision.why


def test_once_enough_have_committed_it_is_held_and_then_goes_on():
    devices = fleet(good=95, waiting=5)
    assert decided(state(), devices).is_reached
    at = reached(after_s=60)
    assert decided(state(*at), devices, after_s=60 + 3599).what == "wait"
    assert decided(state(*at), devices, after_s=60 + 3600).what == "advance"


def test_the_last_ring_ends_it():
    (one, _) = reached(after_s=0)
    assert decided(state(one), fleet(good=3), after_s=3600).what == "finish"


def test_a_ring_that_falls_below_its_share_again_is_not_gone_on_from():
    decision = decided(state(*reached(after_s=0)), fleet(good=94, waiting=6), after_s=7200)
    assert (decision.what, decision.is_reached) == ("wait", False)


def test_a_share_is_met_by_exactly_as_many_as_it_says():
    # In binary fractions 0.55 * 100 is more than 55, and 0.29 * 100 less than 29.
    assert decided(state(rules=Rules(share=0.55)), fleet(good=55, waiting=45)).is_reached
    assert not decided(state(rules=Rules(share=0.55)), fleet(good=54, waiting=46)).is_reached
    rules = Rules(share=0.5, max_failed=0.29)
    assert decided(state(rules=rules), fleet(good=50, bad=29, waiting=21)).what == "wait"
    assert decided(state(rules=rules), fleet(good=50, bad=30, waiting=20)).what == "stop"
    devices = fleet(good=71, away=29)
    silent = {one.name: BEGAN for one in devices if not one.is_there}
    assert decided(state(rules=Rules(max_silent=0.29), silent=silent), devices).is_reached


@pytest.mark.parametrize(("bad", "what"), [(2, "wait"), (3, "stop")])
def test_it_stops_above_the_share_that_may_fail_and_not_at_it(bad, what):
    decision = decided(state(), fleet(good=50, bad=bad, waiting=50 - bad))
    assert decision.what == what
    assert ("p95 doubled (3)" in decision.why) is (what == "stop")


def test_the_one_failure_of_a_small_ring_stops_it():
    assert decided(state(), fleet(good=2, bad=1)).what == "stop"


def test_who_was_off_all_the_time_counts_neither_way():
    devices = fleet(good=18, away=2)
    silent = {one.name: BEGAN for one in devices if not one.is_there}
    decision = decided(state(silent=silent), devices)
    assert decision.is_reached
    assert "18 of 18" in decision.why


def test_nobody_goes_on_while_too_many_say_nothing():
    devices = fleet(good=7, away=3)
    silent = {one.name: BEGAN for one in devices if not one.is_there}
    decision = decided(state(silent=silent), devices)
    assert not decision.is_reached
    assert "3 of 10 devices say nothing" in decision.why


def test_devices_that_the_broker_has_forgotten_are_missed():
    known = RingState(name="canary", known=100, began_at=BEGAN)
    decision = decided(state(known), fleet(good=5))
    assert not decision.is_reached
    assert "95 of 100 devices say nothing" in decision.why


def test_a_ring_where_nobody_is_there_is_waited_for():
    devices = fleet(away=4)
    decision = decided(state(silent={one.name: BEGAN for one in devices}), devices)
    assert (decision.what, decision.is_reached) == ("wait", False)
    assert "none of its 4 devices" in decision.why


def test_devices_that_fall_silent_after_the_ring_had_it_stop_it():
    devices = fleet(good=9, away=1)
    silent = {devices[-1].name: BEGAN + timedelta(seconds=1)}
    assert decided(state(silent=silent), devices, after_s=1800).what == "wait"
    assert decided(state(silent=silent), devices, after_s=1802).what == "stop"


def test_a_failure_of_an_earlier_ring_stops_it_too():
    rings = (
        RingState(name="canary", known=0, began_at=BEGAN),
        RingState(name="all", known=0, began_at=BEGAN + timedelta(seconds=30)),
    )
    devices = [*fleet(good=2, bad=1), *fleet("all", good=50)]
    decision = decided(state(*rings), devices)
    assert decision.what == "stop"
    assert decision.why.startswith("canary:")


def test_a_device_counts_in_its_own_ring_only():
    devices = [*fleet(good=3), *fleet("all", bad=50)]
    assert decided(state(), devices).is_reached


def test_a_clock_that_goes_back_does_not_shorten_the_holding():
    decision = decided(state(*reached(after_s=100_000)), fleet(good=3), after_s=60)
    assert decision.what == "wait"
    assert decision.is_reached


def test_a_standing_is_counted_once():
    tally = tally_of(state(), state().rings[0], fleet(good=3, bad=1, waiting=2), now=BEGAN)
    assert [tally.count(one) for one in DeviceStanding] == [3, 1, 0, 0, 2, 0]
    assert (tally.failed, tally.counted, tally.unheard) == (1, 6, 0)


@pytest.mark.parametrize(
    "values",
    [
        {"share": 0.0},
        {"share": 1.01},
        {"max_failed": -0.1},
        {"max_silent": 2.0},
        {"hold_s": -1.0},
        {"hold_s": float("inf")},
        {"lost_after_s": float("nan")},
        {"share": 0.99, "max_failed": 0.02},
    ],
)
def test_rules_that_there_cannot_be_are_refused(values):
    with pytest.raises(ValueError, match=r"expected|together"):
        Rules(**values)


def test_rules_are_checked_where_they_are_read_too():
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"share": 7}', type=Rules)
