"""Two thousand devices with the real pull and the real rollout, on a clock that jumps."""

from __future__ import annotations

import pytest

from edge.rollout.rules import Rules
from tests.support.simulated_fleet import LONGEST_S, SHORTEST_S, SimulatedFleet, busiest_per_s

pytestmark = pytest.mark.integration

RINGS = {"canary": 20, "early": 180, "all": 1800}
RULES = Rules(hold_s=600)
REQUESTS_A_RELEASE = 7  # its digest, the artifact, manifest, signature, two files, and its digest once more
HOURS_S = 3600.0


def rolled(*, seed, bad=0.0, hours=2.0):
    fleet = SimulatedFleet(RINGS, seed=seed, bad=bad, off=0.1, lying=0.01)
    fleet.start(RULES)
    fleet.run_until(hours * HOURS_S)
    return fleet, fleet.rollout.kept_state()


def tried(fleet, *rings):
    return [device for device in fleet.of(*rings) if fleet.new.manifest.release in device.tried]


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_release_that_is_bad_on_one_in_twenty_never_reaches_the_last_ring(seed):
    fleet, state = rolled(seed=seed, bad=0.05)

    assert state.phase == "stopped"
    assert "have failed" in state.why
    assert tried(fleet, "all") == []
    named = {fleet.registry.tags[f"stable-{ring}"] for ring in RINGS}
    assert named == {fleet.old.digest}


def test_a_release_that_is_bad_everywhere_is_tried_on_a_few_and_left_by_all():
    fleet, state = rolled(seed=6, bad=1.0)

    assert state.phase == "stopped"
    assert len(tried(fleet, *RINGS)) < 10
    assert {device.current for device in fleet.devices} == {fleet.old.manifest.release}


def test_a_good_release_comes_to_all_that_are_there_and_to_those_that_come_back():
    fleet, state = rolled(seed=7, hours=4.0)

    assert state.phase == "done"
    assert [step.what.partition(" has it")[0] for step in state.steps if " has it" in step.what][-1] == "all"
    for device in fleet.devices:
        expected = fleet.new if device.is_there else fleet.old
        assert device.current == expected.manifest.release, device.name


@pytest.mark.parametrize(("seed", "bad"), [(8, 0.05), (9, 0.0)])
def test_nobody_ends_on_a_release_that_its_own_trial_has_refused(seed, bad):
    fleet, _ = rolled(seed=seed, bad=bad)
    new = fleet.new.manifest.release
    assert [device.name for device in fleet.devices if device.current == new and new in device.is_bad_for] == []
    assert all(device.tried.count(new) <= 1 for device in fleet.devices)  # nor tries it twice


def test_the_registry_is_never_asked_by_all_at_once():
    fleet, state = rolled(seed=7, hours=2.0)

    assert state.phase == "done"
    devices = sum(RINGS.values())
    usual = sum(fleet.registry.asked.values()) / fleet.now_s
    assert devices / LONGEST_S < usual < 2 * devices / SHORTEST_S
    assert busiest_per_s(fleet.registry) < REQUESTS_A_RELEASE * devices / SHORTEST_S
