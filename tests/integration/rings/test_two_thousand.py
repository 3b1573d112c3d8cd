"""Two thousand devices with the real pull, and who promotes and waits, on a clock that jumps."""

import pytest

from edge.deploy.rings import promote as promoting
from tests.support.simulated_fleet import LONGEST_S, SHORTEST_S, SimulatedFleet, busiest_per_s

pytestmark = pytest.mark.slow(reason="two thousand devices for hours")

RINGS = {"canary": 20, "early": 180, "all": 1800}
CONDITION = "90% of RING for 10m, at most 2% failed"
REQUESTS_A_RELEASE = 8  # its digest, the artifact, manifest, signature, whether it is withdrawn, two files, its digest
HOURS_S = 3600.0


@pytest.fixture(autouse=True)
def nobody_signs(monkeypatch):
    monkeypatch.setattr(promoting, "sign", lambda content, key, namespace: b"nobody")


def promoted(*, seed, bad=0.0, hours=2.0):
    fleet = SimulatedFleet(RINGS, seed=seed, bad=bad, off=0.1, lying=0.01)
    fleet.start(CONDITION)
    fleet.run_until(hours * HOURS_S)
    return fleet


def tried(fleet, *rings):
    return [device for device in fleet.of(*rings) if fleet.new.manifest.release in device.tried]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_release_that_is_bad_on_one_in_twenty_never_reaches_the_last_ring(seed):
    fleet = promoted(seed=seed, bad=0.05)

    assert fleet.decisions[-1][1].what == "stop"
    assert tried(fleet, "all") == []
    assert fleet.desk.named_by("stable-all").statement.release != fleet.new.manifest.release
    kept = [device for device in fleet.devices if device.current == fleet.new.manifest.release]
    assert kept != []

    fleet.go_back()
    fleet.run_until(3 * HOURS_S)

    withdrawn = [device for device in fleet.devices if device.current == fleet.new.manifest.release]
    assert [device.name for device in withdrawn if device.is_there] == []
    assert busiest_per_s(fleet.registry) < REQUESTS_A_RELEASE * sum(RINGS.values()) / SHORTEST_S


def test_a_release_that_is_bad_everywhere_is_tried_on_a_few_and_left_by_all():
    fleet = promoted(seed=6, bad=1.0)

    assert fleet.decisions[-1][1].what == "stop"
    assert len(tried(fleet, *RINGS)) < 10
    assert {device.current for device in fleet.devices} == {fleet.old.manifest.release}


def test_a_good_release_comes_to_all_that_are_there_and_to_those_that_come_back():
    """And the registry is never asked by all at once."""
    fleet = promoted(seed=7, hours=4.0)

    assert [(ring, decision.what) for ring, decision in fleet.decisions] == [(ring, "promote") for ring in RINGS]
    for device in fleet.devices:
        expected = fleet.new if device.is_there else fleet.old
        assert device.current == expected.manifest.release, device.name
    devices = sum(RINGS.values())
    usual = sum(fleet.registry.asked.values()) / fleet.now_s
    assert devices / LONGEST_S < usual < 2 * devices / SHORTEST_S
    assert busiest_per_s(fleet.registry) < REQUESTS_A_RELEASE * devices / SHORTEST_S


@pytest.mark.parametrize(("seed", "bad"), [(8, 0.05), (9, 0.0)])
def test_nobody_ends_on_a_release_that_its_own_trial_has_refused(seed, bad):
    fleet = promoted(seed=seed, bad=bad)
    new = fleet.new.manifest.release
    assert [device.name for device in fleet.devices if device.current == new and new in device.is_bad_for] == []
    assert all(device.tried.count(new) <= 1 for device in fleet.devices)  # nor tries it twice
