"""A verdict of a device or a person holds, whatever a registry says of digests."""

from __future__ import annotations

import json
import threading

import pytest

from edge.delivery.options import DeliveryOptions
from edge.deploy.push.rollback import roll_back_target
from tests.support.wait import wait_until

pytestmark = pytest.mark.integration


@pytest.fixture
def gone_back(led, odd, root):
    """A device whose person went back by hand from the second release to the first; the tag names the second."""
    for sequence, name in enumerate(("first", "second"), 1):
        odd.take(root.bundle(name, sequence=sequence))
        assert led.pull().outcome.result == "committed"
    go_back(root)
    return led


def go_back(root) -> None:
    went = roll_back_target(
        root.connect,
        target="gate-01",
        to=None,
        options=DeliveryOptions(who="ops"),
        on_event=root.events.append,
        stop=threading.Event(),
    )
    assert went.exit_code == 0, went


def without_digest(request) -> bool:
    """Answer a HEAD as a registry that does not say a digest."""
    if request.command == "HEAD":
        request.say(200)
        return True
    return False


def with_another(request) -> bool:
    """Answer a HEAD by a digest that nothing has."""
    if request.command == "HEAD":
        request.say(200, headers={"Docker-Content-Digest": "sha256:" + "0" * 64})
        return True
    return False


@pytest.mark.parametrize("lie", [without_digest, with_another])
def test_who_went_back_is_not_overruled_by_what_a_registry_says_of_its_digest(gone_back, odd, root, lie):
    before, odd.meddle = gone_back.current, lie

    pulled = gone_back.pull()

    assert (pulled.outcome.result, pulled.record.result) == ("unchanged", "committed")
    assert gone_back.current == before == root.bundle("first").manifest.release
    assert gone_back.pull().outcome.result == "unchanged"


def unavailable(request) -> bool:
    """Answer everything by 500."""
    request.say(500)
    return True


def test_who_went_back_is_not_overruled_after_a_time_in_which_the_registry_was_away(gone_back, odd, root):
    before, odd.meddle = gone_back.current, unavailable
    for _ in range(2):
        away = gone_back.pull()
        assert (away.outcome.result, away.outcome.code) == ("failed", away.record.code), away
    odd.meddle = None

    pulled = gone_back.pull()

    assert gone_back.current == before == root.bundle("first").manifest.release
    assert (pulled.outcome.result, pulled.record.result, pulled.record.code) == ("unchanged", "committed", None)


def test_who_goes_back_from_a_release_whose_pull_did_not_see_its_end_is_not_overruled(led, odd, root):
    odd.take(root.bundle("first"))
    led.pull()
    new = root.bundle("second", sequence=2).manifest.release
    odd.take(root.bundle("second", sequence=2))
    root.script(trial_s=8.0)

    blind = led.pull(deadline_s=3.0)

    assert blind.outcome.result not in ("committed", "rolled-back"), blind
    assert led.pull().outcome.code == "lock.trial"
    wait_until(lambda: root.device.state().phase.value == "idle", what="the trial has ended")
    assert led.current == new
    root.script()
    go_back(root)
    assert led.pull().outcome.result == "unchanged"
    assert led.current == root.bundle("first").manifest.release


def test_the_same_release_in_another_wrapping_is_the_same_release(gone_back, odd):
    before = gone_back.current
    told = json.loads(odd.tags["stable-all"])
    odd.tags["stable-all"] = json.dumps({**told, "annotations": {"a": "b"}}).encode()

    assert gone_back.pull().outcome.result == "unchanged"
    assert gone_back.current == before


def test_a_release_that_was_rolled_back_is_tried_again_by_who_says_so(led, odd, root):
    odd.take(root.bundle("first"))
    led.pull()
    bad = root.bundle("second", sequence=2)
    odd.take(bad)
    root.script(trial="refuse")
    assert led.pull().outcome.result == "rolled-back"
    root.script(trial="commit")

    assert led.pull(retry_bad=True).outcome.result == "committed"
    assert led.current == bad.manifest.release
