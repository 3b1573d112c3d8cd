"""A device that always has something to say and never comes to an end: the push of it ends all the same."""

import threading
import time

import pytest

from edge.delivery.deliver import deliver
from edge.delivery.deliverable import DeliveryOptions
from edge.delivery.link import Link
from edge.deploy.fleet.over_ssh import roll_back
from edge.wire.peer import Nothing
from edge.wire.verbs import STATUS
from tests.support.fleet import Running, ScriptedPush, targets, wave
from tests.support.raised import error_of
from tests.support.scripted_device import body, progress_for_ever, recorded_bundle, recorded_device, status_of

STORY = "a first push"
SHORT_S = 0.6
BEFORE_THE_SWITCH = ["plan", "lock", "put_manifest", "have", "blob", "stage", "build"]


def _push(tmp_path, deadline_s=SHORT_S, stop=None, **others):
    began = time.monotonic()
    outcome = deliver(
        recorded_bundle(STORY, tmp_path),
        lambda: recorded_device(STORY, **others),
        target="gate-01",
        options=DeliveryOptions(who="tester", deadline_s=deadline_s),
        on_event=lambda event: None,
        stop=stop or threading.Event(),
    )
    assert time.monotonic() - began < SHORT_S + 5
    return outcome


def _says(**state):
    return lambda values: [body("ok", values["id"], status_of(STORY, **state))]


@pytest.mark.parametrize("verb", BEFORE_THE_SWITCH)
def test_progress_for_ever_before_the_switch_ends_as_late(tmp_path, verb):
    outcome = _push(tmp_path, **{verb: progress_for_ever})
    assert (outcome.result, outcome.exit_code, outcome.code) == ("late", 3, "transfer.deadline")
    assert "edge-deploy status" in outcome.hint


@pytest.mark.parametrize("verb", ["switch", "status"])
def test_progress_for_ever_after_the_switch_is_a_release_that_nobody_has_judged(tmp_path, verb):
    outcome = _push(tmp_path, **{verb: progress_for_ever})
    assert (outcome.result, outcome.code) == ("failed", "trial.undecided")


def test_a_trial_that_never_ends_is_a_release_that_nobody_has_judged(tmp_path):
    release = recorded_bundle(STORY, tmp_path).manifest.release
    outcome = _push(tmp_path, status=_says(phase="trial", target=release))
    assert (outcome.result, outcome.code) == ("failed", "trial.undecided")


def test_a_device_that_denies_each_switch_is_asked_three_times(tmp_path):
    devices = []
    denied = _says(phase="idle", target=None, last=None)

    def connect():
        devices.append(recorded_device(STORY, status=denied))
        return devices[-1]

    outcome = deliver(
        recorded_bundle(STORY, tmp_path),
        connect,
        target="gate-01",
        options=DeliveryOptions(who="tester"),
        on_event=lambda event: None,
        stop=threading.Event(),
    )
    assert (outcome.result, outcome.code) == ("failed", "trial.undecided")
    assert sum(device.asked.count("switch") for device in devices) == 3


def test_pings_that_are_answered_are_no_progress_and_end_as_late(tmp_path):
    def other_answers(values):
        while True:
            yield body("ok", -1, {})

    assert _push(tmp_path, stage=other_answers).result == "late"


def test_a_rollback_of_a_device_that_drags_on_ends_as_late():
    options = DeliveryOptions(who="tester", deadline_s=SHORT_S)
    one = roll_back(None, options, connect=lambda _: recorded_device(STORY, rollback=progress_for_ever))
    outcome = one(targets(1)[0], lambda event: None, threading.Event())
    assert (outcome.result, outcome.code) == ("late", "transfer.deadline")


@pytest.mark.parametrize(("is_greeted", "waited"), [(True, "0.5 s"), (False, "0.3 s")])
def test_a_device_that_falls_silent_is_told_with_the_silence_that_was_waited_for(monkeypatch, is_greeted, waited):
    monkeypatch.setattr("edge.delivery.link.SILENCE_S", 0.5)
    monkeypatch.setattr("edge.delivery.link.GREETING_S", 0.3)

    def ask():
        device = recorded_device("what people ask", status=lambda values: [])
        if not is_greeted:
            device.receive()
        Link(device, threading.Event()).ask(STATUS, Nothing())

    error = error_of(ask)
    assert (error.code, waited in error.problem) == ("transfer.timeout", True)


def test_without_a_deadline_of_its_own_a_push_has_one_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("edge.delivery.deliver._REST_S", -1e6)  # no time is left
    assert _push(tmp_path, deadline_s=None, build=progress_for_ever).result == "late"


def test_a_device_that_drags_on_holds_no_rollout(tmp_path):
    others = ScriptedPush()

    def one(target, on_event, stop):
        if target.name != "d-01":
            return others(target, on_event, stop)
        return _push(tmp_path, stop=stop, build=progress_for_ever)

    running = Running(targets(6), one, order=wave(steps=(2, "100%"), max_failed=0), max_parallel=1)
    result = running.join(timeout_s=30)

    assert [outcome.result for outcome in result.outcomes] == ["committed", "late", *["committed"] * 4]
    assert running.memory.results()["d-01"] == "late"
    assert result.exit_code == 11


def test_a_canary_that_drags_on_is_stood_in_for_by_another():
    late = ScriptedPush({"d-00": "late"})
    result = Running(targets(3), late, order=wave(canary=None)).join(timeout_s=30)
    assert [outcome.result for outcome in result.outcomes] == ["late", "committed", "committed"]
