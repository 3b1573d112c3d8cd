"""A signed order to count anew: followed with the lock, by the device that it names, and by no other."""

import base64
from datetime import datetime, timedelta, timezone

import pytest

from edge.bundle.reset import Reset, encode_reset
from edge.bundle.sign import RESET, sign
from edge.device.counters import Counters, raise_counters, read_counters
from edge.device.files import RealFiles
from edge.errors import DeployError
from edge.runtime.agent.reset import reset
from edge.wire.reset import ResetRequest
from tests.support.agent_session import AgentSession

ASTRAY = Counters(sequences={"stable": 2**53}, newest_created_at="2099-01-01T00:00:00Z")


@pytest.fixture
def astray(root):
    """A device that has taken, before that was bounded, a release from far ahead."""
    raise_counters(root.layout, root.device.durable, ASTRAY)
    return root


def order(root, *, target="gate-01"):
    """Return a request to count from 5 on, signed by whom the device trusts."""
    now = datetime.now(timezone.utc)
    content = encode_reset(
        Reset(
            target=target,
            created_at=f"{now:%Y-%m-%dT%H:%M:%SZ}",
            expires_at=f"{now + timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}",
            given_for=ASTRAY.sequences,
            given_for_time=ASTRAY.newest_created_at,
            sequences={"stable": 5},
        )
    )
    parts = (base64.b64encode(part).decode() for part in (content, sign(content, root.key, RESET)))
    return ResetRequest(reset=next(parts), signature=next(parts))


def counted(root):
    return dict(read_counters(root.layout, RealFiles()).sequences)


def refusal(session, request):
    with pytest.raises(DeployError) as caught:
        reset(session, request)
    return caught.value.code


def test_a_device_counts_from_then_on_what_the_order_says(astray):
    answer = reset(AgentSession(astray.device).hold(), order(astray))

    assert (answer.signer, dict(answer.sequences)) == ("ops", {"stable": 5})
    assert counted(astray) == {"stable": 5}


def test_an_order_for_another_device_is_not_followed(astray):
    assert refusal(AgentSession(astray.device).hold(), order(astray, target="gate-02")) == "verify.device"
    assert counted(astray) == dict(ASTRAY.sequences)


def test_without_the_lock_no_order_is_followed(astray):
    assert refusal(AgentSession(astray.device), order(astray)) == "request.order"
    assert counted(astray) == dict(ASTRAY.sequences)
