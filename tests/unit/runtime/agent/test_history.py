"""What a device has been through stands against every release, until a person has looked."""

import pytest

from edge.device.state import Phase, State
from edge.errors import DeployError
from edge.runtime.agent.offer import check_trusted_state


def test_a_device_that_has_stopped_trying_takes_nothing_until_a_person_has_looked(root):
    check_trusted_state(root.device)
    root.device.write_state(State(phase=Phase.FAILED, reason="no way back"))

    with pytest.raises(DeployError, match="no way back") as caught:
        check_trusted_state(root.device)
    assert caught.value.code == "person.failed"
