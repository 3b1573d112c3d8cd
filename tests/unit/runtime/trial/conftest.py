from dataclasses import replace

import pytest

from edge.device.facts import this_moment
from tests.support.device_releases import attach_engine, make_device, put_on_trial, serving, stage
from tests.support.trial_service import BASELINE, LIMITS, Service


@pytest.fixture
def device(tmp_path):
    return make_device(tmp_path)


@pytest.fixture
def put_new_on_trial(device):
    """Have an old release serve and a new one be on trial; gives both, and the new one's service."""

    def put(*, key=None, asks=None, **how):
        old, new = serving(device, sequence=1, key=key), stage(device, sequence=2, health=LIMITS, **(asks or {}))
        attach_engine(device, new)
        put_on_trial(device, new, **{"baseline": BASELINE, **how})
        return old, new, Service(device, new, started_ns=device.state().started_boottime_ns)

    return put


@pytest.fixture
def switched(put_new_on_trial):
    return put_new_on_trial()


@pytest.fixture
def later():
    """A moment of the next boot."""
    return replace(this_moment(), boot_id="boot-2")
