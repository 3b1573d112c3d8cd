"""How one device stands to a release, by its last words."""

from datetime import datetime, timedelta, timezone

import pytest

from edge.rollout.device import DeviceStanding, ReleaseOutcome, RolloutDevice, standing_of

BEGAN = datetime(2026, 11, 23, 12, 0, tzinfo=timezone.utc)
NEW, OLD = "0123456789ab", "ba9876543210"


def stands(device, *, silent_since=None, after_s=600.0):
    standing, why = standing_of(
        device,
        NEW,
        began_at=BEGAN,
        silent_since=silent_since,
        now=BEGAN + timedelta(seconds=after_s),
        lost_after_s=1800.0,
    )
    return standing, why


def device(*, is_there=True, switched=None, pulled=None):
    return RolloutDevice(name="north/gate-01", ring="canary", is_there=is_there, switched=switched, pulled=pulled)


@pytest.mark.parametrize(
    ("switched", "expected"),
    [
        (None, (DeviceStanding.WAITING, None)),
        (ReleaseOutcome(OLD, "committed"), (DeviceStanding.WAITING, None)),
        (ReleaseOutcome(OLD, "rolled-back", reason="p95"), (DeviceStanding.WAITING, None)),
        (ReleaseOutcome(NEW, "committed"), (DeviceStanding.COMMITTED, None)),
        (ReleaseOutcome(NEW, "rolled-back", reason="p95 doubled"), (DeviceStanding.ROLLED_BACK, "p95 doubled")),
        (ReleaseOutcome(NEW, "failed"), (DeviceStanding.ROLLED_BACK, "failed")),
    ],
)
def test_the_last_switch_counts_where_it_was_to_this_release(switched, expected):
    assert stands(device(switched=switched)) == expected


@pytest.mark.parametrize(
    ("release", "code", "expected"),
    [
        (NEW, "preflight.disk", DeviceStanding.REFUSED),
        (NEW, "verify.signer", DeviceStanding.REFUSED),
        (NEW, "build.failed", DeviceStanding.REFUSED),
        (NEW, "smoke.golden", DeviceStanding.REFUSED),
        (NEW, "registry.busy", DeviceStanding.WAITING),
        (NEW, "lock.push", DeviceStanding.WAITING),
        (NEW, None, DeviceStanding.WAITING),
        (OLD, "verify.downgrade", DeviceStanding.WAITING),
        (None, "registry.unreachable", DeviceStanding.WAITING),
    ],
)
def test_a_look_that_ended_with_what_waiting_does_not_mend_is_a_refusal(release, code, expected):
    assert stands(device(pulled=ReleaseOutcome(release, "x", code)))[0] is expected


def test_what_serves_after_all_counts_more_than_an_earlier_refusal():
    both = device(switched=ReleaseOutcome(NEW, "committed"), pulled=ReleaseOutcome(NEW, "refused", "preflight.disk"))
    assert stands(both)[0] is DeviceStanding.COMMITTED


def test_who_was_away_before_the_ring_had_it_is_silent_whatever_it_said_once():
    away = device(is_there=False, switched=ReleaseOutcome(NEW, "rolled-back"))
    assert stands(away, silent_since=BEGAN)[0] is DeviceStanding.SILENT
    assert stands(away, silent_since=BEGAN - timedelta(days=30))[0] is DeviceStanding.SILENT


def test_who_falls_silent_later_keeps_its_word_for_a_while_and_is_lost_then():
    away = device(is_there=False, switched=ReleaseOutcome(NEW, "committed"))
    since = BEGAN + timedelta(seconds=60)

    assert stands(away, silent_since=since, after_s=60 + 1800)[0] is DeviceStanding.COMMITTED
    assert stands(away, silent_since=since, after_s=60 + 1801)[0] is DeviceStanding.LOST


def test_who_is_back_is_not_held_to_have_been_away():
    back = device(is_there=True, switched=ReleaseOutcome(NEW, "committed"))
    assert stands(back, silent_since=BEGAN - timedelta(days=30))[0] is DeviceStanding.COMMITTED


def test_no_time_is_too_long_to_be_waited_for():
    away = device(is_there=False)
    since = BEGAN + timedelta(seconds=60)
    standing, _ = standing_of(away, NEW, began_at=BEGAN, silent_since=since, now=since, lost_after_s=1e300)
    assert standing is DeviceStanding.WAITING
