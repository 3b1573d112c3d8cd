"""A registry that trickles is in nobody's way: what is fetched comes without the push lock."""

import threading
import time

import pytest

from edge.device.device import collect
from edge.device.lock import PushLock
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow_but(
    "test_a_person_goes_back_while_a_registry_trickles_and_what_comes_is_taken_then",
    reason="further pulls of a registry that trickles",
)


@pytest.fixture
def trickling(root, odd, led):
    """A device with two releases that fetches a third, whose model comes byte by byte until `open_up` is called."""
    for name, sequence in (("first", 1), ("second", 2)):
        assert root.push(root.bundle(name, sequence=sequence)).result == "committed"
    third = root.bundle("third", sequence=3)
    odd.take(third)
    model = next(one.sha256 for one in third.manifest.files if one.path == "model.onnx")
    begun, opened, ended = threading.Event(), threading.Event(), []

    def trickle(request):
        if request.command != "GET" or not request.path.endswith(model) or opened.is_set():
            return False
        content = odd.blobs[model]
        request.say(200, headers={"Content-Length": str(len(content))})
        for at in range(len(content)):
            request.wfile.write(content[at : at + 1])
            request.wfile.flush()
            begun.set()
            opened.wait(5.0)
        return True

    odd.meddle = trickle
    pulling = threading.Thread(target=lambda: ended.append(led.pull()))
    pulling.start()
    wait_until(begun.is_set, what="the model begins to come")

    def open_up():
        assert pulling.is_alive(), "the pull was to be under way"
        opened.set()
        pulling.join(120)
        return ended[0].outcome

    yield open_up
    opened.set()
    pulling.join(120)


def test_a_person_goes_back_while_a_registry_trickles_and_what_comes_is_taken_then(trickling, root, led):
    assert PushLock(root.layout).holder() is None

    root.go_back()

    assert led.current == root.bundle("first").manifest.release
    assert trickling().result == "committed"
    assert led.current == root.bundle("third", sequence=3).manifest.release


def test_a_person_pushes_what_is_being_fetched_and_neither_spoils_it(trickling, root, led):
    third = root.bundle("third", sequence=3)

    assert root.push(third).result == "committed"

    assert trickling().result == "unchanged"
    assert all(root.device.store.verify(one.sha256) for one in third.manifest.files)
    assert not list(root.layout.incoming.iterdir())


def test_what_a_collection_of_garbage_has_taken_meanwhile_is_fetched_again(trickling, root, led, odd):
    pipeline = next(one for one in root.bundle("third", sequence=3).manifest.files if one.path == "pipeline.yaml")
    assert root.device.store.has(pipeline.sha256)

    assert pipeline.sha256 in collect(root.device, now_s=time.time()).blobs

    assert trickling().result == "committed"
    assert sum(path.endswith(pipeline.sha256) for _, path, _ in odd.asked) == 2


def test_another_pull_waits_for_its_turn_and_is_told_who_has_it(trickling, root, led):
    other = type(led)(led.root, led.reference, led.ca)

    assert other.pull().outcome.code == "lock.held"

    assert trickling().result == "committed"


def test_the_lock_is_given_back_for_the_trial(root, odd, led):
    root.push(root.bundle("first"))
    root.script(trial_s=600.0)
    odd.take(root.bundle("second", sequence=2))
    pulling = threading.Thread(target=led.pull)
    pulling.start()
    wait_until(lambda: root.device.state().phase.value == "trial", what="the trial has begun")
    wait_until(lambda: PushLock(root.layout).holder() is None, what="the lock is free")

    root.go_back()

    assert led.current == root.bundle("first").manifest.release
    root.stop()
    pulling.join(60)
