"""What speaks against a release on a device is told before anything is sent, or ends the push there."""

import threading

import pytest

from edge.delivery.deliver import deliver
from edge.delivery.deliverable import DeliveryOptions
from edge.errors import DeployError
from tests.support.scripted_device import recorded_bundle, recorded_device

STORY = "a first push"


def run(tmp_path, judge, *, is_plan):
    events, devices = [], []

    def connect():
        devices.append(recorded_device(STORY))
        return devices[-1]

    outcome = deliver(
        recorded_bundle(STORY, tmp_path),
        connect,
        target="gate-01",
        options=DeliveryOptions(who="tester", is_plan=is_plan, deadline_s=30),
        on_event=events.append,
        stop=threading.Event(),
        judge=judge,
    )
    return outcome, events, devices[0].asked


def test_a_plan_says_it(tmp_path):
    asked = []

    def judge(facts):
        asked.append(facts.compatible)
        return ["too much"]

    outcome, events, verbs = run(tmp_path, judge, is_plan=True)

    assert outcome.result == "planned"
    assert verbs == ["plan"]
    assert [(one.phase, one.event, one.hint) for one in events if one.code == "preflight.capacity"] == [
        ("plan", "note", "too much")
    ]
    assert len(asked) == 1
    assert asked[0]


@pytest.mark.parametrize("is_plan", [True, False])
def test_a_refusal_ends_it_before_anything_is_sent(tmp_path, is_plan):
    def judge(facts):
        raise DeployError("preflight.capacity", "too much", hint="less")

    outcome, _, verbs = run(tmp_path, judge, is_plan=is_plan)

    assert (outcome.result, outcome.code, outcome.exit_code) == ("refused", "preflight.capacity", 6)
    assert (outcome.problem, outcome.hint) == ("too much", "less")
    assert verbs == ["plan"]
