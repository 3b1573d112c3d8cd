"""Releases that are really built, served and judged: each unit's own command, as a plain process."""

import pytest

from edge.device.health import read_health
from edge.device.state import Phase
from tests.support.deployable import real_bundle


@pytest.mark.promised(reason="a push of a real release ends well or is undone")
def test_a_good_release_is_committed_and_one_without_frames_is_undone(device, push_real):
    limits = {"hold_s": 3.0, "deadline_s": 12.0}
    good = real_bundle(device, sequence=1, **limits)
    outcome = push_real(good)
    assert outcome.result == "committed", outcome
    assert read_health(device.layout.health).release == good.manifest.release

    dead = [{"id": "a", "uri": "rtsp://127.0.0.1:9/none"}]
    outcome = push_real(real_bundle(device, sequence=2, streams=dead, **limits))
    assert (outcome.result, outcome.exit_code) == ("rolled-back", 8), outcome
    assert device.device.releases.current() == good.manifest.release
    assert device.device.state().phase is Phase.IDLE
    assert read_health(device.layout.health).release == good.manifest.release
