import signal

import pytest

from tests.support.agent_session import AgentSession
from tests.support.device_root import DeviceRoot

ENDINGS = (signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def root(tmp_path):
    return DeviceRoot(tmp_path)


@pytest.fixture
def session(root):
    return AgentSession(root.device)


@pytest.fixture(autouse=True)
def endings():
    """The signals that have reached this process and would have ended it; what an agent ignores does not."""
    reached = []
    before = [(one, signal.signal(one, lambda number, _: reached.append(number))) for one in ENDINGS]
    yield reached
    for one, handler in before:
        signal.signal(one, handler)
