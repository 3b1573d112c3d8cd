"""What a device has been through stands against a release, until somebody asks for it all the same."""

import pytest

from edge.device.state import BadRelease, Phase, State, Verdict, mark_bad
from edge.errors import DeployError
from edge.runtime.agent.offer import check_not_bad, check_trusted_state

RELEASE = "0" * 12


def test_a_release_that_has_failed_here_is_refused_with_its_reason(root):
    device = root.device
    check_not_bad(device, RELEASE)
    mark_bad(device.layout, device.durable, RELEASE, BadRelease(verdict=Verdict.BAD, reason="no frames", at="then"))

    with pytest.raises(DeployError, match="no frames") as caught:
        check_not_bad(device, RELEASE)
    assert caught.value.code == "preflight.bad"
    check_not_bad(device, "1" * 12)


def test_a_device_that_has_stopped_trying_takes_nothing_until_a_person_has_looked(root):
    check_trusted_state(root.device)
    root.device.write_state(State(phase=Phase.FAILED, reason="no way back"))

    with pytest.raises(DeployError, match="no way back") as caught:
        check_trusted_state(root.device)
    assert caught.value.code == "person.failed"
