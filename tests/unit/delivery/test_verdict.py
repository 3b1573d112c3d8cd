import pytest

from edge.delivery.verdict import COMMITTED, is_on_trial, verdict_of
from edge.device.units import LACKING
from tests.support.answers import last_switch, state, status

NEW = "a" * 12
BEFORE = last_switch(release=NEW, result="rolled-back", reason="power")


def _status(phase="idle", target=None, **last):
    ended = last.pop("ended", None) or last_switch(**last)
    return status(state=state(phase=phase, target=target, last=ended))


def test_a_release_on_trial_has_no_verdict():
    told = _status("trial", NEW, ended=BEFORE)
    assert is_on_trial(told, NEW)
    assert verdict_of(told, NEW, None) is None


@pytest.mark.parametrize(
    ("told", "verdict"),
    [
        (_status(ended=BEFORE), None),
        (_status(release="c" * 12, result="committed", at="later"), None),
        (_status(release=NEW, result="committed", at="later"), COMMITTED),
    ],
    ids=["of an earlier push", "on another release", "committed"],
)
def test_a_verdict_is_on_this_release_and_newer_than_the_one_before(told, verdict):
    assert verdict_of(told, NEW, BEFORE) == verdict


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("trial.frames.none: gate-east gave none", "trial.frames.none"),
        (f"{LACKING}: credential 'cam' is not here", "trial.lacking"),
        ("the service was killed", "trial.refused"),
        ("verify.signature: what only another kind of code says", "trial.refused"),
        (None, "trial.refused"),
    ],
)
def test_a_release_that_was_rolled_back_says_why(reason, code):
    error = verdict_of(_status(release=NEW, result="rolled-back", reason=reason, at="later"), NEW, BEFORE)
    assert (error.code, error.exit_code) == (code, 8)
    assert (reason or "did not say why") in error.problem
    for command in ("push --retry-bad", "edge-runtime pull --retry-bad"):
        assert (command in error.hint) == (code != "trial.lacking")


def test_a_device_that_has_given_up_needs_a_person():
    error = verdict_of(_status("failed", release=NEW, result="failed", reason="nothing valid", at="x"), NEW, None)
    assert (error.code, error.exit_code) == ("person.failed", 9)
