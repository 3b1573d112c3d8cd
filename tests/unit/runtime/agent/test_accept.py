"""Whether a release is for this device, now (F-13, F-14, F-18)."""

import dataclasses
from datetime import datetime, timedelta, timezone

import pytest

from edge.bundle.manifest import GoldenFrames, Role
from edge.device.facts import DeviceSettings
from edge.device.state import Counters
from edge.runtime.agent.accept import misfits
from edge.runtime.trial.trust import time_floor
from edge.version import RELEASED_AT
from tests.support.manifests import bundled, manifest

NOW = datetime(2026, 11, 20, 13, tzinfo=timezone.utc)


@dataclasses.dataclass
class Device:
    name: str = "gate-01"
    compatible: tuple = ("jetson-orin",)
    tensorrt: str | None = "10.3.0"
    l4t: str | None = "36.4.3"


def proven(**changes):
    files = (
        bundled("golden.json", Role.GOLDEN),
        bundled("golden/00.png", Role.GOLDEN_IMAGE),
        bundled("model.onnx", Role.MODEL),
        bundled("pipeline.yaml", Role.PIPELINE),
    )
    return manifest(**{"files": files, "golden_frames": GoldenFrames.OUTSIDE, **changes})


def codes(
    release, device=None, *, sequences=None, newest=None, at=NOW, is_clock_sure=False, is_permission=False, **more
):
    """`more`: settings of the device."""
    settings = DeviceSettings(name="gate-01", compatible=("jetson-orin",), **more)
    counters = Counters(sequences=sequences or {}, newest=newest or {})
    told = {"at": at, "is_clock_sure": is_clock_sure, "is_permission": is_permission}
    found = list(misfits(release, device or Device(), settings, counters, **told))
    assert all(error.hint for error in found)
    return [error.code for error in found]


def test_f13_an_older_sequence_is_refused():
    assert codes(proven(sequence=7), sequences={"stable": 8}) == ["verify.downgrade"]
    assert codes(proven(sequence=7), sequences={"beta": 8, "stable": 7}) == []
    assert codes(proven(sequence=8), sequences={"stable": 8}) == []


def test_another_release_of_an_equal_sequence_is_refused_and_the_same_one_is_not():
    release, seen = proven(sequence=8), {"stable": 8}

    assert codes(release, sequences=seen, newest={"stable": "0123456789ab"}) == ["verify.downgrade.equal"]
    assert codes(release, sequences=seen, newest={"stable": release.release}) == []
    assert codes(release, sequences=seen, newest={"beta": "0123456789ab"}) == []
    assert codes(release, sequences={"stable": 7}, newest={"stable": "0123456789ab"}) == []


def test_f13_a_downgrade_that_is_signed_as_one_is_taken():
    assert codes(permission(), sequences={"stable": 8}, is_permission=True) == []
    assert codes(permission(), sequences={"stable": 8}) == ["verify.downgrade"]


def permission(**changes):
    bounds = {"targets": ("gate-01",), "expires_at": "2026-11-21T12:00:00Z", "downgrade_from": 8}
    return proven(**{"sequence": 7, **bounds, **changes})


@pytest.mark.parametrize(
    "lacks",
    [{"targets": ()}, {"expires_at": None}, {"expires_at": "2026-12-21T12:00:00Z"}, {"downgrade_from": None}],
    ids=str,
)
def test_f13_a_downgrade_without_a_bound_is_refused(lacks):
    release = permission(**lacks)

    assert codes(release, sequences={"stable": 8}, is_permission=True) == ["verify.downgrade.bounds"]


@pytest.mark.parametrize("seen", [0, 7, 9, 10])
def test_f13_a_downgrade_fits_the_counter_that_it_was_given_for_and_no_other(seen):
    assert codes(permission(), sequences={"stable": seen}, is_permission=True) == ["verify.downgrade.counter"]


def test_a_release_of_another_channel_than_the_device_is_bound_to_is_refused():
    assert codes(proven(channel="beta"), channels=("stable",)) == ["verify.channel"]
    assert codes(proven(channel="beta"), channels=("beta", "stable")) == []
    assert codes(proven(channel="beta"), channels=()) == []
    assert codes(proven(channel="beta"), sequences={"stable": 7}) == ["verify.channel"]


DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("clock", "is_sure", "is_taken"),
    [
        (NOW, True, True),
        (NOW - DAY, True, True),
        (NOW - 2 * DAY, True, False),
        (NOW - 2 * DAY, False, True),  # nobody sets its clock: it may have lain on a shelf
        (NOW - 365 * DAY, False, True),
        (NOW - 368 * DAY, False, False),
    ],
)
def test_a_release_from_ahead_is_taken_as_far_as_the_devices_clock_can_be_behind(clock, is_sure, is_taken):
    found = codes(proven(), at=clock, is_clock_sure=is_sure)

    assert found == ([] if is_taken else ["verify.ahead.time"])


def test_a_sequence_is_at_most_the_second_in_which_the_release_was_made_and_a_day():
    most = int(datetime(2026, 11, 21, 12, tzinfo=timezone.utc).timestamp())

    assert codes(proven(sequence=most)) == []
    assert codes(proven(sequence=most + 1)) == ["verify.ahead.sequence"]


def test_f13_an_expired_release_is_refused_from_its_last_second_on():
    release = proven(expires_at="2026-11-20T13:00:00Z")

    assert codes(release, at=NOW - timedelta(seconds=1)) == []
    assert codes(release, at=NOW) == ["verify.expired"]
    assert codes(permission(), sequences={"stable": 8}, at=NOW + timedelta(days=2), is_permission=True) == [
        "verify.expired"
    ]


def test_f14_a_clock_in_1970_does_not_make_an_expired_release_valid():
    floor = time_floor(datetime(1970, 1, 1, tzinfo=timezone.utc), newest_created_at="2027-03-01T00:00:00Z")

    assert floor == datetime(2027, 3, 1, tzinfo=timezone.utc)
    assert codes(proven(expires_at="2027-02-01T00:00:00Z"), at=floor) == ["verify.expired"]
    assert codes(proven(expires_at="2027-04-01T00:00:00Z"), at=floor) == []


def test_f14_a_new_device_with_a_clock_in_1970_counts_from_the_release_of_its_software():
    floor = time_floor(datetime(1970, 1, 1, tzinfo=timezone.utc), newest_created_at=None)

    assert f"{floor:%Y-%m-%dT%H:%M:%SZ}" == RELEASED_AT
    assert codes(proven(created_at="2025-10-01T00:00:00Z", expires_at="2025-10-31T00:00:00Z"), at=floor) == [
        "verify.expired"
    ]


def test_f14_a_clock_in_2035_locks_nothing_out_once_it_is_right_again():
    release = proven(expires_at="2027-02-01T00:00:00Z")
    ahead = time_floor(datetime(2035, 1, 1, tzinfo=timezone.utc), newest_created_at="2026-11-20T12:00:00Z")
    right = time_floor(NOW, newest_created_at="2026-11-20T12:00:00Z")

    assert codes(release, at=ahead) == ["verify.expired"]
    assert codes(release, at=right) == []
    assert codes(proven(), at=ahead) == []  # what never expires is taken at any time


def test_f18_another_device_class_or_name_is_refused():
    assert codes(proven(compatible=("jetson-xavier", "x86"))) == ["verify.device"]
    assert codes(proven(compatible=("jetson-xavier", "jetson-orin"))) == []
    assert codes(proven(compatible=("any",)), Device(compatible=())) == []
    assert codes(proven(targets=("gate-02",))) == ["verify.device"]
    assert codes(proven(targets=("gate-01", "gate-02"))) == []


@pytest.mark.parametrize(
    ("bounds", "found", "is_taken"),
    [
        (("10.3", None), "10.3.0", True),
        (("10.3", None), "10.2.9", False),
        (("10.3", "10.10"), "10.9.1", True),  # as versions, not as text or as a number
        (("10.3", "10.10"), "10.10.0", False),
        ((None, "11"), "10.16", True),
        ((None, "11"), "11.0.0.1", False),
        (("10.3", None), None, False),
        ((None, None), None, True),
    ],
)
def test_f18_versions_out_of_range_are_refused(bounds, found, is_taken):
    assert codes(proven(tensorrt=bounds), Device(tensorrt=found)) == ([] if is_taken else ["preflight.tensorrt"])
    assert codes(proven(l4t=bounds), Device(l4t=found)) == ([] if is_taken else ["preflight.l4t"])


def test_a_release_without_golden_frames_is_taken_only_where_that_is_allowed():
    assert codes(manifest()) == ["verify.unproven"]
    assert codes(manifest(), allow_unproven=True) == []


def test_all_reasons_are_told_the_gravest_first():
    release = proven(compatible=("x86",), sequence=1, expires_at="2026-11-20T12:30:00Z", tensorrt=("11", None))

    assert codes(release, sequences={"stable": 2}) == [
        "verify.device",
        "verify.expired",
        "verify.downgrade",
        "preflight.tensorrt",
    ]
