"""When a health check says that nothing serves, and when it leaves a runtime alone."""

import dataclasses

import pytest

from edge.device.health import Health, StreamHealth, why_unwell

SERVES = Health(
    release="",
    invocation="1",
    at_boottime_ns=100_000_000_000,
    is_ready=True,
    batches=7,
    infer_p95_ms=None,
    age_p95_ms=None,
    mqtt_connected=False,
    mqtt_acknowledged=0,
    streams={"east": StreamHealth(state="down", decoded=0, inferred=0)},
)


def unwell(health, *, after_s=1.0):
    return why_unwell(health, now_boottime_ns=100_000_000_000 + int(after_s * 1e9), max_age_s=10)


def test_a_runtime_whose_camera_and_broker_are_away_is_well():
    assert unwell(SERVES) is None
    assert unwell(SERVES, after_s=10) is None


@pytest.mark.parametrize(
    ("health", "after_s", "why"),
    [
        (None, 0, "no health file"),
        (dataclasses.replace(SERVES, is_ready=False), 0, "not ready"),
        (SERVES, 10.5, "at most 10 s"),
        (SERVES, -5, "-5 s old"),  # of a boot before
    ],
)
def test_why_nothing_may_be_serving(health, after_s, why):
    assert why in (unwell(health, after_s=after_s) or "")
