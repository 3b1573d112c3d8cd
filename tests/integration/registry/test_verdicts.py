"""A verdict of a device or a person holds, whatever a registry says of digests."""

import json
from dataclasses import replace

import pytest

from edge.transport.channel import ChildChannel
from tests.support.odd_registry import on, saying
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow_but(
    "test_who_went_back_is_asked_first_whatever_the_record_says",
    "test_who_went_back_is_not_overruled_by_what_a_registry_says_of_its_digest",
    reason="further pulls over real registries",
)


@pytest.fixture
def gone_back(led, odd, root):
    """A device whose person went back by hand from the second release to the first; the tag names the second."""
    for sequence, name in enumerate(("first", "second"), 1):
        odd.take(root.bundle(name, sequence=sequence))
        assert led.pull().outcome.result == "committed"
    root.go_back()
    return led


without_digest = on("", saying(200), "HEAD")
with_another = on("", saying(200, Docker_Content_Digest="sha256:" + "0" * 64), "HEAD")


@pytest.mark.parametrize("lie", [without_digest, with_another], ids=["none", "another"])
def test_who_went_back_is_not_overruled_by_what_a_registry_says_of_its_digest(gone_back, odd, root, lie):
    before, odd.meddle = gone_back.current, lie

    pulled = gone_back.pull()

    assert (pulled.outcome.result, pulled.record.result) == ("unchanged", "rolled-back")
    assert gone_back.current == before == root.bundle("first").manifest.release
    assert gone_back.pull().outcome.result == "unchanged"


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
    root.go_back()
    assert led.pull().outcome.result == "unchanged"
    assert led.current == root.bundle("first").manifest.release


RECORDS = {  # by those of the two pulls
    "none": lambda before, last: None,
    "of a pull that was killed in the trial": lambda before, last: before,
    "after times in which the registry was away": lambda _, last: replace(
        last, result="failed", code="registry.failed"
    ),
    "nothing settled": lambda before, last: replace(last, settled=None),
    "of elsewhere": lambda before, last: replace(last, reference="a.b/c:stable-all"),
    "of another release": lambda before, last: replace(last, release="0" * 12),
}


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize("kept", RECORDS)
def test_who_went_back_is_asked_first_whatever_the_record_says(led, odd, root, is_named, kept):
    first, second = root.bundle("first"), root.bundle("second", sequence=2)
    records = []
    for one in (first, second):
        odd.take(one)
        assert led.pull().outcome.result == "committed"
        records.append(led.record)
    root.go_back(first.manifest.release if is_named else None)
    led.record = RECORDS[kept](*records)

    assert (led.pull().outcome.result, led.current) == ("unchanged", first.manifest.release)

    led.record = None
    third = root.bundle("third", sequence=3)
    odd.take(third)
    assert led.pull().outcome.result == "committed"


def test_what_a_person_has_left_meanwhile_is_refused_to_who_fetches_and_taken_from_a_person(led, odd, root):
    first, second = root.bundle("first"), root.bundle("second", sequence=2)
    for one in (first, second):
        assert root.push(one).result == "committed"
    root.go_back()

    fetched = root.push(second, lambda: ChildChannel([*root.command, "for-pull"]), is_fetched=True)

    assert (fetched.result, fetched.code) == ("refused", "preflight.left")
    assert root.push(second).result == "committed"


def test_the_same_release_in_another_wrapping_is_the_same_release(gone_back, odd):
    before = gone_back.current
    told = json.loads(odd.tags["stable-all"])
    odd.tags["stable-all"] = json.dumps({**told, "annotations": {"a": "b"}}).encode()

    assert gone_back.pull().outcome.result == "unchanged"
    assert gone_back.current == before
