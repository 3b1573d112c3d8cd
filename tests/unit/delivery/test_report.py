"""What is told of a phase of a push."""

import threading

import pytest

from edge.delivery.deliver import deliver
from edge.delivery.deliverable import DeliveryOptions
from edge.delivery.outcome import BEGIN, END, PROGRESS, Report
from tests.support.scripted_device import body, recorded_bundle, recorded_device, status_of


def test_the_end_of_a_phase_says_that_all_of_it_is_done_whatever_was_passed_over_on_the_way():
    said = []
    report = Report("gate-01", said.append)

    with report.phase("upload", total=8233):
        report.far("upload", 428, 8233)

    assert [(one.event, one.bytes, one.total) for one in said] == [
        (BEGIN, None, 8233),
        (PROGRESS, 428, 8233),
        (END, 8233, 8233),
    ]


def test_a_phase_that_fails_has_no_end():
    said = []

    with pytest.raises(ValueError, match="no"), Report("gate-01", said.append).phase("build"):
        raise ValueError("no")

    assert [one.event for one in said] == [BEGIN]


def test_each_new_reason_for_which_a_trial_waits_is_told_once_a_service_has_had_its_time_to_start(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("edge.delivery.deliver._WATCH_PAUSE_S", 0.0)
    story, reasons = "a first push", ["starting", "no broker", "no broker", None, "no frames", "no frames"]
    bundle, told = recorded_bundle(story, tmp_path), []
    left = iter(reasons)

    def status(values):
        at = next(left, "over")
        if at == "over":
            return [body("ok", values["id"], status_of(story))]
        said = status_of(story, phase="trial", target=bundle.manifest.release)
        passed_s = 0 if at == "starting" else 200
        said["state"]["started_boottime_ns"] = said["at"]["boottime_ns"] - passed_s * 1_000_000_000
        return [body("ok", values["id"], {**said, "waits_for": at})]

    outcome = deliver(
        bundle,
        lambda: recorded_device(story, status=status),
        target="gate-01",
        options=DeliveryOptions(who="tester", deadline_s=30),
        on_event=lambda event: told.append(event.hint) if (event.phase, event.event) == ("trial", "note") else None,
        stop=threading.Event(),
    )

    assert outcome.result == "committed"
    limits = bundle.manifest.health
    assert [hint.partition(";")[0] for hint in told[:3]] == ["no broker", "all is well now", "no frames"]
    assert all(f"{limits.hold_s:g} s" in hint and f"{limits.deadline_s:g} s" in hint for hint in told[:3])
