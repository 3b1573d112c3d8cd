"""How the last switch ended is told once, again when there is a new verdict, and never at the cost of the service."""

import pytest

from edge.device.facts import this_moment
from edge.device.switch import commit, refuse, roll_back
from edge.runtime.serve.publishing import LastSwitchPublisher
from tests.support.device_releases import attach_engine, make_device, put_on_trial, serving, stage


@pytest.fixture
def device(tmp_path):
    return make_device(tmp_path / "root")


@pytest.fixture
def last(device, published):
    return LastSwitchPublisher(published, device.layout, device="gate-01")


def test_a_device_without_a_verdict_says_nothing(device, last, published):
    put_on_trial(device, _built(device, 1))
    last.tick()
    assert published.all == []


def test_a_verdict_is_published_once_and_the_next_one_too(device, last, published):
    one, two = _built(device, 1), _built(device, 2)
    put_on_trial(device, one)
    last.tick()
    commit(device, moment=this_moment())
    last.tick()
    last.tick()
    put_on_trial(device, two)
    last.tick()
    refuse(device, "p95 doubled")
    roll_back(device, "unit-failed", moment=this_moment())
    last.tick()

    keys = ("schema", "release", "from", "result", "reason")
    assert [tuple(found[key] for key in keys) for found in published.all] == [
        ("edge.deploy/1", one, None, "committed", None),
        ("edge.deploy/1", two, one, "rolled-back", "p95 doubled"),
    ]


def test_a_state_that_cannot_be_read_is_told_once_in_the_log_and_published_when_it_is_mended(
    device, last, published, caplog
):
    release = serving(device)
    whole = device.layout.state.read_bytes()
    device.layout.state.write_bytes(whole[:-20])
    last.tick()
    last.tick()
    assert published.all == []
    assert len(caplog.records) == 1

    device.layout.state.write_bytes(whole)
    last.tick()
    assert [found["release"] for found in published.all] == [release]


def test_whoever_serves_may_read_the_state(device):
    serving(device)
    assert device.layout.state.stat().st_mode & 0o777 == 0o640  # by the group of the folder, which is theirs


def _built(device, sequence):
    release = stage(device, sequence=sequence)
    attach_engine(device, release)
    return release
